"""Rows of datasets as frames, each column that is not named with a plain value of its type."""

import datetime
from typing import Any

from waystation.pipeline.lake import Lake
from waystation.pipeline.manifest import Batch, Manifest
from waystation.pipeline.tables import Dataset

NOON = datetime.datetime(2026, 5, 29, 12, tzinfo=datetime.UTC)
NOON_S = int(NOON.timestamp())
HOUR = datetime.timedelta(hours=1)
DAY = datetime.timedelta(days=1)
_PLAIN = {
    "array<binary>": [],
    "array<string>": [],
    "bigint": 0,
    "binary": b"\x00" * 16,
    "boolean": False,
    "date": NOON.date(),
    "double": 0.0,
    "int": 0,
    "map<int,bigint>": {},
    "map<string,string>": {},
    "string": "",
    "timestamp": NOON,
}


def frame_of(spark: Any, dataset: Dataset, *rows: dict[str, Any]) -> Any:
    """Return rows of a dataset; columns that may be null are null when they are not named."""
    plain = {column.name: None if column.nullable else _PLAIN[column.type] for column in dataset.columns}
    assert all(set(row) <= set(plain) for row in rows)
    return spark.createDataFrame([tuple((plain | row).values()) for row in rows], dataset.row_ddl())


def put_row(lake: Lake, dataset: Dataset, **changes: Any) -> None:
    """Write one row of a dataset where the lake keeps it, without Spark."""
    import pyarrow as pa  # noqa: PLC0415 - only here
    import pyarrow.parquet as pq  # noqa: PLC0415

    row = {column.name: None if column.nullable else _PLAIN[column.type] for column in dataset.columns} | changes
    batch = Batch(NOON.date(), "b", 1)
    path = lake.folder(dataset) / batch.folder / "part.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([row], dataset.arrow_schema()), path)
    manifest = Manifest((batch,), computed=frozenset({batch.event_date}))
    lake.storage.write_atomically(f"{dataset.folder}/MANIFEST.json", manifest.encode(dataset))
