"""Maps an IP address to the network it is counted under: IPv4 /24, IPv6 /48.

Relays use it for limits per network, the recorder and logs to name an anonymous peer. One client may have many
addresses within such a network, so a limit on single addresses would not bound it.
"""

import ipaddress
from typing import Final

__all__ = ["network_of"]

_IPV4_BITS: Final = 24
_IPV6_BITS: Final = 48  # what one customer of a provider gets at most; the owner of one /64 has the others of it too
# Masks instead of ip_network, which costs twice as much: this is asked for every connection that is refused.
_IPV4_MASK: Final = -1 << (32 - _IPV4_BITS)
_IPV6_MASK: Final = -1 << (128 - _IPV6_BITS)
_PREFIX: Final = "net:"


def network_of(address: str) -> str:
    """Return the network of an address, such as ``net:203.0.113.0/24`` or ``net:2001:db8:7::/48``.

    Args:
        address: An IP address, or what ``admission.address_key`` makes of one (an IPv6 /64); any other text has no
            network, and "" is returned for it.
    """
    host = address.partition("/")[0].partition("%")[0]
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            return f"{_PREFIX}{ipaddress.IPv6Address(int(parsed) & _IPV6_MASK)}/{_IPV6_BITS}"
        parsed = parsed.ipv4_mapped
    return f"{_PREFIX}{ipaddress.IPv4Address(int(parsed) & _IPV4_MASK)}/{_IPV4_BITS}"
