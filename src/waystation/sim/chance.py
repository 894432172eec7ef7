"""Random helpers for a simulation: one generator per actor, exponential waits, and actions that recur at random.

Every actor draws from a generator of its own, so that a change to one leaves what the others do as it was. The seed of
the run decides all.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.sim.schedule import Schedule

__all__ = ["HOUR_US", "Recurring", "fork", "spread"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND


def fork(rng: random.Random) -> random.Random:
    """Return a generator for one actor: what it draws then changes no other draw."""
    return random.Random(rng.getrandbits(64))  # noqa: S311 - a simulation must be repeatable


def spread(rng: random.Random, mean_us: float) -> int:
    """Draw a waiting time around ``mean_us`` microseconds, exponentially distributed."""
    return int(rng.expovariate(1.0) * mean_us)


class Recurring:
    """Actions that recur at random instants until the fault phase ends."""

    def __init__(self, schedule: Schedule, rng: random.Random, lasts: Callable[[], bool], least_us: int = 0) -> None:
        """Bind to a clock; ``lasts`` says whether the phase goes on, ``least_us`` is the shortest wait."""
        self._schedule = schedule
        self._rng = rng
        self._lasts = lasts
        self._least_us = least_us

    def often(self, per_hour: float, act: Callable[[], None]) -> None:
        """Let ``act`` happen at random instants, ``per_hour`` times on average."""
        if per_hour > 0:
            self.every(HOUR_US / per_hour, act)

    def every(self, mean_us: float, act: Callable[[], None]) -> None:
        """Let ``act`` happen at random instants, ``mean_us`` microseconds apart on average."""

        def happen() -> None:
            if self._lasts():
                act()
                self.every(mean_us, act)

        self._schedule.after(self._least_us + spread(self._rng, mean_us), happen)

    def duration(self, mean_us: int) -> int:
        """Draw how long something lasts, 1 microsecond at least."""
        return 1 + spread(self._rng, mean_us)
