"""Datasets about the pipeline itself: runs, quarantined lines and retention proofs.

The ingest step, ``jobs.retain`` and ``pipeline.run`` write them; the report reads them. A quarantined line is kept as a
hash and a reason, never as text.
"""

from typing import Final

from waystation.pipeline.tables.columns import OPERATIONAL, PUBLIC
from waystation.pipeline.tables.dataset import Column, Dataset

__all__ = ["OPS_QUARANTINE", "OPS_RETENTION", "OPS_RUNS"]

OPS_RUNS: Final = Dataset(
    "ops",
    "runs",
    "one run of the pipeline",
    (
        Column("run_id", "string", False, PUBLIC, "Name of the run."),
        Column("started_at", "string", False, PUBLIC, "UTC, ISO 8601."),
        Column("finished_at", "string", False, PUBLIC, "UTC, ISO 8601."),
        Column("engine", "string", False, PUBLIC, "Versions of Spark and Java."),
        Column(
            "steps",
            "array<struct<name:string,rows_in:bigint,rows_out:bigint,rows_rejected:bigint,seconds:double>>",
            False,
            PUBLIC,
            "What each step did.",
        ),
        Column(
            "segments",
            "array<struct<segment:string,problem:string>>",
            False,
            PUBLIC,
            "What is worth knowing of single segments.",
        ),
        Column(
            "rejections",
            "array<struct<segment:string,reason:string,hash:string>>",
            False,
            PUBLIC,
            "Rows that were not taken: reason and SHA-256, never the row.",
        ),
    ),
    ("run_id",),
    "started_at",
    90,
)


OPS_QUARANTINE: Final = Dataset(
    "ops",
    "quarantine",
    "one line of a segment that was not taken",
    (
        Column("dataset", "string", False, PUBLIC, "Dataset it was meant for."),
        Column("segment", "string", False, PUBLIC, "Segment it stands in."),
        Column("reason", "string", False, PUBLIC, "Why it was not taken."),
        Column("hash", "string", False, OPERATIONAL, "SHA-256 of the line in hexadecimal; never the line."),
    ),
    ("dataset", "segment", "hash"),
    "the segment's beginning",
    14,
)

OPS_RETENTION: Final = Dataset(
    "ops",
    "retention",
    "one dataset in one run of `retain`: the proof that nothing is older than it may be",
    (
        Column("dataset", "string", False, PUBLIC, "Dataset."),
        Column("as_of", "timestamp", False, PUBLIC, "Moment that ages were counted from."),
        Column("retention_days", "int", False, PUBLIC, "What the contract allows."),
        Column("deleted_dates", "int", False, PUBLIC, "Dates that were deleted."),
        Column("deleted_rows", "bigint", False, PUBLIC, "Rows that were deleted."),
        Column("files", "bigint", False, PUBLIC, "Files that are left, found by listing the folder."),
        Column("oldest_date", "date", True, PUBLIC, "Oldest date that is left, of the folders and of the rows."),
        Column("holds", "boolean", False, PUBLIC, "Whether nothing is left that is too old."),
    ),
    ("dataset", "as_of"),
    "as_of",
    730,
)
