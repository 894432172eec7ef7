"""The virtual clock of a simulation and its queue of events.

``sim.run`` runs it; worlds, links and actors plan their events with ``at`` and ``after``. The clock does not advance
while an event runs; it then jumps to the next event, so idle time is free. Events at the same instant run in the order
in which they were scheduled.
"""

import heapq
from collections.abc import Callable
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.instant import Instant

__all__ = ["LivelockError", "Schedule"]

Action = Callable[[], None]

EVENTS_PER_INSTANT_MAX: Final = 100_000  # ours: no burst of a plan comes near; only a loop that feeds itself does


class LivelockError(LocalError):
    """Events keep planning events for the instant they happen in, so that time cannot go on.

    Attributes:
        at: The instant at which it stands.
    """

    def __init__(self, at: Instant) -> None:
        super().__init__(f"more than {EVENTS_PER_INSTANT_MAX} events at instant {at}")
        self.at = at


class Schedule:
    """Events by time, then by the order in which they were planned.

    Cost: planning and performing O(log events), cancelling O(1).
    """

    __slots__ = ("_actions", "_crowd", "_planned", "_queue", "now", "performed")

    def __init__(self) -> None:
        self._queue: list[tuple[Instant, int]] = []
        self._actions: dict[int, Action] = {}
        self._planned = 0
        self._crowd = 0
        self.now = Instant(0)
        """The current instant, in microseconds."""
        self.performed = 0
        """Events that have happened."""

    def __len__(self) -> int:
        """Return how many events are planned."""
        return len(self._actions)

    def at(self, when: Instant, action: Action) -> int:
        """Plan ``action`` and return its number for ``cancel``; what should have happened already happens next."""
        number = self._planned
        self._planned = number + 1
        self._actions[number] = action
        heapq.heappush(self._queue, (when if when > self.now else self.now, number))
        return number

    def after(self, delay_us: int, action: Action) -> int:
        """Plan ``action`` in ``delay_us`` microseconds, 0 or more, and return its number."""
        return self.at(Instant(self.now + delay_us), action)

    def cancel(self, number: int) -> None:
        """Forget an event; one that has happened or was cancelled before is fine."""
        self._actions.pop(number, None)

    def run(self, until: Instant) -> None:
        """Let everything happen up to and with ``until``, and stand there.

        Raises:
            LivelockError: Time cannot go on.
        """
        queue, actions = self._queue, self._actions
        while queue and queue[0][0] <= until:
            when, number = heapq.heappop(queue)
            action = actions.pop(number, None)
            if action is None:
                continue
            self._crowd = self._crowd + 1 if when == self.now else 0
            if self._crowd > EVENTS_PER_INSTANT_MAX:
                raise LivelockError(when)
            self.now = when
            self.performed += 1
            action()
        self.now = max(self.now, until)
