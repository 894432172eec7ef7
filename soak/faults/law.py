"""Tests one node with five protocols under load while fault after fault begins and ends.

What was acknowledged is kept and arrives, what is "not sent" does not arrive and nothing arrives twice, each protocol
acknowledges again within seconds of the end of each fault, the node never ends by itself, and its memory and its
descriptors stay flat.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from soak.bhumi.load import BhumiLoad
from soak.bsp.load import BspLoad
from soak.faults.kinds import FAULTS, Fault
from soak.faults.lag import Lag
from soak.faults.node import FaultyNode
from soak.faults.report import Report, Seen, Trial
from soak.faults.table import ROWS, Cell
from soak.invariants import check_store, eventually
from soak.ledger import Ledger, Window
from soak.load import Load
from soak.lprp.load import LprpLoad
from soak.merk.load import MerkLoad
from soak.strata.load import StrataLoad

__all__ = ["LOADS", "Run", "run_faults"]

LOADS: Final[tuple[type[Load], ...]] = (BhumiLoad, BspLoad, LprpLoad, MerkLoad, StrataLoad)
BACK_S: Final = 10.0
"""Within this time after the end of a fault every protocol acknowledges again."""
GIVEN_UP_S: Final = 90.0
"""How long a protocol that is late is waited for, so that the report says how late it was."""
QUIET_S: Final = (3.0, 10.0)
"""Between two faults."""
SETTLED_S: Final = 90.0
"""For what is under way when the load ends."""
PROGRESS_S: Final = 10.0
LOOK_S: Final = 0.2
NOTICED_S: Final = 2.0
"""What is sent so soon after the beginning of a fault may still be answered as before: nothing is said of it."""
GROWN_MAX_KIB: Final = 64 * 1_024
FILES_GROWN_MAX: Final = 16


def run_faults(folder: Path, seed: int, minutes: float = 5.0, only: Sequence[str] = ()) -> Report:
    """Let faults come for so long; return what happened.

    Args:
        folder: For homes, ledger and logs.
        seed: Draws faults, their order and their moments.
        minutes: How long.
        only: Names of faults; all when empty.

    Raises:
        AssertionError: A law did not hold; the text has the whole report.
    """
    report = asyncio.run(_run(folder, seed, minutes, only))
    assert not report.failures, str(report)
    return report


async def _run(folder: Path, seed: int, minutes: float, only: Sequence[str]) -> Report:
    rng = random.Random(seed)
    kinds = [each for each in FAULTS if not only or each.name in only]
    ends_at = time.monotonic() + minutes * 60
    async with Run.opened(folder, rng) as run, run.progress():
        while time.monotonic() < ends_at:
            for kind in rng.sample(kinds, len(kinds)):  # each as often as every other
                if time.monotonic() < ends_at:
                    await asyncio.sleep(rng.uniform(*QUIET_S))
                    await run.attempt(kind(run.node))
        await run.settle()
    return run.report


class Run:
    """A node, its clients, and what was seen of them."""

    def __init__(self, folder: Path, rng: random.Random, back_s: float = BACK_S) -> None:
        """Describe them; use ``opened``."""
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.loads = [make(folder / "clients", self.ledger, rng) for make in LOADS]
        self.node = FaultyNode(folder, self.loads)
        self.report = Report([load.protocol for load in self.loads])
        self._rng = rng
        self._back_s = back_s
        self._now = "no fault"
        self._senders: list[asyncio.Task[None]] = []
        self._lag = Lag()
        self._rss_kib: list[int] = []
        self._files: list[int] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, folder: Path, rng: random.Random, back_s: float = BACK_S) -> AsyncIterator["Run"]:
        """Start the node and all clients, and let these send until ``settle``."""
        run = cls(folder, rng, back_s)
        try:
            await asyncio.to_thread(run.node.start)
            async with contextlib.AsyncExitStack() as stack:
                for load in run.loads:
                    stack.push_async_callback(load.close)
                    await load.open(run.node)
                run._senders = [asyncio.create_task(load.run()) for load in run.loads]
                stack.push_async_callback(run._stop)
                await stack.enter_async_context(run._lag.watched())
                await run._back_since(time.monotonic())
                yield run
            run._check_stores()
        finally:
            run.node.close()
            run.ledger.close()

    async def attempt(self, fault: Fault) -> Trial:
        """Let one fault come and go; return what was seen of it, and put that into the report."""
        lasts_s = fault.draw_s(self._rng)
        self._now = fault.name
        self.ledger.note("begin", fault.name)
        try:
            await asyncio.to_thread(fault.begin)
            began_s = time.monotonic() + min(NOTICED_S, lasts_s)
            await asyncio.sleep(lasts_s)
            window = Window(began_s, time.monotonic())
        finally:
            ended_by_itself = not self.node.running and not fault.stops_node
            await asyncio.to_thread(fault.end)
        self.ledger.note("end", fault.name)
        starts_count = self.node.starts_count
        self._lag.begin()
        async with self._kept_running():
            backs = await self._back_since(time.monotonic())
        ended_by_itself = ended_by_itself or self.node.starts_count > starts_count
        self._now = "no fault"
        seen = {name: self._seen(name, window, back_s) for name, back_s in backs.items()}
        trial = Trial(fault.name, window, seen, ended_by_itself)
        self.report.trials.append(trial)
        self._judge_trial(trial)
        self._rss_kib.append(self.node.rss_kib())
        self._files.append(self.node.files_count())
        return trial

    async def settle(self) -> None:
        """End the load, let what is under way come to its end, and judge the whole run."""
        await self._stop()
        with contextlib.suppress(AssertionError):
            await eventually(lambda: not any(load.under_way_count for load in self.loads), "an end", SETTLED_S)
            await eventually(lambda: not self.ledger.owed(), "the arrival of what is owed", SETTLED_S)
        failures = self.report.failures
        failures += [line for trial in self.report.trials for line in self._unlike_table(trial)]
        failures += [f"acknowledged and not arrived: {each}" for each in self.ledger.owed()[:10]]
        failures += [f"untrue: {each}" for each in self.ledger.untrue()[:10]]
        without = [each for each in self.ledger.entries.values() if each.claim is None]
        failures += [f"without an end after {SETTLED_S:g} s: {each}" for each in without[:10]]
        self.report.counts = {load.protocol: self.ledger.counts(load.protocol) for load in self.loads}
        self._check_flat()

    @contextlib.asynccontextmanager
    async def progress(self) -> AsyncIterator[None]:
        """Print a line now and then."""
        began_s = time.monotonic()

        async def show() -> None:
            while True:
                await asyncio.sleep(PROGRESS_S)
                counts = ", ".join(
                    f"{load.protocol} {self.ledger.counts(load.protocol).get('acknowledged', 0)}" for load in self.loads
                )
                print(
                    f"{time.monotonic() - began_s:.0f} s: {len(self.report.trials)} faults, now {self._now};"
                    f" acknowledged: {counts}; {len(self.report.failures)} failures",
                    flush=True,
                )

        task = asyncio.create_task(show())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _kept_running(self) -> AsyncIterator[None]:
        """Start the node again whenever it has ended, as a service manager would."""

        async def watch() -> None:
            while True:
                if not self.node.running:
                    self.node.wait()
                    await asyncio.to_thread(self.node.start)
                await asyncio.sleep(LOOK_S)

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _stop(self) -> None:
        for task in self._senders:
            task.cancel()
        ends = await asyncio.gather(*self._senders, return_exceptions=True)
        self._senders = []
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _back_since(self, since_s: float) -> dict[str, float | None]:
        """Return for each protocol how long it took until a message was acknowledged that was sent since a moment."""
        names = [load.protocol for load in self.loads]

        def firsts() -> dict[str, float | None]:
            found = {name: self.ledger.first_acknowledged_s(name, since_s) for name in names}
            return {name: None if at_s is None else at_s - since_s for name, at_s in found.items()}

        with contextlib.suppress(AssertionError):
            await eventually(lambda: None not in firsts().values(), "an acknowledgement", GIVEN_UP_S)
        return firsts()

    def _seen(self, protocol: str, window: Window, back_s: float | None) -> Seen:
        return Seen(
            self.ledger.acknowledged_in(protocol, window),
            self.ledger.words_in(protocol, window),
            self.ledger.disconnected_in(protocol, window),
            back_s,
        )

    def _judge_trial(self, trial: Trial) -> None:
        for name, seen in trial.seen.items():
            if seen.back_s is None or seen.back_s > self._back_s:
                late = "not at all" if seen.back_s is None else f"{seen.back_s:.1f} s"
                self.report.failures.append(f"{trial.fault}: {name} acknowledged again after {late} ({self._lag})")
        if trial.node_ended:
            self.report.failures.append(f"{trial.fault}: the node ended by itself: {self.node.errors()}")

    def _unlike_table(self, trial: Trial) -> list[str]:
        """Return each cell of a fault's row that is not what happened."""
        row, window, ledger = ROWS[trial.fault].cells, trial.window, self.ledger
        found = []
        for name, cell in row.items():
            meanwhile, later = ledger.acknowledged_in(name, window), ledger.acknowledged_after(name, window)
            refused = ledger.not_sent_in(name, window)
            holds = {
                Cell.GOES_ON: meanwhile > 0,
                Cell.WAITS: meanwhile == 0 and later > 0,
                Cell.LATER: meanwhile + later > 0 and refused == 0,
                Cell.IN_PART: meanwhile + later + refused > 0,
                Cell.IF_ROOM: True,  # only what holds of every fault: nothing is lost, and all are back in time
                Cell.REFUSES: meanwhile == 0 and refused > 0,
                Cell.DOWN: meanwhile == 0,
            }[cell]
            if not holds:
                counts = f"{meanwhile} acknowledged meanwhile, {later} later, {refused} refused"
                found.append(f"{trial.fault}: {name} {cell.value}: {counts}, {dict(trial.seen[name].words)}")
        return found

    def _check_flat(self) -> None:
        rss, files = self._rss_kib, self._files
        if rss:
            self.report.figures = (
                f"{self._lag.of_all()}; {len(rss)} faults, {self.node.starts_count} starts; after the first and last"
                f" fault {rss[0] >> 10} and {rss[-1] >> 10} MiB, {files[0]} and {files[-1]} descriptors"
            )
            if max(rss) - rss[0] > GROWN_MAX_KIB:
                self.report.failures.append(f"memory has grown: {[each >> 10 for each in rss]} MiB")
            if max(files) - files[0] > FILES_GROWN_MAX:
                self.report.failures.append(f"descriptors have grown: {files}")

    def _check_stores(self) -> None:
        """See that the node ends in order, with a whole store that has what it acknowledged."""
        failures = self.report.failures
        code = self.node.stop() if self.node.running else 0
        if code:
            failures.append(f"exit code {code}: {self.node.errors()}")
        check_store(self.node.store)
        for load in self.loads:
            kept = load.kept_at_node(self.node.store)
            if kept is not None:
                lost = {each.serial for each in self.ledger.acknowledged(load.protocol)} - kept
                failures += [
                    f"acknowledged and not in the node's store: {sorted(lost)[:5]}, {len(lost)} of them"
                ] * bool(lost)
