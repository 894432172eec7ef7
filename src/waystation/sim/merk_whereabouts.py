"""Who is where in a MERK world: the dumb model that says which frames must be delivered.

It knows nothing of relays. A strand is a connection, of a client to a node or between two nodes, with the instants at
which it was made, last disturbed, and left; every question is answered by looking at all of them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim.link import Stream
from waystation.sim.schedule import Schedule

__all__ = ["CACHED_US", "Strand", "Whereabouts"]

GRACE_US: Final = 3 * MICROSECONDS_PER_SECOND  # until the other side of an undisturbed connection knows that it ended
CACHED_US: Final = 75 * MICROSECONDS_PER_SECOND  # a location is kept for 60 s (specs/merk.md 5)
KEPT_US: Final = 2 * CACHED_US


class Strand:
    """One connection."""

    __slots__ = ("_over_at", "_stream", "calm_since", "is_honest", "is_thief", "node", "other", "up_at")

    def __init__(
        self, node: int, other: bytes | int, stream: Stream, now: Instant, *, is_honest: bool, is_thief: bool = False
    ) -> None:
        """Note a connection that is being made.

        Args:
            node: The node, or the one that dials of two.
            other: Key of the client, or number of the other node.
            stream: The connection itself.
            now: Monotonic time.
            is_honest: Whether both its ends keep to the protocol.
            is_thief: Whether one end says that it has clients that it has not.
        """
        self.node = node
        self.other = other
        self._stream = stream
        self.up_at: Instant | None = None
        """When it was ready for use, None before."""
        self.calm_since = now
        """Nothing has disturbed it since."""
        self._over_at: Instant | None = None
        self.is_honest = is_honest
        self.is_thief = is_thief

    @property
    def is_open(self) -> bool:
        """Whether it stands on both sides."""
        stream = self._stream
        return stream.client.is_open and stream.node.is_open and self._over_at is None and not stream.is_cut

    def up(self, now: Instant) -> None:
        """The connection is ready for use."""
        self.up_at = now

    def disturb(self, until: Instant) -> None:
        """Something holds it up until then."""
        self.calm_since = max(self.calm_since, until)

    def over(self, at: Instant) -> None:
        """It ends: one side knows it at ``at``, the other soon after that."""
        if self._over_at is None:
            self._over_at = at

    def existed(self, since: Instant) -> bool:
        """Return whether some node may have believed in it at ``since`` or later."""
        return self._over_at is None or max(self._over_at, self.calm_since) + GRACE_US > since

    def stood(self, since: Instant) -> bool:
        """Return whether it was ready at ``since``, stands now, and nothing happened to it in between."""
        return self.is_honest and self.is_open and self.up_at is not None and max(self.up_at, self.calm_since) <= since


class Whereabouts:
    """All connections of one world."""

    def __init__(self, schedule: Schedule) -> None:
        """Begin with none."""
        self._schedule = schedule
        self._lines: dict[bytes, list[Strand]] = {}
        self._trunks: dict[tuple[int, int], list[Strand]] = {}

    def line(self, key: bytes, node: int, stream: Stream, *, is_honest: bool = True) -> Strand:
        """Note a connection of the client ``key``."""
        strand = Strand(node, key, stream, self._schedule.now, is_honest=is_honest)
        self._lines[key] = [*self._recent(self._lines.get(key, ())), strand]
        return strand

    def trunk(self, node: int, other: int, stream: Stream, *, is_honest: bool = True, is_thief: bool = False) -> Strand:
        """Note a connection that ``node`` dials; it counts as ready at once, as the margins of questions are long."""
        strand = Strand(node, other, stream, self._schedule.now, is_honest=is_honest, is_thief=is_thief)
        strand.up(self._schedule.now)
        pair = _pair(node, other)
        self._trunks[pair] = [*self._recent(self._trunks.get(pair, ())), strand]
        return strand

    def node_down(self, node: int) -> None:
        """A node is gone: all its connections end with it."""
        lines = (strand for strands in self._lines.values() for strand in strands if strand.node == node)
        for strand in (*self._trunks_of(node), *lines):
            strand.over(self._schedule.now)

    def is_known(self, key: bytes) -> bool:
        """Return whether a client with this key was ever here."""
        return key in self._lines

    def was_at(self, key: bytes, node: int) -> bool:
        """Return whether a client was connected to a node in the last minutes."""
        return any(strand.node == node for strand in self._lines.get(key, ()))

    def owes(self, node: int, target: bytes, since: Instant) -> bool:
        """Return whether a frame that ``node`` had between ``since`` and now must have reached ``target``.

        The target has been in the same places all the time, one of them is here or linked with here, and no half-dead
        connection, of it, to a node where it was, or to one that says it has everybody, can have swallowed the frame.
        """
        present = list(self._of(target, since))
        if not present or not all(strand.stood(since) for strand in present):
            return False
        if not any(self.is_linked(node, strand.node, since) for strand in present):
            return False
        if any(strand.is_thief and strand.existed(since) and not strand.is_open for strand in self._trunks_of(node)):
            return False
        cached = self._of(target, Instant(since - CACHED_US))
        return all(self._is_clear(node, strand.node, since) for strand in cached if strand.node != node)

    def is_shaky(self, target: bytes, since: Instant) -> bool:
        """Return whether a connection of ``target`` that may have been here since then was disturbed or has ended."""
        return any(not strand.stood(max(strand.up_at or since, since)) for strand in self._of(target, since))

    def is_silence_likely(self, node: int, since: Instant) -> bool:
        """Return whether a link of ``node`` that existed since then is new, disturbed, over, or with a hostile node."""
        return any(strand.existed(since) and not strand.stood(since) for strand in self._trunks_of(node))

    def is_linked(self, one: int, other: int, since: Instant) -> bool:
        """Return whether two nodes are the same, or all connections between them have stood, and there is one."""
        if one == other:
            return True
        links = self._between(one, other, since)
        return bool(links) and all(strand.stood(since) for strand in links)

    def _recent(self, strands: Sequence[Strand]) -> list[Strand]:
        """Leave out what no question will ask for any more."""
        horizon = Instant(self._schedule.now - KEPT_US)
        return [strand for strand in strands if strand.existed(horizon)]

    def _of(self, key: bytes, since: Instant) -> Iterator[Strand]:
        return (strand for strand in self._lines.get(key, ()) if strand.existed(since))

    def _trunks_of(self, node: int) -> list[Strand]:
        return [strand for pair, strands in self._trunks.items() if node in pair for strand in strands]

    def _between(self, one: int, other: int, since: Instant) -> list[Strand]:
        return [strand for strand in self._trunks.get(_pair(one, other), ()) if strand.existed(since)]

    def _is_clear(self, one: int, other: int, since: Instant) -> bool:
        """Return whether nothing between two nodes can swallow a frame: they are linked well, or not at all."""
        return all(strand.stood(since) for strand in self._between(one, other, since))


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)
