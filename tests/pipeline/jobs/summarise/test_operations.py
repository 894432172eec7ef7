"""What is told of machines and of the pipeline."""

import datetime

import pytest

from tests.pipeline.jobs.summarise.build import DAY, NOON, NOON_S, frame_of
from waystation.pipeline.jobs.step import DateRange, Problem
from waystation.pipeline.jobs.summarise.operations import RUNS_MAX, capacity, quarantine, retention, row_counts, runs
from waystation.pipeline.lake import Lake
from waystation.pipeline.report import QuarantineRow, StepRow
from waystation.pipeline.tables import GOLD_CAPACITY, OPS_QUARANTINE, OPS_RETENTION, OPS_RUNS


@pytest.mark.spark
def test_newest_rows_of_ops_and_capacity(spark) -> None:
    """Days are in order, of each dataset's proofs the newest counts, and turned down lines are counted by reason."""
    days = [{"node_id": "n", "day": NOON.date() + DAY * n, "store_bytes": n} for n in (1, 0)]
    proofs = [{"dataset": "d", "as_of": NOON + DAY * n, "holds": n == 1, "files": n} for n in range(2)]
    lines = [{"dataset": "d", "reason": "bad", "hash": f"{n}"} for n in range(3)]
    proof = retention(frame_of(spark, OPS_RETENTION, *proofs))

    assert [row.store_bytes for row in capacity(frame_of(spark, GOLD_CAPACITY, *days))] == [0, 1]
    assert [(row.as_of_s, row.holds, row.files, row.oldest) for row in proof] == [(NOON_S + 86_400, True, 1, None)]
    assert quarantine(frame_of(spark, OPS_QUARANTINE, *lines)) == [QuarantineRow("d", "bad", 3)]


def test_newest_runs_come_first(tmp_path) -> None:
    """Runs are read over several days, at most twenty, the newest first."""
    lake, first = Lake(tmp_path), datetime.date(2026, 5, 29)
    step = {"name": "ingest", "rows_in": 5, "rows_out": 4, "rows_rejected": 1, "seconds": 0.5, "more": True}
    for number in range(25):
        document = {
            "run_id": f"r{number:02}",
            "started_at": "a",
            "finished_at": "b",
            "steps": [step],
            "segments": [{"segment": "s", "problem": "torn"}],
        }
        lake.write_run(OPS_RUNS, f"r{number:02}", first + datetime.timedelta(days=number // 20), document)
    found = runs(lake)

    assert [row.run_id for row in found] == [f"r{number:02}" for number in range(24, 24 - RUNS_MAX, -1)]
    assert found[0].steps == [StepRow("ingest", 5, 4, 1, 0.5)]
    assert found[0].problems == [Problem("s", "torn")]


def test_empty_lake_has_no_rows(tmp_path) -> None:
    """Every dataset but the runs is listed, with nothing in it."""
    counts = dict(row_counts(Lake(tmp_path), DateRange()))

    assert set(counts.values()) == {0}
    assert "ops.runs" not in counts
    assert not runs(Lake(tmp_path))
