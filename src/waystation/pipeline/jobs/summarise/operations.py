"""Report queries for capacity, retention, quarantine and pipeline runs.

``summarise.whole`` calls them with Spark tables and puts the lists that come out into the ``Summary``.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import DateRange, Problem
from waystation.pipeline.jobs.summarise.reading import seconds
from waystation.pipeline.lake import Lake
from waystation.pipeline.report import CapacityRow, QuarantineRow, RetentionRow, RunRow, StepRow
from waystation.pipeline.tables import DATASETS, OPS_RUNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["RUNS_MAX", "capacity", "quarantine", "retention", "row_counts", "runs"]

RUNS_MAX: Final = 20
"""Newest runs that the report lists."""
_CAPACITY_ROWS_MAX: Final = 2_000
_RETENTION_MAX: Final = 100
_QUARANTINE_MAX: Final = 100


def capacity(gold: "DataFrame") -> list[CapacityRow]:
    """Return the newest rows of ``gold.capacity``, by node and day."""
    columns = (
        *("node_id", "day", "peak_connections", "messages", "messages_per_s_p99", "bytes_in", "bytes_out", "cpu_us"),
        *("memory_bytes", "store_bytes", "growth_bytes_day", "days_to_full", "pow_accepted", "pow_turned_down"),
    )
    newest = gold.orderBy(F.desc("day"), "node_id").limit(_CAPACITY_ROWS_MAX).select(*columns)
    return sorted((CapacityRow(*row) for row in newest.collect()), key=lambda row: (row.node_id, row.day))


def retention(ops: "DataFrame") -> list[RetentionRow]:
    """Return the newest row of each dataset in ``ops.retention``."""
    columns = ("retention_days", "deleted_dates", "deleted_rows", "files", "oldest_date", "holds")
    newest = ops.groupBy("dataset").agg(F.max_by(F.struct("as_of", *columns), F.col("as_of")).alias("row"))
    shown = newest.select("dataset", "row.*").orderBy("holds", "dataset").limit(_RETENTION_MAX)
    return [RetentionRow(*row) for row in shown.select("dataset", seconds("as_of"), *columns).collect()]


def quarantine(ops: "DataFrame") -> list[QuarantineRow]:
    """Return ``ops.quarantine`` counted by dataset and reason, the most frequent first."""
    counted = ops.groupBy("dataset", "reason").agg(F.count("*").alias("n"))
    most = counted.orderBy(F.desc("n"), "dataset", "reason").limit(_QUARANTINE_MAX)
    return [QuarantineRow(*row) for row in most.collect()]


def runs(lake: Lake) -> list[RunRow]:
    """Return the newest runs: their reports are small files of one line, named by when they began."""
    storage = lake.storage
    newest: list[RunRow] = []
    for folder in reversed(storage.folders(OPS_RUNS.folder)):
        paths = [path for path in storage.files(f"{OPS_RUNS.folder}/{folder}") if path.endswith(".json")]
        for path in reversed(paths[-RUNS_MAX:]):
            text = storage.read_text(path)
            newest += [] if text is None else [_run(json.loads(text))]
        if len(newest) >= RUNS_MAX:
            break
    return newest[:RUNS_MAX]


def _run(document: Mapping[str, Any]) -> RunRow:
    steps = [
        StepRow(step["name"], step["rows_in"], step["rows_out"], step["rows_rejected"], step["seconds"])
        for step in document["steps"]
    ]
    problems = [Problem(each["segment"], each["problem"]) for each in document["segments"]]
    return RunRow(document["run_id"], document["started_at"], document["finished_at"], steps, problems)


def row_counts(lake: Lake, dates: DateRange) -> list[tuple[str, int]]:
    """Return the rows of each dataset on the chosen dates, by its manifest."""
    counts = []
    for dataset in DATASETS:
        if dataset is not OPS_RUNS:
            manifest = lake.manifest(dataset)
            chosen = set(dates.select(manifest.dates()))
            counts.append((dataset.full_name, sum(b.rows for b in manifest.batches if b.event_date in chosen)))
    return counts
