"""Shared code of all benchmarks: options, rounds, processes on given cores, and a report of medians, spread and ratios.

Each round measures every case once, in turn, so that other load on the machine affects all of them.
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from tools.served import ServedNode, ServedProcess

T = TypeVar("T")
Figures = dict[str, float]
"""Numbers by name."""
Cases = Mapping[str, Callable[[Any], Figures]]
"""What each case measures, given the options; ``--only`` chooses some."""
Aims = Mapping[str, Callable[[Figures], float]]
"""What the medians are compared for; an aim is left out when a figure of it was not measured."""
IDLE_FIRST = 32
"""Connected before the count begins, so that what is allocated once is not counted."""
_SPAWN = multiprocessing.get_context("spawn")


class Bench:
    """One benchmark: its options, what it prints, and what it writes."""

    def __init__(
        self, doc: str | None, cases: Cases | None = None, *, rounds: int = 0, pins: bool = False, **sizes: float
    ) -> None:
        """Read the command line.

        Args:
            doc: What the benchmark is, with its usage.
            cases: What it measures.
            rounds: How often everything is measured by default; 0 when there is one round.
            pins: Whether this process, the load, stays on the last processor.
            sizes: Further options with their defaults.
        """
        self._cases = cases or {}
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        for name, value in (sizes | ({"rounds": rounds} if rounds else {})).items():
            parser.add_argument(f"--{name}", type=type(value), default=value)
        parser.add_argument("--only", default=",".join(self._cases), help=f"of {', '.join(self._cases)}")
        parser.add_argument("--json", type=Path, help="where all numbers go")
        parser.set_defaults(rounds=rounds or 1)
        self.options = parser.parse_args()
        if pins:
            os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})

    def run(self, text: str, aims: Aims) -> None:
        """Print what is measured, measure it in each round, and report."""
        self.title(text)
        chosen = self.options.only.split(",")
        rounds: list[Figures] = []
        for _ in range(self.options.rounds):
            rounds.append({})
            for name, measure in self._cases.items():
                rounds[-1] |= measure(self.options) if name in chosen else {}
        self.report(rounds, aims)

    def compare(self, text: str, measure: Callable[[Any], Sequence[Figures]], aim: str) -> None:
        """Print what is compared, let all rounds be measured at once, and report; ``aim`` is that of the ratio."""
        self.title(text)
        self.report(measure(self.options), {aim: itemgetter("ratio")})

    def title(self, text: str) -> None:
        """Print what is measured, and where."""
        git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        commit = git.stdout.strip() or "unknown"
        print(f"{text}; {os.cpu_count()} cores; {platform.platform()}; commit {commit}", flush=True)

    def report(self, rounds: Sequence[Figures], aims: Aims) -> None:
        """Print the median of every figure with least and most, then the ratios of the medians; write all of it."""
        medians = {name: statistics.median(taken[name] for taken in rounds) for name in rounds[0]}
        for name, value in medians.items():
            values = [taken[name] for taken in rounds]
            print(f"  {name:36} {_shown(value):>12}   {_shown(min(values)):>12} to {_shown(max(values))}")
        ratios = {}
        for name, aim in aims.items():
            with suppress(KeyError):
                ratios[name] = aim(medians)
                print(f"  {name:70} {_shown(ratios[name])}", flush=True)
        if self.options.json:
            kept = {"medians": medians, "ratios": ratios, "rounds": list(rounds)}
            self.options.json.write_text(json.dumps(kept, indent=1))


def _shown(value: float) -> str:
    return f"{value:,.3f}" if abs(value) >= 0.1 else f"{value:.3g}"


def module(name: str, *arguments: object) -> list[str]:
    """Return the command that runs a module with this interpreter."""
    return [sys.executable, "-m", name, *map(str, arguments)]


@contextmanager
def served(
    protocol: str, *floor: str, cores: Collection[int] = (0,), home: Path | None = None, **settings: Any
) -> Iterator[ServedProcess]:
    """Run a node with one protocol, or the command of a floor in its place, on its own cores."""
    with tempfile.TemporaryDirectory() as folder:
        if floor:
            server = ServedProcess(*floor, cores=cores)
        else:
            server = ServedNode(home or Path(folder), protocol, cores=cores, **settings | {"node__log_level": "error"})
        with server.start():
            yield server
            if server.running:
                server.stop()


def measured(
    measure: Callable[[ServedProcess], Coroutine[Any, Any, T]], protocol: str, *floor: str, **settings: Any
) -> T:
    """Return what is measured of a node, or of a floor in its place, that runs only for this."""
    with served(protocol, *floor, **settings) as server:
        return uvloop.run(measure(server))


async def idle_kib(
    server: ServedProcess, count: int, connect: Callable[[int, int], Coroutine[Any, Any, Sequence[Any]]]
) -> float:
    """Return the KiB that an idle connection costs a server; ``connect`` opens so many, from a number on."""
    first = await connect(IDLE_FIRST, 1)
    await asyncio.sleep(0.5)
    before = server.rss_kib()
    others = await connect(count, 1 + IDLE_FIRST)
    await asyncio.sleep(0.5)
    grown = server.rss_kib() - before
    assert not any(client.lost for client in (*first, *others))
    return grown / count


@contextmanager
def working(work: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Run a function in a process of its own; it gets the other end of this pipe and the arguments."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    with ours:
        yield ours
    process.join()
    assert process.exitcode == 0, f"{work.__name__} ended with {process.exitcode}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return what ``share`` of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that some work takes, without what others left to collect, and what it gives."""
    gc.collect()
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def cpu_us(work: Callable[[], object], times: int, rounds: int) -> list[float]:
    """Return the CPU microseconds of one call of some work, in each of some rounds of so many calls."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(times):
            work()
        taken.append((time.process_time() - began) / times * 1e6)
    return taken


def compared(
    sides: Mapping[str, Callable[[], Any]], expected: Callable[[Any], object], rounds: int, warm_rounds: int = 1
) -> list[Figures]:
    """Return the seconds of two or more sides by name, in turn in each round, and the first over the second.

    Args:
        sides: Work; all must find the same.
        expected: Whether that is right.
        rounds: How many are returned.
        warm_rounds: How many come before them and do not count.
    """
    taken: list[Figures] = []
    for _ in range(warm_rounds + rounds):
        seconds, found = zip(*map(timed, sides.values()), strict=True)
        assert all(one == found[0] and expected(one) for one in found), "the sides differ"
        taken.append({f"{name} s": one for name, one in zip(sides, seconds, strict=True)})
        taken[-1]["ratio"] = seconds[0] / seconds[1]
    return taken[warm_rounds:]
