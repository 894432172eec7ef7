"""One UDP port: what arrives in one look at the socket goes on as one list, and a list leaves as it comes.

Nothing that a datagram meets raises: a router's or a host's complaint (ICMP) about an earlier one, a destination that
nobody routes to, a kernel without room. All of it is counted (LPRP-ICMP). Addresses are pairs of host and
port for both families: an IPv4 host is "192.0.2.1" even on a socket of both families, an IPv6 host of one link carries
its zone, "fe80::1%2".
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from waystation.core.effects import Address, Datagram
from waystation.core.errors import HostError
from waystation.transport.listen import why_not_bound
from waystation.transport.send_queue import SendQueue

__all__ = ["BUFFER_BYTES", "DATAGRAMS_PER_LOOK", "DATAGRAM_BYTES_MAX", "UdpCounts", "UdpSocket", "widen_buffers"]

DATAGRAM_BYTES_MAX: Final = 2_048
"""A longer datagram arrives cut to this many bytes, still longer than anything that may be sent to us."""
DATAGRAMS_PER_LOOK: Final = 256  # half a millisecond, so that a flood cannot keep the loop from its other peers
BUFFER_BYTES: Final = 4_194_304  # asked of the kernel each way: 5,000 datagrams with what it adds; it may give less
_EXIT_PORT: Final = 4
_EVERY_IPV6: Final = "::"
_IPV4_MAPPED: Final = "::ffff:"  # RFC 4291 2.5.5.2


class UdpCounts(NamedTuple):
    """What one port has seen since it was opened."""

    received: int
    """Datagrams that arrived."""
    sent: int
    """Datagrams that the kernel took."""
    waiting: int
    """Datagrams that wait for room in the kernel now."""
    dropped: int
    """Datagrams for which there was no room."""
    failed: int
    """Datagrams that the kernel refused, and complaints about earlier ones."""


class UdpSocket:
    """One bound UDP port."""

    def __init__(self, on_datagrams: Callable[[list[Datagram]], None]) -> None:
        """Describe a port; ``open`` binds it.

        Args:
            on_datagrams: Gets 1 to ``DATAGRAMS_PER_LOOK`` datagrams at a time, in their order, each of at most
                ``DATAGRAM_BYTES_MAX`` bytes.
        """
        self._on_datagrams = on_datagrams
        self._socket: socket.socket | None = None
        self._out: SendQueue[Datagram] | None = None
        self._has_zones = False
        self._received = 0
        self._failed = 0
        self.host = ""
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Bind and begin to read; port 0 takes a free one, ``port`` then tells which. "::" takes both families.

        Raises:
            HostError: The port is taken or not ours to take (exit code 4).
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = found[0]
            self._socket = _bound(family, address)
        except (OSError, OverflowError) as error:
            raise HostError(f"cannot listen on {host}:{port}: {why_not_bound(error)}", exit_code=_EXIT_PORT) from error
        self._has_zones = family == socket.AF_INET6
        self.host, self.port = self._socket.getsockname()[:2]
        self._out = self._queue(self._socket)
        loop.add_reader(self._socket, self._read_some)

    def send(self, datagrams: Sequence[Datagram]) -> None:
        """Send all at once; what the kernel has no room for waits within ``WAITING_MAX`` or is dropped."""
        if self._out is not None and self._socket is not None:
            self._out.send(datagrams)

    def close(self) -> None:
        """Neither read nor send any more."""
        if self._socket is not None and self._out is not None:
            self._out.close()
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def counts(self) -> UdpCounts:
        """Return what happened so far, after ``close`` too."""
        out = self._out
        if out is None:
            return UdpCounts(0, 0, 0, 0, 0)
        return UdpCounts(self._received, out.sent, len(out.waiting), out.dropped, self._failed + out.failed)

    def _queue(self, carrier: socket.socket) -> SendQueue[Datagram]:
        sendto = carrier.sendto
        if self._has_zones:
            return SendQueue(carrier, lambda datagram: sendto(datagram[0], _as_ipv6(datagram[1])))
        return SendQueue(carrier, lambda datagram: sendto(*datagram))

    def _read_some(self) -> None:
        assert self._socket is not None
        receive = self._socket.recvfrom
        datagrams: list[Any] = []
        try:
            for _ in range(DATAGRAMS_PER_LOOK):
                datagrams.append(receive(DATAGRAM_BYTES_MAX))  # noqa: PERF401 - those before an error must be kept
        except BlockingIOError:
            pass
        except OSError:  # a complaint about one that we sent; what is behind it is read at the next look
            self._failed += 1
        if not datagrams:
            return
        self._received += len(datagrams)
        if self._has_zones:
            datagrams = [(data, _as_pair(*address)) for data, address in datagrams]
        self._on_datagrams(datagrams)


def widen_buffers(carrier: socket.socket) -> None:
    """Ask the kernel for ``BUFFER_BYTES`` each way; it gives what its administrator allows."""
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        carrier.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


def _bound(family: int, address: Any) -> socket.socket:
    carrier = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            carrier.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != _EVERY_IPV6)
        widen_buffers(carrier)
        carrier.setblocking(False)
        carrier.bind(address)
    except BaseException:
        carrier.close()
        raise
    return carrier


def _as_pair(host: str, port: int, _flow: int, zone: int) -> Address:
    """Return the address of an IPv6 socket's datagram as everything but the kernel knows it."""
    if host.startswith(_IPV4_MAPPED):
        return host[len(_IPV4_MAPPED) :], port
    return f"{host}%{zone}" if zone else host, port


def _as_ipv6(address: Address) -> tuple[str, int, int, int]:
    """Return ``_as_pair`` undone."""
    host, port = address
    if ":" not in host:
        return _IPV4_MAPPED + host, port, 0, 0
    bare, _, zone = host.partition("%")
    return bare, port, 0, int(zone or 0)
