"""Checks the values in ``[bsp]`` that a declaration cannot express: valid keys, groups and addresses.

``server.bsp.tables`` and the host run them while a configuration is loaded.
"""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.profile import PROFILES
from waystation.protocols.bsp.settings import BspSettings, read_groups, read_owners, read_peers

__all__ = ["checks_of", "names_itself"]

_SHA256: Final = re.compile("[0-9A-Fa-f]{64}")
_SHOWN_CHARS: Final = 80


def checks_of(bsp: BspSettings) -> dict[str, Callable[[], object]]:
    """Return what reads values further, by key; each raises LocalError with a text that begins with its key."""
    return {
        "groups": lambda: _check_groups(bsp),
        "peers": lambda: _check_peers(bsp),
        "owners": lambda: read_owners(bsp.owners),
        "plain_peer": lambda: _check_plain_peer(bsp.plain_peer),
        "terminator_certificate": lambda: _check_certificate_hash(bsp.terminator_certificate),
    }


def names_itself(bsp: BspSettings, own_key: PublicKey) -> str | None:
    """Return the key of checked settings that should name another device and has this one's; None for none."""
    others = {"plain_peer": [bsp.plain_peer] if bsp.plain_peer else [], "owners": bsp.owners}
    return next((name for name, keys in others.items() if own_key in map(PublicKey.parse, keys)), None)


def _check_groups(bsp: BspSettings) -> None:
    """Check that the profile allows each group."""
    for number, group in enumerate(read_groups(bsp.groups), 1):
        try:
            PROFILES[bsp.profile].group(group.client_id, group.descriptor, group.format)
        except LocalError as error:
            raise LocalError(f"groups: group {group.name or number}: {error}") from error


def _check_peers(bsp: BspSettings) -> None:
    """Check that each address can be dialled."""
    for peer in read_peers(bsp.peers):
        if peer.url and not _is_address(peer.url):
            expected = "bsp+tls://host:port or bsp+wss://host:port/path"
            raise LocalError(f"peers: url = {peer.url[:_SHOWN_CHARS]!r} is no address; allowed: {expected}")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    has_more = parts.username is not None or parts.fragment or (parts.scheme == "bsp+tls" and parts.path.strip("/"))
    return bool(parts.hostname) and not has_more and url.isascii() and url.isprintable() and " " not in url


def _check_plain_peer(text: str) -> None:
    try:
        if text:
            PublicKey.parse(text)
    except LocalError as error:
        raise LocalError(f"plain_peer: {error}") from error


def _check_certificate_hash(text: str) -> None:
    if text and not _SHA256.fullmatch(text):
        shown = text[:_SHOWN_CHARS]
        raise LocalError(f"terminator_certificate = {shown!r} is no SHA-256; allowed: 64 hexadecimal digits")
