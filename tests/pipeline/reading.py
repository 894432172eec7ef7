"""What a lake's tables hold, read without Spark."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import DATASETS, Dataset


def rows_of(lake: Lake, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the rows that count, each with its ``event_date``."""
    rows: list[dict[str, Any]] = []
    for batch in lake.manifest(dataset).batches:
        folder = Path(lake.folder(dataset)) / f"event_date={batch.event_date}" / f"batch={batch.batch}"
        for path in folder.glob("*.parquet"):
            rows += [{**row, "event_date": batch.event_date} for row in pq.ParquetFile(path).read().to_pylist()]
    return rows


def table_hashes(lake: Lake) -> dict[str, str]:
    """Return one hash for each table, over its rows in any order."""
    return {
        dataset.full_name: hashlib.sha256(
            "\n".join(sorted(repr(sorted(row.items())) for row in rows_of(lake, dataset))).encode()
        ).hexdigest()
        for dataset in DATASETS
    }
