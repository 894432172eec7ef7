"""One seed from its first event to its verdict."""

import random
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Final, Protocol

from waystation.core.errors import LocalError
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim.bhumi import BhumiTown
from waystation.sim.bhumi_open import OpenTown, large_town
from waystation.sim.bhumi_open_plan import LARGE_EVERY
from waystation.sim.bsp import BspTown
from waystation.sim.invariants import ViolationError
from waystation.sim.lprp import LprpTown
from waystation.sim.merk import MerkTown
from waystation.sim.schedule import LivelockError, Schedule
from waystation.sim.strata import StrataTown
from waystation.sim.trace import Trace

__all__ = ["LARGE", "SCENARIOS", "Failure", "MakeScenario", "Scenario", "SimResult", "run_seed", "scenario_of"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
CALM_US: Final = 60 * MICROSECONDS_PER_SECOND  # for everybody to come home
PROBE_US: Final = 180 * MICROSECONDS_PER_SECOND  # longer than every patience in a chain of tries


class Scenario(Protocol):
    """What a protocol brings along to be simulated; see ``bhumi.BhumiTown`` and docs/simulator.md."""

    def start(self) -> None:
        """Let everybody come and the trouble begin."""

    def calm(self) -> None:
        """End the trouble."""

    def probe(self) -> None:
        """Let everybody ask for something that must succeed."""

    def leave(self) -> int:
        """Let everybody go; return after how many microseconds nothing may be left."""

    def finish(self) -> None:
        """Look at what is left."""

    def outcomes(self) -> dict[str, int]:
        """Return what was done, counted by outcome."""


MakeScenario = Callable[[Schedule, random.Random, Trace], Scenario]

SCENARIOS: Final[dict[str, MakeScenario]] = {
    "bhumi": BhumiTown,
    "bhumi-open": OpenTown,
    "bsp": BspTown,
    "lprp": LprpTown,
    "merk": MerkTown,
    "strata": StrataTown,
}
"""Scenarios by protocol."""

LARGE: Final[dict[str, tuple[int, MakeScenario]]] = {"bhumi-open": (LARGE_EVERY, large_town)}
"""Of so many seeds of a protocol one, the one that this number divides, is another scenario: a large world."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run failed."""

    invariant: str
    """Name of the law, "livelock", or "crash" for an exception of ours."""
    detail: str
    at_us: int
    """Simulated microseconds since the start."""
    last_lines: tuple[str, ...]
    """The end of the trace, the failure excluded."""


@dataclass(frozen=True, slots=True)
class SimResult:
    """What one seed came to."""

    protocol: str
    seed: int
    hours: float
    trace_hash: str
    """SHA-256 of the trace in hexadecimal."""
    events: int
    """Events performed."""
    exchanges: dict[str, int]
    """Finished exchanges by outcome."""
    simulated_us: int
    failure: Failure | None

    @property
    def command(self) -> str:
        """The command line that repeats this run."""
        return f"waystation sim --protocol {self.protocol} --seed {self.seed} --hours {self.hours}"

    def document(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {**asdict(self), "command": self.command}


def run_seed(
    protocol: str,
    seed: int,
    hours: float,
    *,
    sink: Callable[[str], None] | None = None,
    make: MakeScenario | None = None,
) -> SimResult:
    """Run one seed.

    Args:
        protocol: A key of ``SCENARIOS``.
        seed: Any integer; decides everything.
        hours: Simulated hours of trouble; calm and leaving come on top.
        sink: Gets every line of the trace.
        make: Another scenario than the protocol's own.

    Raises:
        LocalError: There is no such protocol, or the duration is not above 0.
    """
    if protocol not in SCENARIOS:
        raise LocalError(f"no simulation of {protocol!r}; there is: {', '.join(sorted(SCENARIOS))}")
    if not hours > 0:
        raise LocalError("the duration must be above 0 hours")
    schedule, trace = Schedule(), Trace(sink)
    rng = random.Random(f"{protocol}/{seed}")  # noqa: S311 - a simulation must be repeatable
    scenario = (make or scenario_of(protocol, seed))(schedule, rng, trace)
    failure = None
    try:
        _run_phases(schedule, scenario, Instant(int(hours * HOUR_US)))
    except ViolationError as error:
        failure = Failure(error.invariant, error.detail, schedule.now, trace.last_lines())
    except LivelockError as error:
        failure = Failure("livelock", str(error), schedule.now, trace.last_lines())
    except Exception as error:  # noqa: BLE001 - whatever the node or a client raises is what this seed has found
        failure = Failure("crash", _where(error), schedule.now, trace.last_lines())
    return SimResult(
        protocol=protocol,
        seed=seed,
        hours=hours,
        trace_hash=trace.hash_hex(),
        events=schedule.performed,
        exchanges=scenario.outcomes(),
        simulated_us=schedule.now,
        failure=failure,
    )


def scenario_of(protocol: str, seed: int) -> MakeScenario:
    """Return what a seed runs."""
    every, large = LARGE.get(protocol, (0, SCENARIOS[protocol]))
    return large if every and seed % every == 0 else SCENARIOS[protocol]


def _where(error: Exception) -> str:
    """Return what was raised and the innermost place it came from."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error!r} in {frame.name}, {PurePath(frame.filename).name}:{frame.lineno}"


def _run_phases(schedule: Schedule, scenario: Scenario, trouble_until: Instant) -> None:
    scenario.start()
    schedule.run(trouble_until)
    scenario.calm()
    schedule.run(Instant(schedule.now + CALM_US))
    scenario.probe()
    schedule.run(Instant(schedule.now + PROBE_US))
    empty_us = scenario.leave()
    schedule.run(Instant(schedule.now + empty_us))
    scenario.finish()
