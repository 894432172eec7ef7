"""Connects to a host that has several addresses: IPv6 first, then IPv4, and never long to one that is silent.

``transport.dial`` and the WebSocket dialler call ``connect_tcp``: host and port go in, a connected asyncio transport
comes out. RFC 8305: a quarter of a second after one attempt began, the next address is tried beside it, and the first
connection wins. The resolver's order (RFC 6724) says which family comes first. The attempts of asyncio
(``staggered_race`` of Python 3.11) leave tasks and sockets behind when the caller is cancelled, so they are made here.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import aiofastnet

from waystation.transport.silence import SilencePolicy, limit_silence

__all__ = ["ATTEMPT_S", "HasStreams", "connect_tcp"]

ATTEMPT_S: Final = 0.25
"""RFC 8305 5: "Connection Attempt Delay"."""

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)
_Found = tuple[Any, Any, int, str, Any]
"""An address as the resolver gives it: family, type, protocol, name, address."""


@runtime_checkable
class HasStreams(Protocol):
    """An event loop whose streams are no sockets: that of a simulation."""

    async def connect_stream(self, make: Callable[[], ProtocolT], host: str, port: int) -> tuple[Any, ProtocolT]:
        """Return a connected transport and its protocol; raises OSError when nobody listens."""


async def connect_tcp(
    make: Callable[[], ProtocolT],
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    tls_name: str = "",
    tls_within_s: float = 0.0,
    silence: SilencePolicy = SilencePolicy(),  # noqa: B008 - immutable
) -> tuple[Any, ProtocolT]:
    """Return a connected transport and its protocol; nothing is left of it when the caller is cancelled.

    Args:
        make: Makes the protocol.
        host: Name or IP address.
        port: TCP port.
        tls: TLS context, None for plain TCP.
        tls_name: The name that the certificate must have.
        tls_within_s: For the TLS handshake.
        silence: How long the other side may be silent from then on.

    Raises:
        OSError: No address answered; one that refused speaks for those that could not be reached.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, HasStreams):
        if tls is not None:
            raise ConnectionResetError("there is no TLS over these streams")
        return await loop.connect_stream(make, host, port)
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    connected = await _first_connected(_by_turns(found))
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport, protocol = await aiofastnet.create_connection(
            loop,
            make,
            sock=connected,
            ssl=tls,
            server_hostname=tls_name if tls is not None else None,
            ssl_handshake_timeout=tls_within_s if tls is not None else None,
        )
    except BaseException:
        connected.close()  # harmless where the transport has closed it
        raise
    limit_silence(transport, silence)
    return transport, protocol


def _by_turns(found: Sequence[_Found]) -> list[_Found]:
    """Return the addresses with the families by turns, that of the first one first (RFC 8305 4)."""
    first = [each for each in found if each[0] == found[0][0]]
    others = [each for each in found if each[0] != found[0][0]]
    longest = max(len(first), len(others))
    return [group[place] for place in range(longest) for group in (first, others) if place < len(group)]


async def _first_connected(addresses: Sequence[_Found]) -> socket.socket:
    """Return the first socket that connects; every other one is closed."""
    attempts: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    left = list(addresses)
    try:
        while left or attempts:
            if left:
                attempts.add(asyncio.create_task(_connected(left.pop(0))))
            done, attempts = await asyncio.wait(
                attempts, timeout=ATTEMPT_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            winners = [task for task in done if task.exception() is None]
            errors += [error for task in done if isinstance(error := task.exception(), OSError)]
            if winners:
                others = {*attempts, *winners[1:]}
                attempts = {*attempts, *winners}  # a caller that is cancelled meanwhile gets none of them
                await _close_all(others)
                attempts = set()
                return winners[0].result()
    finally:
        await _close_all(attempts)
    raise next((each for each in errors if isinstance(each, ConnectionRefusedError)), errors[0])


async def _connected(address: _Found) -> socket.socket:
    family, kind, protocol, _, place = address
    attempt = socket.socket(family, kind, protocol)
    try:
        attempt.setblocking(False)
        await asyncio.get_running_loop().sock_connect(attempt, place)
    except BaseException:
        attempt.close()
        raise
    return attempt


async def _close_all(attempts: set[asyncio.Task[socket.socket]]) -> None:
    """Cancel attempts and close the sockets of those that connected meanwhile."""
    for task in attempts:
        task.cancel()
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(outcome, socket.socket):
            outcome.close()
