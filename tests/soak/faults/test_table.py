"""Each row of the table of faults in docs/operating.md, tried with one node and clients of all five protocols."""

import asyncio
import random
from pathlib import Path

import pytest

from soak.faults.kinds import FAULTS, PowerCut
from soak.faults.law import Run
from soak.faults.table import OTHERS, PROTOCOLS, ROWS, render
from soak.invariants import eventually
from soak.shims.preload import Word

SEED = 5
BACK_S = 20.0
"""Twice what the page says: the machine of a test may be busy."""


async def attempted(folder, kind):
    """Return the report of a run with one fault."""
    async with Run.opened(folder, random.Random(SEED), BACK_S) as run:
        await run.attempt(kind(run.node))
        await run.settle()
    return run.report


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.name)
def test_row_holds(tmp_path, kind):
    """The five cells of the row are what happens, and nothing that was acknowledged is lost or untrue."""
    report = asyncio.run(attempted(tmp_path, kind))

    assert not report.failures, str(report)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_store_without_syncs_is_found(tmp_path):
    """A power cut under load is found when the node's syncs do nothing: what it acknowledged is not in its store."""

    async def cut():
        async with Run.opened(tmp_path, random.Random(SEED), BACK_S) as run:
            run.node.shims[Word.FSYNC_FORGOTTEN] = 1
            await eventually(lambda: len(run.ledger.acknowledged("strata")) > 20, "an acknowledgement", 60)
            await run.attempt(PowerCut(run.node))
            await run.settle()
        return run.report

    with pytest.raises(AssertionError):  # the node does not start on what is left, or has lost something
        assert not asyncio.run(cut()).failures


def test_every_fault_has_its_row():
    """The table has one row for each fault, in the same order, with a cell for each protocol."""
    assert list(ROWS) == [kind.name for kind in FAULTS]
    assert all(tuple(row.cells) == PROTOCOLS for row in ROWS.values())


def test_page_says_every_cell():
    """The page has a line for each fault with five cells."""
    lines = [line for line in render().splitlines() if line.startswith("| ")]
    cells = [line for line in lines if line.count("|") == len(PROTOCOLS) + 2]

    assert len(cells) == 1 + len(ROWS)
    assert len(lines) == 2 + len(ROWS) + len(OTHERS)


@pytest.mark.parametrize("test", [test for _, _, test in OTHERS])
def test_other_rows_have_their_test(test):
    """What the page says of other faults is tried by a file that is there."""
    assert "def test_" in (Path(__file__).parents[3] / test).read_text()
