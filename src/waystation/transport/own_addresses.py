"""Lists the addresses of this machine, and resolves a name to its addresses.

``waystation doctor`` compares the two, to see whether a name in the configuration leads to this machine.
"""

import ipaddress
import socket

import ifaddr

from waystation.core.errors import HostError

__all__ = ["own_addresses", "resolved"]


def own_addresses() -> list[str]:
    """Return the addresses of this machine's interfaces, but loopback and link-local ones."""
    found: list[str] = []
    for adapter in ifaddr.get_adapters():
        for each in adapter.ips:
            address = ipaddress.ip_address(each.ip if isinstance(each.ip, str) else each.ip[0])
            if not address.is_loopback and not address.is_link_local:
                found.append(str(address))
    return found


def resolved(host: str) -> list[str]:
    """Return the addresses of a name, in order and each once; waits as long as the resolver does.

    Raises:
        HostError: There are none, or it can be no name.
    """
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it can be no name"
        raise HostError(f"the name {host!r} is not found: {why}") from error
