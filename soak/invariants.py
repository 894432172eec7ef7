"""Checks that all long tests share: clean shutdown, intact stores, bounded and flat memory, and no loss after kills."""

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tools.served import ServedProcess

ROUNDS: Final = 4
"""How often each load comes while memory is looked at."""
_STORE_EVERY: Final = 20


@contextmanager
def ended_well(*nodes: ServedProcess) -> Iterator[None]:
    """See that nodes end in order and have logged no exception; nothing of them runs afterwards."""
    try:
        yield
        for node in nodes:
            assert not node.running or node.stop() == 0, node.log()[-2_000:]
            assert "Traceback" not in node.log(), node.log()[-4_000:]
    finally:
        for node in nodes:
            node.close()


def check_store(path: Path) -> None:
    """See that the file of an ended node is whole."""
    with closing(sqlite3.connect(path)) as store:
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def kill_in_rounds(
    rng: random.Random, rounds: int, moment_max_s: float, check: Callable[[], None], kill: Callable[[int, float], Path]
) -> None:
    """Load and kill something again and again.

    Args:
        rng: Draws the moments.
        rounds: How many kills.
        moment_max_s: The longest that a load lasts before the kill.
        check: Sees, with everything running, that nothing was lost; called before the first kill and after each.
        kill: Loads, kills after so many seconds, and returns the store of what was killed, which does not run.
    """
    check()
    for number in range(rounds):
        store = kill(number, rng.uniform(0, moment_max_s))
        if number % _STORE_EVERY == 0 or number == rounds - 1:
            check_store(store)
        check()


class Memory:
    """Resident memory of some processes over several rounds of one load."""

    def __init__(self, what: str, read: Sequence[Callable[[], int]]) -> None:
        """Look at it for the first time; ``read`` gives the KiB of each process."""
        self._what = what
        self._read = read
        self._before = [each() for each in read]
        self._rounds: list[list[int]] = []
        self._peak = [0 for _ in read]

    def look(self) -> None:
        """Remember the most of this round."""
        self._peak = [max(peak, each()) for peak, each in zip(self._peak, self._read, strict=True)]

    def end_round(self) -> None:
        """Look, and begin the next round."""
        self.look()
        self._rounds.append(self._peak)
        self._peak = [0 for _ in self._read]

    def check(self, grown_max_kib: int, drift_kib: int | None) -> str:
        """See that memory is bounded, and in the last round not much more than before; return the figures.

        Args:
            grown_max_kib: What any round may take beyond the memory before the first.
            drift_kib: What the last round may take beyond all before it; None where more may wait in each.
        """
        columns = list(zip(*self._rounds, strict=True))
        shown = f"{self._what}: MiB before and after each round " + ", ".join(
            f"{before >> 10}: " + " ".join(f"{each >> 10}" for each in rounds)
            for before, rounds in zip(self._before, columns, strict=True)
        )
        print(shown, flush=True)
        for before, (*first, last) in zip(self._before, columns, strict=True):
            assert max(*first, last) - before <= grown_max_kib, shown
            assert drift_kib is None or last <= max(first) + drift_kib, shown
        return shown

    def check_flat(self, warm_rounds: int, drift_max: float) -> str:
        """See that memory stays within a share around its middle once it is warm; return the figures of all rounds."""
        for column in zip(*self._rounds, strict=True):
            warm = [kib for kib in column[warm_rounds:] if kib]
            middle = (max(warm) + min(warm)) / 2
            drift = (max(warm) - min(warm)) / 2 / middle
            assert drift <= drift_max, f"{self._what}: {drift:.1%} around {middle:.0f} KiB: {column}"
        return ", ".join("+".join(map(str, row)) for row in self._rounds[:: max(1, len(self._rounds) // 12)])


def flat_under_floods(
    node: ServedProcess,
    floods: Mapping[str, Callable[[], None]],
    serve: Callable[[], None],
    grown_max_kib: int,
    drift_kib: int,
    growing: Collection[str] = (),
) -> str:
    """Let each flood come several times, and honest clients be served after each; check memory, return the figures.

    Args:
        node: Whose memory is looked at.
        floods: What comes, by name.
        serve: Sees that honest clients are served.
        grown_max_kib: As for ``Memory.check``; so is ``drift_kib``.
        drift_kib: For all floods but those that are ``growing``.
        growing: Names of floods of which more may wait in each round.
    """
    figures = []
    for name, load in floods.items():
        memory = Memory(name, [node.rss_kib])
        for _ in range(ROUNDS):
            load()
            serve()
            memory.end_round()
        figures.append(memory.check(grown_max_kib, None if name in growing else drift_kib))
    return "; ".join(figures)


async def eventually(holds: Callable[[], bool], what: str, within_s: float) -> None:
    """Return once something is true; fail when it is not in time."""
    ends_at = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends_at, f"{what} did not happen within {within_s:g} s"
        await asyncio.sleep(0.05)
