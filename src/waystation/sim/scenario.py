"""The base class of every protocol's scenario: it runs the phases, records observations, and measures table sizes.

``run`` drives the phases in this order: faults, recovery, a probe in which every request must succeed, and departure
of all clients. A protocol's subclass names what draws its plan and what makes its machines, and builds the context, the
sites and the actors.
"""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.journal.events import Event
from waystation.sim.chance import Recurring, fork
from waystation.sim.context import Context
from waystation.sim.disk_faults import DiskFaults, DiskPlan, HasDisk
from waystation.sim.invariants import Watch
from waystation.sim.plan import Plan
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace, canonical

__all__ = ["Counting", "Measured", "Scenario"]

P = TypeVar("P", bound=Plan)
C = TypeVar("C", bound=Context[Any])
T = TypeVar("T")


class Counting(Protocol):
    """An actor that counts how its requests ended."""

    outcomes: Counter[str]


class Measured(HasDisk, Protocol):
    """A node that can be killed, and whose sizes can be observed; ``Site`` is one."""

    def measure(self, *, settled: bool) -> None:
        """Observe how much there is of everything."""

    @property
    def crash(self) -> Callable[..., None]:
        """Kills it; ``Site`` takes after how many microseconds it is back."""


S = TypeVar("S", bound=Measured)


class Scenario(ABC, Generic[P, C, S]):
    """One network drawn from one generator."""

    sizes_every_us: ClassVar[int] = 10 * MICROSECONDS_PER_SECOND
    reads_packets: ClassVar[bool] = False
    """Whether nodes read pages of packets while they run, and know what to do when the disk fails to."""
    untraced: ClassVar[tuple[type[Any], ...]] = ()
    """Observations that have no line: the trace has the bytes that they were read from."""

    draw_plan: Callable[[random.Random], P]
    """Draws what happens."""
    _context: C

    def __init__(
        self, schedule: Schedule, rng: random.Random, trace: Trace, *, plan: P | None = None, **parts: Any
    ) -> None:
        """Build everything; nothing happens before ``start``.

        Args:
            schedule: The clock.
            rng: Everything drawn comes from here.
            trace: Gets a line for everything that happens.
            plan: What happens; drawn when None.
            parts: What stands in the place of class attributes of these names: what draws the plan, what makes the
                machines of nodes and clients.
        """
        assert all(hasattr(type(self), name) for name in parts), f"a scenario has no such parts: {sorted(parts)}"
        vars(self).update(parts)
        self.plan = plan or self.draw_plan(fork(rng))
        self._schedule = schedule
        self._trace = trace
        self._rng = fork(rng)
        self._is_measuring = True
        self._watch = Watch([])
        self._recurring = Recurring(schedule, self._rng, lambda: self._context.in_fault_phase)
        self._sites: Sequence[S] = ()
        self._disk_faults: DiskFaults | None = None
        self._build(rng)

    @abstractmethod
    def _build(self, rng: random.Random) -> None:
        """Make the context, the invariants, the sites and the actors, each with a fork of ``rng``; note the plan."""

    def _note_plan(self) -> None:
        self._trace.note(self._schedule.now, f"plan {self.plan.describe()}")

    def use_disks(self, plan: DiskPlan, rng: random.Random) -> None:
        """Let disks fail by this plan, which ``rng`` carries out; before ``start``."""
        self._disk_faults = DiskFaults(self._schedule, rng, plan)
        self._trace.note(self._schedule.now, f"disks {plan.describe()}")

    # Phases

    def start(self) -> None:
        """Let every actor arrive and the faults begin."""
        self._arrive()
        self._plan_faults()
        if self._disk_faults is not None:
            self._disk_faults.begin(self._sites, lambda: self._context.in_fault_phase, self._crash_site)
        self._measure()

    def quiesce(self) -> None:
        """End the faults; clients that are away come back."""
        self._context.in_fault_phase = False
        if self._disk_faults is not None:
            self._disk_faults.end()
        self._heal()

    @abstractmethod
    def probe(self) -> None:
        """Let every client ask for something that must succeed."""

    @abstractmethod
    def leave(self) -> int:
        """Let every actor go; return after how many microseconds nothing may be left."""

    def finish(self) -> None:
        """Look at what is left."""
        self._measure_sites(settled=True)

    def outcomes(self) -> dict[str, int]:
        """Return what was done, counted by outcome."""
        total: Counter[str] = Counter()
        for actor in self._counting():
            total.update(actor.outcomes)
        return dict(sorted(total.items()))

    @abstractmethod
    def _arrive(self) -> None:
        """Let every actor come within the first seconds."""

    @abstractmethod
    def _plan_faults(self) -> None:
        """Let faults happen again and again until the fault phase ends."""

    @abstractmethod
    def _heal(self) -> None:
        """Undo the faults, and let clients that are away come back."""

    def _crash_site(self, index: int, down_us: int) -> None:
        """Kill one of the sites, if it runs; it is back after so many microseconds."""
        self._sites[index].crash(down_us)

    def _counting(self) -> Sequence[Counting]:
        """Return the actors whose outcomes count."""
        return ()

    def _within(self, duration_us: int, act: Callable[[], None]) -> None:
        """Let ``act`` happen once, at a random instant."""
        self._schedule.after(self._rng.randrange(duration_us), act)

    # Observing

    def _observe(self, observation: Any) -> None:
        if not isinstance(observation, self.untraced):
            self._trace.note(self._schedule.now, self._line_of(observation))
        self._watch.observe(observation, self._schedule.now)

    def _line_of(self, observation: Any) -> str:
        """Return what the trace says of an observation: its own line, if its class has one."""
        return str(observation) if "__str__" in type(observation).__dict__ else canonical(observation)

    def _on_event(self, event: Event) -> None:
        """Trace what a relay journals."""
        self._trace.note(self._schedule.now, canonical(event))

    def _measure(self) -> None:
        if self._is_measuring:
            self._measure_sites(settled=False)
            self._schedule.after(self.sizes_every_us, self._measure)

    def _measure_sites(self, *, settled: bool) -> None:
        for site in self._sites:
            site.measure(settled=settled)

    # Faults

    def _any_site(self) -> S:
        return self._rng.choice(self._sites)

    def _on_any(self, things: Sequence[T], act: Callable[[T], object]) -> None:
        """Do something to one of some things, if there are any."""
        if things:
            act(self._rng.choice(things))
