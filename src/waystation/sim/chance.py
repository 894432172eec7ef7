"""Chance in a simulated world: generators of their own, waiting times, and trouble that comes at random."""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.sim.schedule import Schedule

__all__ = ["Trouble", "fork", "spread"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND


def fork(rng: random.Random) -> random.Random:
    """Return a generator of its own for somebody: what he draws then disturbs nobody else."""
    return random.Random(rng.getrandbits(64))  # noqa: S311 - a simulation must be repeatable


def spread(rng: random.Random, mean_us: float) -> int:
    """Draw a waiting time around ``mean_us`` microseconds, exponentially distributed."""
    return int(rng.expovariate(1.0) * mean_us)


class Trouble:
    """What goes wrong again and again, until the calm."""

    def __init__(self, schedule: Schedule, rng: random.Random, lasts: Callable[[], bool]) -> None:
        """Bind to a clock; ``lasts`` says whether there is still trouble."""
        self._schedule = schedule
        self._rng = rng
        self._lasts = lasts

    def often(self, per_hour: float, act: Callable[[], None]) -> None:
        """Let ``act`` happen at random instants, ``per_hour`` times on average."""

        def happen() -> None:
            if self._lasts():
                act()
                self.often(per_hour, act)

        if per_hour > 0:
            self._schedule.after(spread(self._rng, HOUR_US / per_hour), happen)

    def duration(self, mean_us: int) -> int:
        """Draw how long something lasts, 1 microsecond at least."""
        return 1 + spread(self._rng, mean_us)
