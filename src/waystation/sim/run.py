"""Runs one simulation seed through all phases and returns its trace hash, outcome counts and any failure.

``waystation sim`` and the tests call ``run_seed`` with a protocol and a number. Two runs of one seed have the same
hash, so a failure can be repeated and looked at.
"""

import random
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Final

from waystation.core.errors import LocalError
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim.bhumi.plan import LARGE_EVERY
from waystation.sim.bhumi.scenario import BhumiScenario, core_scenario, large_scenario
from waystation.sim.bsp.scenario import BspScenario
from waystation.sim.disk_faults import DiskPlan, draw_disk_plan
from waystation.sim.invariants import ViolationError
from waystation.sim.lprp.scenario import LprpScenario
from waystation.sim.merk.scenario import MerkScenario
from waystation.sim.scenario import Scenario
from waystation.sim.schedule import LivelockError, Schedule
from waystation.sim.strata.scenario import StrataScenario
from waystation.sim.trace import Trace

__all__ = ["LARGE", "SCENARIOS", "Failure", "MakeScenario", "SimResult", "run_seed", "scenario_of"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
QUIESCE_US: Final = 60 * MICROSECONDS_PER_SECOND  # for every client to come back
PROBE_US: Final = 180 * MICROSECONDS_PER_SECOND  # longer than every timeout in a chain of tries

AnyScenario = Scenario[Any, Any, Any]
MakeScenario = Callable[[Schedule, random.Random, Trace], AnyScenario]

SCENARIOS: Final[dict[str, MakeScenario]] = {
    "bhumi": core_scenario,
    "bhumi-open": BhumiScenario,
    "bsp": BspScenario,
    "lprp": LprpScenario,
    "merk": MerkScenario,
    "strata": StrataScenario,
}
"""Scenarios by protocol."""

LARGE: Final[dict[str, tuple[int, MakeScenario]]] = {
    "bhumi-open": (LARGE_EVERY, large_scenario),
}
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
    disks_fail: bool = False
    """Whether nodes ran on disks that fail."""

    @property
    def command(self) -> str:
        """The command line that repeats this run."""
        return f"waystation sim --protocol {self.protocol} --seed {self.seed} --hours {self.hours}" + (
            " --disk" if self.disks_fail else ""
        )

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
    disks: bool | DiskPlan = False,
) -> SimResult:
    """Run one seed.

    Args:
        protocol: A key of ``SCENARIOS``.
        seed: Any integer; decides everything.
        hours: Simulated hours of faults; quiescing and leaving come on top.
        sink: Gets every line of the trace.
        make: Another scenario than the protocol's own.
        disks: Whether disks fail, as the seed draws it or by this plan.

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
    if disks:
        disk_rng = random.Random(f"{protocol}/{seed}/disks")  # noqa: S311 - a simulation must be repeatable
        scenario.use_disks(
            draw_disk_plan(disk_rng, may_fail_to_read=scenario.reads_packets) if disks is True else disks, disk_rng
        )
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
        disks_fail=bool(disks),
    )


def scenario_of(protocol: str, seed: int) -> MakeScenario:
    """Return what a seed runs."""
    every, large = LARGE.get(protocol, (0, SCENARIOS[protocol]))
    return large if every and seed % every == 0 else SCENARIOS[protocol]


def _where(error: Exception) -> str:
    """Return what was raised and the innermost place it came from."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error!r} in {frame.name}, {PurePath(frame.filename).name}:{frame.lineno}"


def _run_phases(schedule: Schedule, scenario: AnyScenario, faults_until: Instant) -> None:
    scenario.start()
    schedule.run(faults_until)
    scenario.quiesce()
    schedule.run(Instant(schedule.now + QUIESCE_US))
    scenario.probe()
    schedule.run(Instant(schedule.now + PROBE_US))
    empty_us = scenario.leave()
    schedule.run(Instant(schedule.now + empty_us))
    scenario.finish()
