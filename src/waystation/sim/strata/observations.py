"""Observations of a simulated Strata network: one named tuple per kind, and the only input of its invariants.

Relays' hosts, publishers and readers emit them. The invariants see nothing else, so a few tuples are enough to test
one.
"""

from typing import Final, NamedTuple

from waystation.core.packets import PacketRow
from waystation.protocols.strata.messages import Filters

__all__ = [
    "NOT_STORED",
    "Asked",
    "Blamed",
    "CaughtUp",
    "EventSeen",
    "Made",
    "PageEnded",
    "Published",
    "Refused",
    "Stored",
    "Taken",
]


class Made(NamedTuple):
    """Somebody signed a packet that every relay must take."""

    packet_id: bytes
    author_id: str
    content_type: str
    timestamp: int
    expires_at: int | None
    canonical: bytes


NOT_STORED: Final = "not_stored"
"""Detail of a refusal by a relay whose disk takes nothing."""


class Published(NamedTuple):
    """A publisher got OK."""

    relay: int
    packet_id: bytes
    duplicate: bool
    is_stored: bool
    """Whether the packet was in the relay's store at this instant."""


class Refused(NamedTuple):
    """A publisher of a good packet got ERROR, and not for a limit."""

    relay: int
    packet_id: bytes
    code: str
    detail: str
    rotated: bool
    """Whether the author has taken another key since."""
    wall_s: int


class Asked(NamedTuple):
    """A reader put SUBSCRIBE on its way."""

    reader: int
    relay: int
    line: int
    """Number of its connection; never used twice."""
    cursor: str | None


class EventSeen(NamedTuple):
    """An EVENT reached a reader, whatever its client makes of it."""

    reader: int
    relay: int
    line: int
    packet_id: bytes
    received_at: int
    cursor: str | None
    order_at: int
    """As in the relay's store; -1 when it is not there."""
    seq: int
    is_signed: bool
    """Whether the packet is, byte for byte, one that somebody made."""
    late_s: int
    """Seconds since it expired, negative before; 0 for one that never does."""


class PageEnded(NamedTuple):
    """An EOSE reached a reader."""

    reader: int
    line: int
    cursor: str
    has_more: bool


class Taken(NamedTuple):
    """A reader's client handed a packet on."""

    reader: int
    packet_id: bytes
    verified: bool


class Blamed(NamedTuple):
    """A reader's client found its relay, which is honest, to break the rules."""

    reader: int
    kind: str
    detail: str


class Stored(NamedTuple):
    """All that a relay has stored, when a life of it begins and at the end."""

    relay: int
    packets: tuple[PacketRow, ...]
    final: bool

    def __str__(self) -> str:
        """Return a line for the trace."""
        return f"Stored {self.relay} {len(self.packets)} {self.final}"


class CaughtUp(NamedTuple):
    """A reader got the end of the history that it asked for."""

    reader: int
    relay: int
    filters: Filters
    floor: int
    """Nothing with a ``seq`` up to this was asked for."""
    promised: int
    """How many OKs of this relay had been given when the reader asked; all of them count."""
    got: frozenset[bytes]
    """Everything its clients have handed on since it began."""
    final: bool
    """Whether the world has come to rest: what the reader has is then all that the relay has."""

    def __str__(self) -> str:
        """Return a line for the trace."""
        return f"CaughtUp {self.reader} {self.relay} {self.floor} {self.promised} {len(self.got)} {self.final}"
