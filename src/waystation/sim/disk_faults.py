"""What goes wrong with the disks of a simulation: a plan drawn from the seed, and the faults that it makes.

``sim.run`` draws the plan and the scenario carries it out. The plan and every draw come from a generator of their own,
so that a seed does the same in the rest of its world, up to the first fault, with and without failing disks.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.sim.chance import Recurring, fork
from waystation.sim.disk import DiskHabits, FaultyStore
from waystation.sim.plan import Plan, chance
from waystation.sim.schedule import Schedule

__all__ = ["DiskFaults", "DiskPlan", "HasDisk", "draw_disk_plan"]

DOWN_US: Final = 2 * MICROSECONDS_PER_SECOND
REFUSALS_US: Final = (1, 1_000_000, 5_000_000, 20_000_000)
LOSES_ROWS: Final = 1 / 4  # of all plans: most must be free of it, since it excuses promises


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPlan(Plan):
    """What the disks of one seed do, besides what its plan does; rates are per simulated hour and network."""

    crashes: float = 0.0
    """A node is killed, or loses its power."""
    refusals: float = 0.0
    """A disk takes no changes for a while."""
    refusal_us: int = 1_000_000
    """Mean time of that, in microseconds; whatever comes while it lasts is refused."""
    unreadable: float = 0.0
    """No page of packets can be read from a disk for a while, of the same mean time."""
    habits: DiskHabits = field(default_factory=DiskHabits)


def draw_disk_plan(rng: random.Random, *, may_fail_to_read: bool = False) -> DiskPlan:
    """Draw a plan, in which disks fail to read only if they may."""
    return DiskPlan(
        crashes=chance(rng, 240.0),
        refusals=chance(rng, 480.0),
        refusal_us=rng.choice(REFUSALS_US),
        habits=_draw_habits(rng),
        unreadable=chance(rng, 240.0) if may_fail_to_read else 0.0,
    )


def _draw_habits(rng: random.Random) -> DiskHabits:
    power_cuts = rng.choice((0.0, 0.5, 1.0))
    if rng.random() >= LOSES_ROWS:
        return DiskHabits(power_cuts)
    return DiskHabits(power_cuts, rot=rng.choice((0.0, 0.5)), restores=rng.choice((0.0, 0.3)))


class HasDisk(Protocol):
    """A node that has a store; ``Site`` is one."""

    @property
    def store(self) -> FaultyStore:
        """What it keeps over its lives."""


class DiskFaults:
    """Lets disks fail until the fault phase ends."""

    def __init__(self, schedule: Schedule, rng: random.Random, plan: DiskPlan) -> None:
        """Bind a plan to a clock; ``rng`` draws everything."""
        self.plan = plan
        self._schedule = schedule
        self._rng = rng
        self._stores: Sequence[FaultyStore] = ()

    def begin(self, nodes: Sequence[HasDisk], lasts: Callable[[], bool], crash: Callable[[int, int], None]) -> None:
        """Let faults begin.

        Args:
            nodes: Whose disks they are.
            lasts: Whether the fault phase goes on.
            crash: Kills the node of this index for so many microseconds.
        """
        self._stores = [node.store for node in nodes]
        for store in self._stores:
            store.spoil(self.plan.habits, fork(self._rng))
        recurring = Recurring(self._schedule, self._rng, lasts)
        recurring.often(self.plan.crashes, lambda: crash(self._rng.randrange(len(nodes)), recurring.duration(DOWN_US)))
        recurring.often(self.plan.refusals, lambda: self._refuse(recurring.duration(self.plan.refusal_us)))
        recurring.often(self.plan.unreadable, lambda: self._hide(recurring.duration(self.plan.refusal_us)))

    def end(self) -> None:
        """Let every disk take changes, and give them back, again."""
        for store in self._stores:
            store.refuses = store.fails_to_read = False

    def _refuse(self, duration_us: int) -> None:
        store = self._rng.choice(self._stores)
        store.refuses = True

        def take() -> None:
            store.refuses = False

        self._schedule.after(duration_us, take)

    def _hide(self, duration_us: int) -> None:
        store = self._rng.choice(self._stores)
        store.fails_to_read = True

        def show() -> None:
            store.fails_to_read = False

        self._schedule.after(duration_us, show)
