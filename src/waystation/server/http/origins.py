"""Checks for whom a request was meant and which page sent it, so that no page of another origin uses the admin port.

``authorisation`` calls it first: a request's headers go in, a refusal or None comes out. A page whose name was rebound
to this machine's address asks with that name in ``Host``, and a page of another origin sends its own ``Origin``.
Programs send neither. Browsers also say in ``Sec-Fetch-Site`` what the page is to the port.

================================================  ======  =========================================
request                                           status  why
================================================  ======  =========================================
no Host, more than one, or what is no host         400    RFC 9112 3.2
Host with user info or a zone, longer than 260     400    no host
Host of another name, also one with a dot behind   421    it was meant for somebody else
Host in capitals, with any port, ``[::1]``         -      as in small letters; a tunnel has its own port
Origin that is not http(s):// and the Host         403    a page of another origin, also "null"
Sec-Fetch-Site other than same-origin and none     403    the same, where there is no Origin
================================================  ======  =========================================

Spec: RFC 9110 7.2, 15.5.20; RFC 6454 7. Choice NODE-HOSTS.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = ["Headers", "HostNames", "Refusal", "host_name", "origin_refusal"]

Headers = Iterable[tuple[bytes, bytes]]
"""Names in small letters, with their values."""

HOST_CHARS_MAX: Final = 260  # 253 of a name, a colon and a port
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_OWN_PAGE: Final = ("same-origin", "none")


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    sentence: str


class HostNames:
    """The names that requests may ask for."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Take these names and addresses beside those of loopback."""
        self._names = {*_LOOPBACK_NAMES, *(_canonical(name) for name in names)}

    def holds(self, name: str, own_address: str) -> bool:
        """Return whether ``name`` is one of them.

        Args:
            name: As ``host_name`` returns it.
            own_address: At which the connection came, "" for a unix socket.
        """
        return name in self._names or (bool(own_address) and name == _canonical(own_address))


def host_name(text: str) -> str | None:
    """Return the name or address that a Host header asks for, in small letters and without port; None for no host."""
    match = _HOST.fullmatch(text) if len(text) <= HOST_CHARS_MAX else None
    if match is None:
        return None
    if match["v6"] is None:
        return match["name"].lower()
    try:
        return _canonical(str(ipaddress.IPv6Address(match["v6"])))
    except ValueError:
        return None


def origin_refusal(headers: Headers, names: HostNames, own_address: str) -> Refusal | None:
    """Return why a request is refused for its Host or its origin, None when it is not.

    Args:
        headers: Of the request.
        names: That it may ask for.
        own_address: At which the connection came, "" for a unix socket.
    """
    pairs = list(headers)
    hosts = _values(pairs, b"host")
    name = host_name(hosts[0]) if len(hosts) == 1 else None
    if name is None:
        return Refusal(400, "a request names its host once, as name:port")
    if not names.holds(name, own_address):
        return Refusal(421, "this host is not one of the admin port; name it in admin.hosts to allow it")
    origins = _values(pairs, b"origin")
    if any(not is_own(origin, hosts[0]) for origin in origins) or len(origins) > 1:
        return Refusal(403, "a page of another origin may not use the admin port")
    if any(value not in _OWN_PAGE for value in _values(pairs, b"sec-fetch-site")):
        return Refusal(403, "a page of another origin may not use the admin port")
    return None


def is_own(origin: str, host: str) -> bool:
    """Return whether an Origin is that of pages of the host that was asked for."""
    scheme, separator, rest = origin.lower().partition("://")
    return bool(separator) and scheme in {"http", "https"} and rest == host.lower()


def _values(headers: Sequence[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for name, value in headers if name == wanted]


def _canonical(name: str) -> str:
    """Return a name in small letters, an address in its usual form, one of IPv4 within IPv6 as IPv4."""
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name.lower()
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
