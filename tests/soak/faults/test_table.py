"""Each row of the table of faults in docs/operating.md, tried with one node and clients of all five protocols."""

import asyncio
import random

import pytest

from soak.faults.kinds import FAULTS
from soak.faults.law import Run
from soak.faults.table import PROTOCOLS, ROWS, render

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
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.name)
def test_row_holds(tmp_path, kind):
    """The five cells of the row are what happens, and nothing that was acknowledged is lost or untrue."""
    report = asyncio.run(attempted(tmp_path, kind))

    assert not report.failures, str(report)


def test_every_fault_has_its_row():
    """The table has one row for each fault, in the same order, with a cell for each protocol."""
    assert list(ROWS) == [kind.name for kind in FAULTS]
    assert all(tuple(row.cells) == PROTOCOLS for row in ROWS.values())


def test_page_says_every_cell():
    """The page has a line for each fault with five cells."""
    lines = [line for line in render().splitlines() if line.startswith("| ")]

    assert len(lines) == 1 + len(ROWS)
    assert all(line.count("|") == len(PROTOCOLS) + 2 for line in lines)
