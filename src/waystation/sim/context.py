"""What all actors (simulated participants) of one run share: clock, plan, nodes, and what must still happen.

Each protocol subclasses it, and its scenario gives it to every actor. A pending condition that stays unmet until the
end of the run is reported as a failure.
"""

from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND
from waystation.sim.net.link import End, Port
from waystation.sim.observations import Unfulfilled
from waystation.sim.plan import Plan
from waystation.sim.schedule import Schedule
from waystation.sim.world import WALL_START_US, World

__all__ = ["Context", "Dialable"]

P = TypeVar("P", bound=Plan)


class Dialable(Protocol):
    """A node, honest or hostile, that other nodes can dial."""

    @property
    def number(self) -> int | None:
        """Which node it is; None for a hostile one."""

    def is_reachable(self, caller: int) -> bool:
        """Return whether a connection from node ``caller`` gets through."""

    def reach(self, caller: int, end: End) -> Port:
        """Return the port of a new connection from node ``caller``."""


class Context(Generic[P]):
    """Shared by all actors of one simulation."""

    protocol: ClassVar[str]

    def __init__(self, schedule: Schedule, plan: P, observe: Callable[[Any], None]) -> None:
        """Put it together; the scenario adds the nodes.

        Args:
            schedule: The clock.
            plan: What this seed does.
            observe: Gets every observation.
        """
        self.schedule = schedule
        self.plan = plan
        self.observe = observe
        self.in_fault_phase = True
        """False once the faults have ended: from then on every actor but the hostile ones is well-behaved."""
        self.worlds: list[World] = []
        """Nodes, by number."""
        self.sites: dict[str, Dialable] = {}
        """What answers at which address."""
        self.pending: dict[Hashable, str] = {}
        """What must come true after the faults: complaints by what they are about."""
        self._connections = 0

    @property
    def wall_us(self) -> int:
        """Unix microseconds now, by a right clock."""
        return WALL_START_US + self.schedule.now

    @property
    def wall_s(self) -> int:
        """Unix seconds now, by a right clock."""
        return self.wall_us // MICROSECONDS_PER_SECOND

    def wall_ms(self, offset_ms: int = 0) -> int:
        """Return Unix milliseconds by a clock that is so much ahead of the right one."""
        return self.wall_us // MICROSECONDS_PER_MS + offset_ms

    def next_connection(self) -> int:
        """Return a number for a connection, never used before."""
        self._connections += 1
        return self._connections

    def report_pending(self) -> None:
        """Observe what has not come true."""
        for what in self.pending.values():
            self.observe(Unfulfilled(what))
