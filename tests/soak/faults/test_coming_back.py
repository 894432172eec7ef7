"""NODE-BACK and STRATA-ASKAGAIN with one node and clients of all five protocols: soon back, and Strata always knows."""

import asyncio
import random
import time

import pytest

from soak.faults.kinds import Fault, Stop
from soak.faults.law import Run
from soak.faults.table import ROWS, Row
from soak.ledger import Window
from tests.server.build import until

SEED = 7
LIVES = 10
BACK_S = 20.0
"""Twice the law: the machine of a test may be busy."""

pytestmark = pytest.mark.slow


async def attempted(folder, make):
    """Return the report of a run with one fault, what became of Strata's messages, and what failed."""
    async with Run.opened(folder, random.Random(SEED), BACK_S) as run:
        trial = await run.attempt(make(run))
        await run.settle()
        words = run.ledger.words_in("strata", Window(0.0, time.monotonic()))
    return trial, words, [line for line in run.report.failures if "strata" in line or "again after" in line]


@pytest.fixture(autouse=True)
def row(monkeypatch):
    """What each protocol does while a node flaps is not the law here."""
    monkeypatch.setitem(ROWS, Flapping.name, Row(Flapping.what, {}))


class Flapping(Fault):
    """The node is killed as soon as it has acknowledged anything, again and again."""

    name = "flapping"
    what = "the process dies again and again"
    lasts_s = (0.0, 0.0)
    stops_node = True

    def __init__(self, run):
        super().__init__(run.node)
        self._ledger = run.ledger
        self._protocols = [load.protocol for load in run.loads]

    def begin(self):
        for _ in range(LIVES):
            self._node.kill()
            self._node.start()
            since_s = time.monotonic()
            until(
                lambda since_s=since_s: any(
                    self._ledger.first_acknowledged_s(name, since_s) is not None for name in self._protocols
                ),
                "an acknowledgement",
            )

    def end(self):
        pass


class LongStop(Stop):
    """Long enough that clients give their connections up and dial a process that stands still."""

    lasts_s = (40.0, 40.0)


def test_clients_are_back_after_flapping(tmp_path):
    """A node that died ten times has every client back within the time; no packet of Strata is unknown."""
    trial, words, failures = asyncio.run(attempted(tmp_path, Flapping))

    assert failures == []
    assert all(seen.back_s <= BACK_S for seen in trial.seen.values())
    assert "unknown" not in words


def test_clients_are_back_after_a_long_stop(tmp_path):
    """SIGSTOP beyond the silence that ends connections, SIGCONT: every client is back; no packet is unknown."""
    trial, words, failures = asyncio.run(attempted(tmp_path, lambda run: LongStop(run.node)))

    assert failures == []
    assert all(seen.back_s <= BACK_S for seen in trial.seen.values())
    assert "unknown" not in words
