"""A simulated datagram path that can delay, lose, duplicate or reorder datagrams.

``Network`` has one between any two addresses, BSP's connections have one for records. Loss and duplication happen on
the way. Every copy gets its own latency.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from waystation.core.instant import Instant
from waystation.sim.schedule import Schedule

__all__ = ["DatagramSettings", "FaultyLink", "Take"]

Take = Callable[[bytes], None]
"""Takes one datagram."""


@dataclass(frozen=True, slots=True)
class DatagramSettings:
    """What one path is like; chances are 0 to 1."""

    latency_us: int = 20_000
    """Microseconds one way, at least."""
    jitter_us: int = 5_000
    """Up to this many microseconds are added, never so many that order is lost."""
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_us: int = 50_000
    """How much later a datagram comes that is to be overtaken, in microseconds."""


class FaultyLink:
    """Loses, then duplicates, then holds back, then delays, for whoever receives."""

    def __init__(self, schedule: Schedule, rng: random.Random, settings: DatagramSettings, take: Take) -> None:
        """Put the faults of ``settings`` in front of ``take``."""
        self._schedule = schedule
        self._rng = rng
        self._settings = settings
        self._take = take
        self._last_at = schedule.now

    def __call__(self, data: bytes) -> None:
        """Send one datagram."""
        if self._rng.random() < self._settings.loss:
            return
        self._carry(data)
        if self._rng.random() < self._settings.duplicate:
            self._carry(data)

    def _carry(self, data: bytes) -> None:
        """Hold a copy back by chance, so that later ones overtake it."""
        if self._rng.random() < self._settings.reorder:
            self._schedule.after(self._settings.reorder_us, lambda: self._delay(data))
        else:
            self._delay(data)

    def _delay(self, data: bytes) -> None:
        at = self._schedule.now + self._settings.latency_us + self._rng.randrange(self._settings.jitter_us + 1)
        self._last_at = max(self._last_at, Instant(at))
        self._schedule.at(self._last_at, lambda: self._take(data))
