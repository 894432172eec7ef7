"""The packet table of a store as an interface: one row for each signed Strata packet, queries and changes.

The Strata relay puts changes into ``Commit`` and reads through ``PacketReader``; ``store`` implements it in memory and
in SQLite. ``seq`` is the order in which this node stored packets. History is read in the order of ``(order_at, seq)``,
which never changes. ``received_at`` is sent to readers and may be lowered by an earlier witness. Times are Unix
seconds, UTC.
Spec: RFC-0004 4; specs/strata.md 7, 13.1.
"""

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

__all__ = [
    "SNAPSHOT_TYPE",
    "SNAPSHOT_WORD",
    "DropPackets",
    "Found",
    "HidePackets",
    "LowerWitness",
    "PacketChange",
    "PacketEntry",
    "PacketPage",
    "PacketQuery",
    "PacketReader",
    "PacketRow",
    "PutPacket",
    "is_snapshot",
]


class PacketRow(NamedTuple):
    """One packet and everything the node knows about it."""

    seq: int
    """1 or more; strictly increasing in the order of commits."""
    order_at: int
    """``received_at`` at first storage; frozen (D28)."""
    received_at: int
    """Earliest time at which a credible witness saw it."""
    stored_at: int
    """When this node took it in, by its own clock; retention and budgets count from here."""
    packet_id: bytes
    """32 bytes."""
    author_id: str
    content_type: str
    timestamp: int
    """The author's clock."""
    expires_at: int | None
    """Last second at which it may be served, None for ever."""
    canonical: bytes
    """The signed packet in canonical JSON."""
    downgrade: bytes
    """Canonical JSON of the provenance downgrade, empty for none."""
    source: str
    """DID of the relay that delivered it, empty for a client."""
    mark: bytes
    """Up to 32 bytes that no other packet may share (an attestation's or a metric's identity), empty for none."""
    kept: bool
    """Never dropped by retention (key events). A store may return 0 and 1, which equal False and True."""


class PutPacket(NamedTuple):
    """Store a packet whose id and mark are not known yet; else nothing changes and ``seq`` is not used.

    The mark of a packet that was dropped is free again, its id is not until it is forgotten.
    """

    row: PacketRow


class LowerWitness(NamedTuple):
    """Lower ``received_at`` of a packet if it is later than this; its place in history stays."""

    packet_id: bytes
    received_at: int


class HidePackets(NamedTuple):
    """Stop or go on serving packets without forgetting them."""

    packet_ids: tuple[bytes, ...]
    hidden: bool


class DropPackets(NamedTuple):
    """Remove packets and remember only that they were known; ids that are not stored are ignored.

    An id is forgotten when a packet is stored whose ``stored_at`` is above ``remember_until``.
    """

    packet_ids: tuple[bytes, ...]
    remember_until: int


PacketChange = PutPacket | LowerWitness | HidePackets | DropPackets
"""One durable change of the packet table."""


class PacketQuery(NamedTuple):
    """Which packets, from where on, and how many at most. Hidden packets never match."""

    authors: tuple[str, ...] = ()
    """Empty for all."""
    types: tuple[str, ...] = ()
    """Empty for all."""
    since: int | None = None
    """``timestamp >= since``."""
    until: int | None = None
    """``timestamp <= until``."""
    alive_at: int | None = None
    """Leave out what expired before this second; None takes everything."""
    by_seq: bool = False
    """Order by ``seq`` alone instead of ``(order_at, seq)``."""
    descending: bool = False
    """Newest first; not with ``by_seq``."""
    start: tuple[int, int] | None = None
    """Exclusive position ``(order_at, seq)``, or ``(0, seq)`` with ``by_seq``; None begins at the edge."""
    seq_max: int | None = None
    """Only packets with ``seq <= seq_max``."""
    rows_max: int = 100
    """1 or more."""
    bytes_max: int = 1_048_576
    """Stop after the packet that reaches this many canonical bytes; at least one is returned."""
    snapshots: bool = False
    """Only what ``is_snapshot`` finds; not with authors, types or ``by_seq``."""
    ids: tuple[bytes, ...] = ()
    """Packet ids of 32 bytes, at most 512; empty for all."""


SNAPSHOT_TYPE: Final = "CONFIG"
SNAPSHOT_WORD: Final = b'"BOOTSTRAP_SNAPSHOT"'


def is_snapshot(content_type: str, canonical: bytes) -> bool:
    """Return whether a packet may be a bootstrap snapshot: a CONFIG that holds the word; stores have an index of them.

    A quote inside a text would be escaped, so the word is a whole text of the packet, somewhere.
    """
    return content_type == SNAPSHOT_TYPE and SNAPSHOT_WORD in canonical


class PacketEntry(NamedTuple):
    """As much of a row as is needed to give a packet to a reader; reading less is what makes history fast."""

    seq: int
    order_at: int
    received_at: int
    canonical: bytes
    downgrade: bytes


Found = TypeVar("Found", PacketRow, PacketEntry)


class PacketPage(NamedTuple, Generic[Found]):
    """What a query found, in its order."""

    rows: Sequence[Found]
    position: tuple[int, int] | None
    """Where the next page starts; None when nothing can follow now. A page may be empty and still go on: one call looks
    at a bounded number of rows."""


class PacketReader(Protocol):
    """Reads of the packet table; all see what was committed, and each takes bounded time."""

    def page(self, query: PacketQuery) -> PacketPage[PacketRow]:
        """Return the next packets of a query."""

    def entries(self, query: PacketQuery) -> PacketPage[PacketEntry]:
        """Return the same page with less of each packet, sooner."""

    def packet(self, packet_id: bytes) -> PacketRow | None:
        """Return the stored packet, hidden or not, or None."""

    def hidden(self, packet_id: bytes) -> bool:
        """Return whether the packet is stored but hidden."""

    def known(self, packet_id: bytes) -> bool:
        """Return whether the packet is stored, or was within the memory for dropped ones."""

    def marked(self, mark: bytes) -> bytes | None:
        """Return the id of the packet that bears ``mark``, or None."""

    def newest_seq(self) -> int:
        """Return the greatest ``seq`` ever committed, 0 for none."""

    def epoch(self) -> bytes:
        """Return 8 bytes that name this store; a new or restored store has new ones."""

    def bytes_kept(self) -> int:
        """Return the sum of canonical bytes stored."""

    def bytes_held(self) -> int:
        """Return the sum of canonical bytes of packets that are ``kept``; they are part of ``bytes_kept``."""

    def has_droppable(self, author_id: str) -> bool:
        """Return whether an author has a packet that is not ``kept``. Cost: O(its packets that are)."""

    def droppable(self, stored_before: int, expired_before: int, rows_max: int) -> Sequence[tuple[bytes, int]]:
        """Return id and canonical bytes of packets retention may drop.

        Those not ``kept`` that expired before ``expired_before``, in the order of ``(expires_at, seq)``; after them
        those stored before ``stored_before``, in the order of ``(stored_at, seq)``.
        """
