"""Gathers the changes of a device between two commits.

The repository writes into it, and ``BspDevice.changes`` takes it out. All changes between two commits are in one
``Unsaved`` and are written together. It also keeps what must wait for the commit: acknowledgements, events, and the
first copies of new messages.
"""

from collections.abc import Mapping
from typing import Final

from waystation.core.records import Record
from waystation.protocols.bsp.device.events import DeviceEvent
from waystation.protocols.bsp.device.flags import Row, Sharing
from waystation.protocols.bsp.device.ledger import CHUNK_MESSAGES
from waystation.protocols.bsp.device.member import Membership
from waystation.protocols.bsp.graph.order import Vertex

__all__ = ["MESSAGE_BYTES", "Unsaved", "Writing"]

MESSAGE_BYTES: Final = 1_024
"""Bytes that a message takes here besides its body: its row, flags and events."""


class Unsaved:
    """One group of changes, before and while it is written."""

    __slots__ = (
        "acks",
        "bodies",
        "body_bytes",
        "chunks",
        "events",
        "fresh",
        "must",
        "records",
        "removals",
        "rows",
        "vertices",
    )

    def __init__(self) -> None:
        self.vertices: dict[bytes, tuple[Membership, Vertex]] = {}
        """Messages whose row changes, by identifier."""
        self.bodies: dict[bytes, bytes] = {}
        """Bodies of those that are new."""
        self.body_bytes = 0
        """Of new messages, with ``MESSAGE_BYTES`` for each."""
        self.fresh: set[bytes] = set()
        """Messages that are not on disk at all yet."""
        self.chunks: dict[tuple[Sharing, int], None] = {}
        """Flags that changed: sharing and number of the chunk."""
        self.removals: dict[Record, None] = {}
        """Removals; written first, because a group or peer may have come back since."""
        self.records: list[Record] = []
        """Rows of others; written last."""
        self.acks: list[tuple[Sharing, Vertex]] = []
        self.rows: dict[Row, None] = {}
        self.events: list[DeviceEvent] = []
        self.must = False
        """Whether a peer or the owner waits for this commit; changes that only save work after a restart need none."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write, and nothing that waits for it."""
        entries = (self.vertices, self.chunks, self.removals, self.records, self.acks, self.rows, self.events)
        return not any(entries)

    def note_message(self, member: Membership, vertex: Vertex) -> None:
        """Note that the row of a message changes."""
        self.vertices[vertex.message_id] = (member, vertex)
        # A peer waits for the acknowledgement, or the owner for the event.
        self.must = True

    def note_body(self, message_id: bytes, body: bytes) -> None:
        """Note a new body."""
        self.bodies[message_id] = body
        # Spec 9: 1 KiB for each message besides its body.
        self.body_bytes += len(body) + MESSAGE_BYTES

    def note_flag(self, sharing: Sharing, seq: int) -> None:
        """Note that the flag of a message towards a peer changed."""
        # BSP-ROWS: the flags of 256 messages are one row, so they change together.
        self.chunks[sharing, seq // CHUNK_MESSAGES] = None

    def follow(self, refused: "Unsaved") -> None:
        """Take over what waits for changes that the store refused, and that are written together with these."""
        # BSP-REFUSED: the older changes come first, and newer ones of the same key win.
        self.bodies = {**refused.bodies, **self.bodies}
        self.body_bytes += refused.body_bytes
        self.fresh |= refused.fresh
        self.removals = {**refused.removals, **self.removals}
        # In the order of arrival, as if the refused commit had only taken longer.
        self.acks = [*refused.acks, *self.acks]
        self.rows = {**refused.rows, **self.rows}
        self.events = [*refused.events, *self.events]

    def forget(self, member: Membership) -> None:
        """Drop the changes of a group that we leave."""
        # Leaving removes the rows on disk; a write behind that would bring one back.
        for message_id in [each for each, (owner, _) in self.vertices.items() if owner is member]:
            del self.vertices[message_id]
            self.bodies.pop(message_id, None)
            self.fresh.discard(message_id)

    def forget_sharing(self, sharing: Sharing) -> None:
        """Drop the changes of a group and a peer that share it no more."""
        # Else a flag written later would speak of a peer that no longer shares the group.
        self.chunks = {key: None for key in self.chunks if key[0] is not sharing}
        self.acks = [ack for ack in self.acks if ack[0] is not sharing]


class Writing:
    """What waits for a commit under way, or for the one after a commit that the store refused (BSP-REFUSED).

    A device undoes nothing: what was sent to nobody is as if its commit took longer.
    """

    __slots__ = ("_is_refused", "_unsaved")

    def __init__(self) -> None:
        self._unsaved: Unsaved | None = None
        self._is_refused = False

    @property
    def bodies(self) -> Mapping[bytes, bytes]:
        """The new bodies, by identifier."""
        return self._unsaved.bodies if self._unsaved is not None else {}

    @property
    def body_bytes(self) -> int:
        """Bytes of new bodies."""
        return self._unsaved.body_bytes if self._unsaved is not None else 0

    @property
    def removals(self) -> Mapping[Record, None]:
        """The removals."""
        return self._unsaved.removals if self._unsaved is not None else {}

    def with_message(self, message_id: bytes) -> Unsaved | None:
        """Return what is written, if this message reaches the disk with it."""
        return self._unsaved if self._unsaved is not None and message_id in self._unsaved.fresh else None

    def begin(self, unsaved: Unsaved) -> None:
        """Begin to write these changes, and what was refused with them."""
        # BSP-REFUSED: what the store refused goes with the next changes, in one commit.
        assert self._unsaved is None or self._is_refused, "one commit at a time"
        if self._unsaved is not None:
            unsaved.follow(self._unsaved)
        self._unsaved, self._is_refused = unsaved, False

    def refuse(self) -> None:
        """Note that the store did not take what was to be written."""
        assert self._unsaved is not None, "nothing was to be committed"
        self._is_refused = True

    def end(self) -> Unsaved:
        """Return what was written, and forget it."""
        unsaved, self._unsaved = self._unsaved, None
        assert unsaved is not None, "nothing was to be committed"
        return unsaved
