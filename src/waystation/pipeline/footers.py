"""Reads Parquet footers: the date of the oldest row in a file, and columns that differ from the dataset's contract.

``checks`` compares columns with it, ``jobs.retain`` proves by it that no row is older than allowed. Only footers are
read, so the cost does not depend on the number of rows.
"""

import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waystation.pipeline.storage import Storage
from waystation.pipeline.tables import Dataset

__all__ = ["misfits", "oldest_row_date"]


def oldest_row_date(storage: Storage, path: str, dataset: Dataset) -> datetime.date | None:
    """Return the UTC date of a file's oldest row, or None without rows or where no column holds that time."""
    with storage.open(path) as file:
        reader = pq.ParquetFile(file)
        if dataset.dated_by not in reader.schema_arrow.names or not reader.metadata.num_rows:
            return None
        dates = [_oldest(reader, group, dataset.dated_by) for group in range(reader.metadata.num_row_groups)]
    return min((date for date in dates if date is not None), default=None)


def misfits(storage: Storage, path: str, dataset: Dataset) -> list[str]:
    """Return the columns of a file that the contract does not have, or has of another type."""
    with storage.open(path) as file:
        found = pq.read_schema(file)
    promised = dataset.arrow_schema()
    return sorted(
        field.name
        for field in found
        if field.name not in promised.names or not _same(field.type, promised.field(field.name).type)
    )


def _oldest(reader: pq.ParquetFile, group: int, column: str) -> datetime.date | None:
    place = _leaf(reader, column)
    statistics = reader.metadata.row_group(group).column(place).statistics if place is not None else None
    if statistics is not None and statistics.has_min_max:
        return _date(statistics.min)
    return _date(pc.min(reader.read_row_group(group, columns=[column]).column(0)).as_py())


def _leaf(reader: pq.ParquetFile, column: str) -> int | None:
    """Return a column's place among the leaves: nested columns before it have several."""
    names = [reader.metadata.schema.column(place).path for place in range(reader.metadata.num_columns)]
    return names.index(column) if column in names else None


def _date(value: Any) -> datetime.date | None:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).date() if value.tzinfo is not None else value.date()
    return value if isinstance(value, datetime.date) else None


def _same(found: pa.DataType, promised: pa.DataType) -> bool:
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(promised):
        return bool(found.unit == promised.unit)  # Spark leaves the zone out of some files; all are UTC
    return bool(found == promised)
