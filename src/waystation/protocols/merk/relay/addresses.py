"""One address of another node, and the guard for addresses that others name.

``mesh`` keeps them, dials them and forgets them.

Spec: specs/merk.md 8, 10.6; MERK-DIAL.
"""

import re
from typing import Final

from waystation.core.addresses import is_ip, is_public
from waystation.core.instant import Instant
from waystation.protocols.merk.messages import ADDRESS_BYTES_MAX

__all__ = ["Address", "address_fault"]

_PORT_MAX: Final = 65_535
_URL: Final = re.compile(
    r"wss?://(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[0-9A-Za-z._-]+))(?::(?P<port>[0-9]{1,5}))?(?:/[!\"$-~]*)?"
)
"""A WebSocket address without credentials or fragment; a name of letters, digits, dots, hyphens and underscores."""


class Address:
    """One address that we dial."""

    __slots__ = ("busy", "claimed", "configured", "due", "failures", "key", "proved", "source", "stored", "url")

    def __init__(
        self,
        url: str,
        key: bytes | None,
        due: Instant,
        *,
        configured: bool = False,
        stored: bool = False,
        source: bytes | None = None,
    ) -> None:
        """Note an address.

        Args:
            url: WebSocket URL.
            key: Key of the node there, as somebody says or as it has proved.
            due: When it may be dialled.
            configured: Whether the operator named it.
            stored: Whether a node has proved itself there, in this life or the last.
            source: Key of the peer that named it.
        """
        self.url = url
        self.key = key
        """Key of the node there, as claimed or as proved."""
        self.proved = key if stored else None
        """Key that was proved there last, in this life or the last."""
        self.due = due
        self.configured = configured
        self.stored = stored
        """Whether a node has proved itself there, in this life or the last."""
        self.source = source
        """Key of the peer that named it."""
        self.claimed = False
        """Whether the node there, which is linked, has named it itself: it is dialled once to see that it is true."""
        self.failures = 0
        self.busy = False
        """Whether a dial or a link is under way."""


def address_fault(url: str, *, allow_private: bool) -> str:
    """Return why an address that an unknown sender named must not be dialled, empty when it may be tried.

    Names are judged again once they are resolved; this refuses what can be seen without asking anybody.
    """
    match = _URL.fullmatch(url) if len(url) <= ADDRESS_BYTES_MAX else None
    if match is None or not 0 < int(match["port"] or 1) <= _PORT_MAX:
        return "no address"
    host = (match["v6"] or match["host"]).lower().rstrip(".")
    if allow_private:
        return ""
    if host == "localhost" or host.endswith((".localhost", ".local")) or (is_ip(host) and not is_public(host)):
        return "private"
    return ""
