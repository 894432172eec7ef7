"""Decides whether a relay's address may be on the public internet; private ones are refused (BHUMI-PRIVATE).

Anyone can sign an advert, so an advert must not direct a connection into a private network. IP literals are judged
here. Names that no public name server answers for are refused, and so are names that a resolver reads as numbers
(``127.1``). The caller checks other names again when they are resolved.
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
