"""Timer queue: at most one pending alarm per integer key, and the earliest deadline of all of them.

A relay or client keeps one for its connections or exchanges: ``set_by`` takes a key and an ``Instant``, ``due`` gives
the keys whose time has come, ``next_at`` is what ``deadline`` returns. Connection activity mostly moves timers to a
later time. An alarm may fire too early but never too late. Moving an alarm later therefore costs nothing: its owner
checks again when it fires.
"""

import heapq
from collections.abc import Iterator

from waystation.core.instant import Instant

__all__ = ["Alarms"]


class Alarms:
    """At most one pending alarm per key; keys are integers.

    Cost: ``set_by`` and ``due`` O(log keys) when something is pushed or rings, O(1) otherwise.
    """

    __slots__ = ("_heap", "_pending")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int]] = []
        self._pending: dict[int, Instant] = {}

    def __len__(self) -> int:
        """Return how many keys have an alarm."""
        return len(self._pending)

    def set_by(self, key: int, at: Instant) -> None:
        """Make sure that ``key`` rings at ``at`` or earlier."""
        pending = self._pending.get(key)
        if pending is None or at < pending:
            self._pending[key] = at
            heapq.heappush(self._heap, (at, key))

    def cancel(self, key: int) -> None:
        """Forget the alarm of ``key``, if it has one."""
        self._pending.pop(key, None)

    def due(self, now: Instant) -> Iterator[int]:
        """Yield the keys whose alarm has come, each forgotten as it is yielded; the caller sets the next one."""
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._pending.get(key) == at:
                del self._pending[key]
                yield key

    def next_at(self) -> Instant | None:
        """Return when the next alarm rings, or None."""
        while self._heap and self._pending.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
