"""Runs one seed of the SDK on a virtual clock, and returns what ``sim.run`` returns of its own."""

import asyncio
import os
import random
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, Final

from waystation.core.errors import LocalError
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim.chance import fork
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.run import Failure, SimResult
from waystation.sim.schedule import LivelockError
from waystation.sim.trace import Trace, canonical
from waystation.simsdk.bhumi.hostile_relay import HostileRelay
from waystation.simsdk.bhumi.invariants import all_invariants
from waystation.simsdk.bhumi.scene import Scene
from waystation.simsdk.loop import StandstillError, VirtualLoop
from waystation.transport.pipe import Pipe

__all__ = ["EPOCH_S", "PROTOCOLS", "Judge", "run_seed"]

PROTOCOLS: Final = ("bhumi-sdk",)
EPOCH_S: Final = 1_800_000_000
"""What the time of day is, in Unix seconds, when a run begins."""
_PORT: Final = 8443
_HOUR_S: Final = 3_600
_DELAY_S: Final = (0.0001, 0.005)
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of ours inside, with a name nobody knows
"""Where folders cost no disk; a run writes thousands of times, and nothing of it outlives the run."""


class Judge:
    """Shows each observation to the invariants, and remembers the first one that is broken."""

    def __init__(self, now: Callable[[], Instant], trace: Trace) -> None:
        """Begin; ``trace`` gets a line for each observation."""
        self._now = now
        self._trace = trace
        self._watch = Watch(all_invariants())
        self.failure: Failure | None = None
        """What was broken first."""
        self.lines_count = 0
        """Lines in the trace."""

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.lines_count += 1
        self._trace.note(self._now(), line)

    def observe(self, observation: Any) -> None:
        """Judge what somebody did or saw."""
        line = str(observation) if "__str__" in type(observation).__dict__ else canonical(observation)
        self.note(line)
        try:
            self._watch.observe(observation, self._now())
        except ViolationError as error:
            self.fail(error.invariant, error.detail)

    def fail(self, invariant: str, detail: str) -> None:
        """Note what is broken, unless something was before."""
        if self.failure is None:
            self.failure = Failure(invariant, detail, self._now(), self._trace.last_lines())


def run_seed(
    protocol: str,
    seed: int,
    hours: float,
    *,
    sink: Callable[[str], None] | None = None,
    repeatable: bool = False,
) -> SimResult:
    """Run one seed.

    Args:
        protocol: One of ``PROTOCOLS``.
        seed: Any integer; decides everything.
        hours: Virtual hours with the hostile relay; what an honest one must mend comes on top.
        sink: Gets every line of the trace.
        repeatable: Let senders say that every content may arrive twice, which is a mistake here.

    Raises:
        LocalError: There is no such protocol, or the duration is not above 0.
    """
    if protocol not in PROTOCOLS:
        raise LocalError(f"no simulation of the SDK is called {protocol!r}; there is: {', '.join(PROTOCOLS)}")
    if not hours > 0:
        raise LocalError("the duration must be above 0 hours")
    rng = random.Random(f"{protocol}/{seed}")  # noqa: S311 - a simulation must be repeatable
    delays = fork(rng)
    trace = Trace(sink)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(lambda: delays.uniform(*_DELAY_S))) as runner:
        loop = runner.get_loop()
        judge = Judge(lambda: Instant(int(loop.time() * MICROSECONDS_PER_SECOND)), trace)
        loop.set_exception_handler(lambda _, context: judge.fail("crash", _crash(context)))
        scenes: list[Scene] = []
        try:
            runner.run(_play(judge, rng.getrandbits(64), hours * _HOUR_S, scenes, repeatable=repeatable))
        except LivelockError as error:
            judge.fail("livelock", str(error))
        except StandstillError as error:
            judge.fail("standstill", str(error))
        except Exception as error:  # noqa: BLE001 - whatever is raised is what this seed has found
            judge.fail("crash", _crash({"message": "", "exception": error}))
        simulated_us = int(loop.time() * MICROSECONDS_PER_SECOND)
    return SimResult(
        protocol=protocol,
        seed=seed,
        hours=hours,
        trace_hash=trace.hash_hex(),
        events=judge.lines_count,
        exchanges={name: count for scene in scenes for name, count in sorted(scene.outcomes.items())},
        simulated_us=simulated_us,
        failure=judge.failure,
    )


async def _play(judge: Judge, seed: int, hostile_s: float, scenes: list[Scene], *, repeatable: bool) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    relay = HostileRelay(seed, judge.note)
    loop.streams.listen(_PORT, lambda: Pipe(relay, "127.0.0.1"))
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        scene = Scene(
            *(seed, Path(folder), relay, f"tcp://127.0.0.1:{_PORT}", judge.observe),
            hostile_s=hostile_s,
            clock=lambda: EPOCH_S + loop.time(),
            repeatable=repeatable,
        )
        scenes.append(scene)
        try:
            await scene.play()
        finally:
            relay.stop()


def _crash(context: dict[str, Any]) -> str:
    """Return what was raised and the innermost place it came from."""
    error = context.get("exception")
    if error is None:
        return str(context["message"])
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error!r} in {frame.name}, {PurePath(frame.filename).name}:{frame.lineno}"
