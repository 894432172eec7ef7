"""Forms of listen and peer addresses: "every address" of IPv4 and IPv6, and peers' hosts as other rooms see them.

Listeners resolve their settings with it, and commands find from it where to dial a local node. One socket takes both
families (NODE-DUAL). Its kernel reports an IPv4 peer as "::ffff:192.0.2.1" (RFC 4291 2.5.5.2); everything above
transport sees "192.0.2.1".
"""

import asyncio
import socket
from typing import Any, Final

__all__ = [
    "EVERY_ADDRESS",
    "IPV4_MAPPED",
    "every_place",
    "has_both_families",
    "plain_host",
    "reached_host",
    "resolve_place",
    "shown_host",
]

EVERY_ADDRESS: Final = "*"
"""Host of a listener that takes IPv4 and, where the system has it, IPv6."""
IPV4_MAPPED: Final = "::ffff:"
_EVERY_IPV4: Final = "0.0.0.0"  # noqa: S104 - what the operator asked for
_EVERY_IPV6: Final = "::"
_REACHED: Final = {_EVERY_IPV4: "127.0.0.1", _EVERY_IPV6: "::1"}


def has_both_families() -> bool:
    """Return whether one socket of this system can take IPv4 and IPv6."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind((_EVERY_IPV6, 0))
    except OSError:  # a kernel without IPv6, or one where it is off
        return False
    return True


def every_place(port: int) -> tuple[int, Any]:
    """Return the address family and the socket address of every address: of both families where there are two."""
    if has_both_families():
        return socket.AF_INET6, (_EVERY_IPV6, port)
    return socket.AF_INET, (_EVERY_IPV4, port)


async def resolve_place(host: str, port: int, kind: int) -> tuple[int, Any]:
    """Return the address family and the socket address to bind for ``host``.

    Raises:
        OSError: The host is no address of any family.
        OverflowError: The port is none.
    """
    if host == EVERY_ADDRESS:
        return every_place(port)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
    family, _, _, _, place = found[0]
    return family, place


def shown_host(host: str, bound: str) -> str:
    """Return the host by which a listener is shown: "0.0.0.0" for every address, so that scripts can dial it.

    Args:
        host: What was asked for.
        bound: What the socket says.
    """
    return _EVERY_IPV4 if host == EVERY_ADDRESS else bound


def reached_host(host: str) -> str:
    """Return the address at which a listener of this machine is reached: that of loopback for every address."""
    return _REACHED.get(host, host)


def plain_host(host: str) -> str:
    """Return the address of a peer, an IPv4 one within IPv6 as the IPv4 address."""
    return host[len(IPV4_MAPPED) :] if host.startswith(IPV4_MAPPED) and "." in host else host
