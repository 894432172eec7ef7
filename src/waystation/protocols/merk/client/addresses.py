"""Which addresses of relays a MERK client takes, from its user and from other relays.

``sdk.merk.servers`` asks before it stores one. Rejected are plain ``ws`` addresses from an encrypted connection, and
addresses of the local machine or network from a remote relay. Spec: specs/merk.md 4, 8.
"""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from waystation.core.errors import LocalError
from waystation.protocols.merk.messages import ADDRESS_BYTES_MAX

__all__ = ["check_address", "may_learn"]

_LOCAL_NAMES: Final = ("localhost", "local", "lan", "home.arpa", "internal")  # RFC 6761, 6762, 8375 and common use


def check_address(address: str) -> None:
    """Check that a text is a WebSocket address that others can be given.

    Raises:
        LocalError: It is not.
    """
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or parts.fragment or not address.isprintable() or " " in address:
        raise LocalError(f"not a WebSocket address: {address!r}; expected ws://host:port/path or wss://host:port/path")
    if len(address.encode()) > ADDRESS_BYTES_MAX:
        raise LocalError(f"an address has at most {ADDRESS_BYTES_MAX} bytes")


def may_learn(address: str, learnt_from: str) -> bool:
    """Return whether a client takes an address, any text, from the relay at ``learnt_from``."""
    try:
        check_address(address)
    except LocalError:
        return False
    if learnt_from.startswith("wss:") and not address.startswith("wss:"):
        return False
    return not _is_local(address) or _is_local(learnt_from)


def _is_local(address: str) -> bool:
    """Return whether an address names this machine or its network, as far as its text shows."""
    host = (urlsplit(address).hostname or "").rstrip(".")
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or any(host == name or host.endswith(f".{name}") for name in _LOCAL_NAMES)
