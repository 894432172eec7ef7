"""Many lazy alarms behind one deadline.

Activity on a connection moves its timers all the time, mostly later. An alarm is therefore a promise to look
again: it may ring too early, never too late, and moving it later costs nothing.
"""

import heapq
from collections.abc import Iterator

from waystation.core.instant import Instant

__all__ = ["Alarms"]


class Alarms:
    """At most one standing alarm per key; keys are integers.

    Cost: ``set_by`` and ``due`` O(log keys) when something is pushed or rings, O(1) otherwise.
    """

    __slots__ = ("_heap", "_standing")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int]] = []
        self._standing: dict[int, Instant] = {}

    def __len__(self) -> int:
        """Return how many keys have an alarm."""
        return len(self._standing)

    def set_by(self, key: int, at: Instant) -> None:
        """Make sure that ``key`` rings at ``at`` or earlier."""
        standing = self._standing.get(key)
        if standing is None or at < standing:
            self._standing[key] = at
            heapq.heappush(self._heap, (at, key))

    def cancel(self, key: int) -> None:
        """Forget the alarm of ``key``, if it has one."""
        self._standing.pop(key, None)

    def due(self, now: Instant) -> Iterator[int]:
        """Yield the keys whose alarm has come, each forgotten as it is yielded; the caller sets the next one."""
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._standing.get(key) == at:
                del self._standing[key]
                yield key

    def next_at(self) -> Instant | None:
        """Return when the next alarm rings, or None."""
        while self._heap and self._standing.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
