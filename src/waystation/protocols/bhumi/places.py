"""Addresses of relays: which of them may be places on the open internet (BHUMI-PRIVATE).

An advert that a stranger signed must lead nobody into the network behind a relay or a client. An IP literal is judged
here; a name is judged by whoever looks it up, but a name that no public name server answers for is refused at once,
and so is one that the system's resolver would read as a number (``127.1``, ``0x7f000001``).
"""

from typing import Final

from waystation.core.addresses import is_public

__all__ = ["host_of", "is_open_place"]

_LOCAL_ENDS: Final = ("localhost", "local", "internal", "lan", "home", "arpa", "onion")


def host_of(address: str) -> str:
    """Return the host of an address that ``extension_wire.is_address`` holds to be one, in lower case, unbracketed."""
    return address.partition("://")[2].rpartition(":")[0].removeprefix("[").removesuffix("]").lower()


def is_open_place(address: str) -> bool:
    """Return whether an address may lead to the open internet; a name still has to be judged when it is looked up."""
    host = host_of(address).rstrip(".")
    last = host.rpartition(".")[2]
    if ":" in host or _is_number(last):
        return is_public(host)
    return "." in host and last not in _LOCAL_ENDS


def _is_number(label: str) -> bool:
    """Return whether a resolver would take a host that ends in this label for an IPv4 address (WHATWG URL 3.5)."""
    return label.isdecimal() or label.startswith("0x")
