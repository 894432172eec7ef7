"""Types for dataset declarations: columns with privacy classes, key, and row retention.

The modules of ``tables`` declare with them; ``lake``, ``checks`` and steps read the declarations. DDL, Arrow schemas,
golden files and docs/tables.md are generated from these declarations. Columns may only be added (as nullable) or
widened. Any other change needs a new dataset version in its own folder. Files have two more columns, the partition:
``event_date`` and ``batch``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from waystation.journal.contract import Privacy

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PARTITION_DDL", "Column", "Dataset"]

PARTITION_DDL: Final = "`event_date` date, `batch` string"
"""Partition columns that every dataset has after its own."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a dataset."""

    name: str
    type: str
    """Spark SQL type."""
    nullable: bool
    privacy: Privacy
    meaning: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset and what is promised about it."""

    layer: str
    """``bronze``, ``silver``, ``gold`` or ``ops``."""
    name: str
    grain: str
    """What one row is."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """Columns that identify a row."""
    dated_by: str
    """What ``event_date`` is the UTC date of."""
    retention_days: int
    """Rows of dates longer ago than this are deleted."""
    version: int = 1

    @property
    def full_name(self) -> str:
        """Layer and name, such as ``silver.deliveries``."""
        return f"{self.layer}.{self.name}"

    @property
    def folder(self) -> str:
        """Where it lies below the root of the lake."""
        return f"{self.layer}/{self.name}/v={self.version}"

    def names(self) -> list[str]:
        """Return the column names in order, without the partition columns."""
        return [column.name for column in self.columns]

    def ddl(self) -> str:
        """Return the Spark schema of the files, partition columns included."""
        return f"{self.row_ddl()}, {PARTITION_DDL}"

    def row_ddl(self) -> str:
        """Return the Spark schema of a row, without the partition columns."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    def arrow_schema(self) -> "pa.Schema":
        """Return the Arrow schema of a row, without the partition columns; no JVM is needed."""
        import pyarrow as pa  # noqa: PLC0415 - part of an extra

        return pa.schema([pa.field(column.name, _arrow_type(column.type), column.nullable) for column in self.columns])


def _arrow_type(text: str) -> "pa.DataType":
    import pyarrow as pa  # noqa: PLC0415 - part of an extra

    if text.startswith("array<"):
        return pa.list_(_arrow_type(text[len("array<") : -1]))
    if text.startswith("map<"):
        key, _, value = text[len("map<") : -1].partition(",")
        return pa.map_(_arrow_type(key), _arrow_type(value))
    return {
        "bigint": pa.int64(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "double": pa.float64(),
        "int": pa.int32(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[text]
