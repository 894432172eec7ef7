"""A path of datagrams: late, lost, doubled, out of order, or cut.

Each fault is a decorator around whatever takes the datagram next, so a path is exactly the faults somebody stacked, and
a fault that nobody wanted costs nothing. ``FaultyLink`` stacks all of them in the order of a real network: the cut is
at the sender's interface, copies and losses happen on the way, and every copy has a latency of its own.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from waystation.sim.schedule import Schedule

__all__ = ["Cut", "DatagramSettings", "Duplicate", "FaultyLink", "Latency", "Loss", "Reorder", "Take"]

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


class Latency:
    """Delivers everything later, in order."""

    def __init__(self, schedule: Schedule, rng: random.Random, take: Take, latency_us: int, jitter_us: int) -> None:
        """Delay by ``latency_us`` and up to ``jitter_us`` more."""
        self._schedule = schedule
        self._rng = rng
        self._take = take
        self._latency_us = latency_us
        self._jitter_us = jitter_us
        self._last_at = schedule.now

    def __call__(self, data: bytes) -> None:
        """Take one datagram."""
        jitter_us = self._rng.randrange(self._jitter_us + 1)
        at = self._schedule.now + self._latency_us + jitter_us
        self._last_at = max(self._last_at, type(self._last_at)(at))
        self._schedule.at(self._last_at, lambda: self._take(data))


class Loss:
    """Loses a datagram with a given chance."""

    def __init__(self, rng: random.Random, take: Take, chance: float) -> None:
        """Lose with ``chance``."""
        self._rng = rng
        self._take = take
        self._chance = chance

    def __call__(self, data: bytes) -> None:
        """Take one datagram."""
        if self._rng.random() >= self._chance:
            self._take(data)


class Duplicate:
    """Passes a datagram on twice with a given chance."""

    def __init__(self, rng: random.Random, take: Take, chance: float) -> None:
        """Double with ``chance``."""
        self._rng = rng
        self._take = take
        self._chance = chance

    def __call__(self, data: bytes) -> None:
        """Take one datagram."""
        self._take(data)
        if self._rng.random() < self._chance:
            self._take(data)


class Reorder:
    """Holds a datagram back with a given chance, so that later ones overtake it."""

    def __init__(self, schedule: Schedule, rng: random.Random, take: Take, chance: float, delay_us: int) -> None:
        """Hold back with ``chance``, for ``delay_us``."""
        self._schedule = schedule
        self._rng = rng
        self._take = take
        self._chance = chance
        self._delay_us = delay_us

    def __call__(self, data: bytes) -> None:
        """Take one datagram."""
        if self._rng.random() < self._chance:
            self._schedule.after(self._delay_us, lambda: self._take(data))
        else:
            self._take(data)


class Cut:
    """Passes everything on while whole, and nothing while cut."""

    def __init__(self, take: Take) -> None:
        """Begin whole."""
        self._take = take
        self.is_cut = False

    def __call__(self, data: bytes) -> None:
        """Take one datagram."""
        if not self.is_cut:
            self._take(data)


class FaultyLink:
    """Cut, then Loss, then Duplicate, then Reorder, then Latency, then whoever receives."""

    def __init__(self, schedule: Schedule, rng: random.Random, settings: DatagramSettings, take: Take) -> None:
        """Stack the faults of ``settings`` in front of ``take``."""
        latency = Latency(schedule, rng, take, settings.latency_us, settings.jitter_us)
        reorder = Reorder(schedule, rng, latency, settings.reorder, settings.reorder_us)
        duplicate = Duplicate(rng, reorder, settings.duplicate)
        self._cut = Cut(Loss(rng, duplicate, settings.loss))

    def __call__(self, data: bytes) -> None:
        """Send one datagram."""
        self._cut(data)

    def cut(self) -> None:
        """Let nothing through; what is under way still arrives."""
        self._cut.is_cut = True

    def heal(self) -> None:
        """Let datagrams through again."""
        self._cut.is_cut = False
