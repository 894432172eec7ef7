"""Trusted proxies: which networks may name the client of a connection, and how they name it in HTTP.

Listeners ask: the connection's address and the request's headers go in, the client's address comes out. A header counts
only when the connection comes from a trusted proxy, and only the one header that the operator chose: a proxy sets one
of the two and passes the other one on as its client sent it. The list is read from its right end, since each proxy
appends the address that it saw. The first address that is no trusted proxy is the client.

Spec: RFC 7239 4, 5.2, 6 (Forwarded); X-Forwarded-For has none. Choice NODE-FORWARDED.
"""

import ipaddress
import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

from waystation.core.network_set import Network, NetworkSet

__all__ = ["FORWARDED", "HOPS_MAX", "X_FORWARDED_FOR", "Proxies", "ProxyFault"]

X_FORWARDED_FOR: Final = "x-forwarded-for"
FORWARDED: Final = "forwarded"
HOPS_MAX: Final = 16
"""Entries of the list that are looked at, from the right."""
_BYTES_MAX: Final = 4_096  # of the list's right end
_FOR: Final = re.compile(r'(?:^|;)\s*for\s*=\s*("(?:[^"\\]|\\.)*"|[^;,"\s]+)\s*(?=;|$)', re.IGNORECASE)
_WITH_PORT: Final = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}")


class ProxyFault(Enum):
    """What is wrong with a connection that comes, or may come, through a proxy."""

    NO_HEADER = "proxy_header"
    """A trusted proxy sent no PROXY header where one is due, or too many of its connections named no client yet."""
    HEADER_NOT_READ = "proxy_header_not_read"
    """A PROXY header where none is read; only the first bytes of connections that fail are looked at."""
    NO_CLIENT = "proxy_names_nobody"
    """A request of a trusted proxy named no client; it counts as the proxy's own."""


class Proxies:
    """The trusted proxies of a node; immutable, a reload makes a new one."""

    __slots__ = ("_header", "_networks")

    def __init__(self, networks: Sequence[Network] = (), header: str = X_FORWARDED_FOR) -> None:
        """Trust ``networks`` to name clients.

        Args:
            networks: Of the proxies.
            header: ``X_FORWARDED_FOR`` or ``FORWARDED``, the one that they set.
        """
        self._networks = NetworkSet(networks)
        self._header = header

    def trusts(self, host: str) -> bool:
        """Return whether an address is one of a trusted proxy."""
        return self._networks.holds(host)

    @property
    def header(self) -> str:
        """The name of the header that counts, in lower case."""
        return self._header

    def client_of(self, host: str, values: Sequence[str]) -> str:
        """Return the address of the client of a request.

        Args:
            host: The address that the connection comes from.
            values: Those of the header, in the order of their lines.

        Returns:
            The rightmost address that is no trusted proxy. An entry that is no address ends the list: then it is the
            proxy to its right, because nobody who is trusted has named another one.
        """
        if not self.trusts(host):
            return host
        client = host
        entries = ",".join(values)[-_BYTES_MAX:].split(",")
        for entry in reversed(entries[-HOPS_MAX:]):
            named = _address(entry if self._header == X_FORWARDED_FOR else _for(entry))
            if not named:
                return client
            client = named
            if not self.trusts(client):
                return client
        return client


def _for(element: str) -> str:
    """Return the node of one forwarded-element, "" when it names none."""
    found = _FOR.findall(element.strip())
    return found[0].strip('"') if len(found) == 1 else ""


def _address(text: str) -> str:
    """Return the IP address that an entry names, with or without a port, in its usual form; "" for anything else."""
    text = text.strip()
    if match := _WITH_PORT.fullmatch(text):
        text = match[1] or match[2]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id is not None:
            return ""
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
    return str(found)
