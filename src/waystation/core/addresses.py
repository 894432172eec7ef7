"""Internet addresses: which of them are places on the open internet.

A node that dials what strangers tell it must not be sent to its own machine, to the network behind it, or to the
metadata service of its cloud. Addresses that carry an IPv4 address inside (RFC 4291 2.5.5.2, RFC 3056, RFC 4380,
RFC 6052) lead wherever that one leads, so it is the inner address that is judged.
"""

import ipaddress
from typing import Final

__all__ = ["is_public"]

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052 2.1: the last 32 bits are the IPv4 address
_IPV4_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")  # RFC 4291 2.5.5.1, deprecated
_SITE_LOCAL: Final = ipaddress.IPv6Network("fec0::/10")  # RFC 3879: deprecated, still routed inside some sites
_RELAYS_OF_6TO4: Final = ipaddress.IPv4Network("192.88.99.0/24")  # RFC 7526: deprecated; leads to the nearest relay


def is_public(address: str) -> bool:
    """Return whether an IP address is a unicast place on the open internet.

    Args:
        address: IPv4 or IPv6 as text, without brackets; any other text, and one with a zone, is not public.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return _is_public_v4(parsed) if isinstance(parsed, ipaddress.IPv4Address) else _is_public_v6(parsed)


def _is_public_v4(address: ipaddress.IPv4Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and address not in _RELAYS_OF_6TO4
    )


def _is_public_v6(address: ipaddress.IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    inner = _carried(address)
    if inner:
        return all(_is_public_v4(each) for each in inner)
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and address not in _SITE_LOCAL
    )


def _carried(address: ipaddress.IPv6Address) -> tuple[ipaddress.IPv4Address, ...]:
    """Return the IPv4 addresses inside, none for an IPv6 address of its own."""
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo  # the server that is asked, and the client that is reached
    if address in _NAT64 or address in _IPV4_COMPATIBLE:
        return (ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()
