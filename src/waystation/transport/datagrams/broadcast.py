"""A UDP broadcast port on given interfaces: sends requests to every host there, and answers requests of others.

Bhumi finds relays on the local network with it (``server.bhumi.discovery``, ``sdk.bhumi.lan``). The caller that opens
the port supplies requests and answers. The port drops datagrams from outside these networks. An answer is never longer
than its request, and the rates of both are limited. Errors on the network raise no exception.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from waystation.core.errors import HostError
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket
from waystation.transport.listen import why_not_bound

__all__ = ["ANSWERS_BURST", "ANSWERS_PER_S", "RECEIVED_BURST", "RECEIVED_PER_S", "BroadcastPort"]

RECEIVED_PER_S: Final = 50
"""Datagrams looked at; ours: each may cost a verification, 50 of them less than a hundredth of a core."""
RECEIVED_BURST: Final = 100
ANSWERS_PER_S: Final = 10
"""Answers given; ours: a device asks once when it starts."""
ANSWERS_BURST: Final = 20
_EXIT_PORT: Final = 4


class BroadcastPort(asyncio.DatagramProtocol):
    """One UDP port, from ``open`` to ``close``."""

    def __init__(
        self, on_datagram: Callable[[bytes, str], bytes | None], interfaces: Sequence[ipaddress.IPv4Interface]
    ) -> None:
        """Describe a port.

        Args:
            on_datagram: Gets a datagram and the IPv4 address it came from; returns the answer, None for none.
            interfaces: From ``mdns.lan_interfaces``; loopback among them receives from this machine alone.
        """
        self._on_datagram = on_datagram
        self._interfaces = interfaces
        self._transport: asyncio.DatagramTransport | None = None
        now = _now()
        self._received = TokenBucket(RECEIVED_PER_S, RECEIVED_BURST, now)
        self._answers = TokenBucket(ANSWERS_PER_S, ANSWERS_BURST, now)
        self.port = 0
        """What was bound."""
        self.ignored = 0
        """Datagrams from elsewhere or above the rates, and answers that were longer than their question."""

    async def open(self, port: int = 0) -> None:
        """Bind and begin to receive.

        Args:
            port: Others on this machine may have it open, too: a broadcast reaches all. 0 takes a free one.

        Raises:
            HostError: The port is not ours to take (exit code 4), or there is no network to broadcast on.
        """
        if not self._interfaces:
            raise HostError("UDP broadcast is not possible here: no IPv4 network leads to where the relay listens")
        try:
            carrier = _bound(port)
        except (OSError, OverflowError) as error:
            raise HostError(
                f"cannot use UDP port {port} for broadcast: {why_not_bound(error)}", exit_code=_EXIT_PORT
            ) from error
        self.port = carrier.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=carrier)

    def ask(self, question: bytes, port: int) -> None:
        """Send a datagram to everybody on our networks.

        Args:
            question: At most 512 bytes, so that it fits wherever IPv4 does.
            port: Where the others wait.
        """
        assert self._transport is not None
        for network in dict.fromkeys(each.network for each in self._interfaces):
            self._transport.sendto(question, (str(network.broadcast_address), port))

    def close(self) -> None:
        """Close the sockets."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # What the loop reports

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Judge where a datagram came from, and answer it within the rates."""
        host, now = addr[0], _now()
        if self._transport is None or not self._is_near(host) or not self._received.take(now):
            self.ignored += 1
            return
        answer = self._on_datagram(data, host)
        if answer is None:
            return
        if len(answer) > len(data) or not self._answers.take(now):
            self.ignored += 1
            return
        self._transport.sendto(answer, addr)

    def error_received(self, exc: Exception) -> None:  # noqa: ARG002 - whatever it was
        """Count that the network refused a datagram: there may be no receiver, or no route."""
        self.ignored += 1

    def _is_near(self, host: str) -> bool:
        source = ipaddress.IPv4Address(host)
        return any(source in each.network for each in self._interfaces)


def _bound(port: int) -> socket.socket:
    carrier = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        carrier.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        carrier.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        carrier.setblocking(False)
        carrier.bind(("", port))  # a port bound to one address receives no broadcast
    except BaseException:
        carrier.close()
        raise
    return carrier


def _now() -> Instant:
    return Instant(int(asyncio.get_running_loop().time() * MICROSECONDS_PER_SECOND))
