"""Stores the parts of incomplete LPRP messages; a part is confirmed to its host only once it is stored here.

``Mail`` calls it inside its transaction. A message is complete when all parts with the same sender, id and part count
are stored. Parts with another count belong to another message, so a false count harms its sender alone.

A message is dropped when no part has arrived for ``PART_LIFE_MS``. A sender with more than ``PARTS_OF_SENDER_MAX``
parts loses its own stalest message (the longest without a new part), never one of another sender. At ``PARTS_MAX``
parts in all, the stalest message is evicted if it is at least ``SETTLED_MS`` stale. Otherwise the new part is rejected,
and the host sends it again later.
"""

from typing import Final, NamedTuple

from waystation.protocols.lprp.payload.fragments import MESSAGE_BYTES_MAX, Fragment
from waystation.sdk.lprp.state import LprpState

__all__ = ["PARTS_MAX", "PARTS_OF_SENDER_MAX", "PART_LIFE_MS", "SETTLED_MS", "Parts", "WholeMessage"]

PART_LIFE_MS: Final = (
    604_800_000  # a week: longer than a lease and the 2**25 ms for which a host keeps mail behind it (LPRP-D19)
)
PARTS_OF_SENDER_MAX: Final = 16_384  # 7 MB, 73 of the longest messages; one program sends 8 to somebody at once
PARTS_MAX: Final = 65_536  # 30 MB
SETTLED_MS: Final = 600_000
"""After so long without another part nothing of a message is on its way: its sender gives up within a few minutes, and
a host that has the others hands them over as soon as we are there."""


class WholeMessage(NamedTuple):
    """A message whose parts are all here."""

    sender: bytes
    message_id: bytes
    touched_ms: int
    """When its last part came, Unix milliseconds."""
    body: bytes


class Parts:
    """The incomplete messages of one folder; whatever changes them runs inside a transaction of the state.

    A transaction that fails leaves the counts here wrong; ``count_again`` before anything is put afterwards.
    """

    def __init__(self, state: LprpState, *, life_ms: int) -> None:
        """Open them.

        Args:
            state: The folder.
            life_ms: How old a packet may be, at most, and still be taken: parts live as long, and a week at least.
        """
        self._state = state
        self._life_ms = max(life_ms, PART_LIFE_MS)
        self._parts_of: dict[bytes, int] = {}
        self.parts_count = 0
        """How many parts wait for others."""
        self.count_again()

    def count_again(self) -> None:
        """Count what is on the disk."""
        rows = self._state.all("SELECT sender, sum(parts_here) FROM incomplete GROUP BY sender")
        self._parts_of = {row[0]: int(row[1]) for row in rows}
        self.parts_count = sum(self._parts_of.values())

    # Inside a transaction of the state

    def make_room(self, sender: bytes, part: Fragment) -> bool:
        """Return whether a part may be put; what must go for it goes, but nothing of its own message."""
        others = "AND NOT (sender = ? AND message_id = ? AND parts_count = ?) ORDER BY touched_ms, position LIMIT 1"
        own = (sender, part.message_id, part.count)
        if self._parts_of.get(sender, 0) >= PARTS_OF_SENDER_MAX:
            self._give_up(f"WHERE sender = ? {others}", sender, *own)
        if self.parts_count < PARTS_MAX:
            return True
        self._give_up(f"WHERE touched_ms <= ? {others}", self._state.now_ms() - SETTLED_MS, *own)
        return self.parts_count < PARTS_MAX

    def put(self, sender: bytes, part: Fragment) -> bytes | None:
        """Keep a part, and return the message if this makes it whole; whoever keeps that calls ``forget``.

        A part that is here already, or that makes its message longer than messages are, changes nothing.
        """
        position, parts_here, body_bytes = self._find(sender, part)
        if body_bytes + len(part.body) > MESSAGE_BYTES_MAX:
            return None
        run = self._state.run
        if not run("INSERT OR IGNORE INTO parts_here VALUES (?, ?, ?)", position, part.index, part.body):
            return None
        run(
            "UPDATE incomplete SET parts_here = ?, body_bytes = ?, touched_ms = ? WHERE position = ?",
            parts_here + 1, body_bytes + len(part.body), self._state.now_ms(), position,
        )  # fmt: skip
        self._count(sender, 1)
        return self._join(position) if parts_here + 1 == part.count else None

    def forget(self, sender: bytes, message_id: bytes) -> None:
        """Drop all parts of a message: it is whole."""
        self._give_up("WHERE sender = ? AND message_id = ?", sender, message_id)

    def whole(self) -> list[WholeMessage]:
        """Return the messages whose parts are all here; whoever keeps one calls ``forget``."""
        rows = self._state.all(
            "SELECT sender, message_id, touched_ms, position FROM incomplete WHERE parts_here = parts_count"
            " ORDER BY position"
        )
        return [WholeMessage(row[0], row[1], row[2], self._join(row[3])) for row in rows]

    def tidy(self) -> None:
        """Give up the messages that no part has come of for so long that none will."""
        self._give_up("WHERE touched_ms < ?", self._state.now_ms() - self._life_ms)

    def _find(self, sender: bytes, part: Fragment) -> tuple[int, int, int]:
        """Return position, parts and bytes of a part's message, begun if it is new."""
        key = (sender, part.message_id, part.count)
        self._state.run("INSERT OR IGNORE INTO incomplete VALUES (NULL, ?, ?, ?, 0, 0, ?)", *key, self._state.now_ms())
        row = self._state.first(
            "SELECT position, parts_here, body_bytes FROM incomplete"
            " WHERE sender = ? AND message_id = ? AND parts_count = ?",
            *key,
        )
        return int(row[0]), int(row[1]), int(row[2])

    def _join(self, position: int) -> bytes:
        rows = self._state.all("SELECT body FROM parts_here WHERE message = ? ORDER BY part_index", position)
        return b"".join(row[0] for row in rows)

    def _give_up(self, which: str, *values: object) -> None:
        for position, sender, parts_here in self._state.all(
            f"SELECT position, sender, parts_here FROM incomplete {which}",  # noqa: S608 - clauses of this file
            *values,
        ):
            self._state.run("DELETE FROM parts_here WHERE message = ?", position)
            self._state.run("DELETE FROM incomplete WHERE position = ?", position)
            self._count(sender, -parts_here)

    def _count(self, sender: bytes, difference: int) -> None:
        self.parts_count += difference
        left = self._parts_of.get(sender, 0) + difference
        if left:
            self._parts_of[sender] = left
        else:
            self._parts_of.pop(sender, None)
