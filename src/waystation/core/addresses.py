"""Internet addresses and names: tests whether a text is one, and whether an address is a public unicast address.

Dialling code asks ``is_public`` before it connects (``transport.dial``, ``server.dialling``); checks of settings use
``is_ip`` and ``is_dns_name``. Text goes in, a bool comes out. A node dials addresses that unauthenticated peers sent.
It must not connect to its own host, its local network or a cloud metadata service. An IPv6 address may embed an IPv4
address (RFC 4291 2.5.5.2, RFC 3056, RFC 4380, RFC 6052). Such an address is public only if the embedded address is
public.
"""

import ipaddress
import re
from typing import Final

__all__ = ["DNS_NAME_CHARS_MAX", "is_dns_name", "is_ip", "is_public"]

DNS_NAME_CHARS_MAX: Final = 253  # RFC 1035 2.3.4, as text without the last dot
_LABEL: Final = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DNS_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052 2.1: the last 32 bits are the IPv4 address
_IPV4_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")  # RFC 4291 2.5.5.1, deprecated
_SITE_LOCAL: Final = ipaddress.IPv6Network("fec0::/10")  # RFC 3879: deprecated, still routed inside some sites
_RELAYS_OF_6TO4: Final = ipaddress.IPv4Network("192.88.99.0/24")  # RFC 7526: deprecated; leads to the nearest relay


def is_ip(text: str) -> bool:
    """Return whether a text is an IP address, without brackets, port and network; one of IPv6 may have a zone."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_dns_name(text: str) -> bool:
    """Return whether a text is a DNS name of ASCII labels, without a dot at its end."""
    return len(text) <= DNS_NAME_CHARS_MAX and _DNS_NAME.fullmatch(text) is not None


def is_public(address: str) -> bool:
    """Return whether an IP address is a unicast address of the open internet.

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
