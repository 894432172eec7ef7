"""What footers tell, without Spark."""

import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from waystation.pipeline.footers import misfits, oldest_row_date
from waystation.pipeline.storage import Storage
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_CAPACITY, GOLD_OUTCOMES, OPS_QUARANTINE

LATE = datetime.datetime(2026, 5, 30, 1, tzinfo=datetime.UTC)
EARLY = datetime.datetime(2026, 5, 29, 23, tzinfo=datetime.UTC)
ZONED = pa.timestamp("us", "UTC")


def write(tmp_path, columns: dict[str, pa.Array], **options) -> Storage:
    """Write one file and return where it lies."""
    pq.write_table(pa.table(columns), tmp_path / "f.parquet", **options)
    return Storage(tmp_path)


def test_oldest_row_is_found_with_and_without_statistics(tmp_path) -> None:
    """The date of the oldest row comes from statistics, or from the rows where there are none."""
    nested = pa.array([[("a", "b")]] * 2, pa.map_(pa.string(), pa.string()))
    columns = {"attrs": nested, "ts": pa.array([LATE, EARLY], ZONED)}
    with_statistics = oldest_row_date(write(tmp_path, columns, row_group_size=1), "f.parquet", BRONZE_EVENTS)
    without = oldest_row_date(write(tmp_path, columns, write_statistics=False), "f.parquet", BRONZE_EVENTS)
    day = oldest_row_date(write(tmp_path, {"day": pa.array([LATE.date()])}), "f.parquet", GOLD_CAPACITY)

    assert with_statistics == without == EARLY.date()
    assert day == LATE.date()


def test_rows_without_a_time_have_no_date(tmp_path) -> None:
    """No rows, only nulls, or a dataset dated by something that is no column: no date."""
    empty = write(tmp_path, {"ts": pa.array([], ZONED)})
    assert oldest_row_date(empty, "f.parquet", BRONZE_EVENTS) is None
    nulls = write(tmp_path, {"ts": pa.array([None], ZONED)})
    assert oldest_row_date(nulls, "f.parquet", BRONZE_EVENTS) is None
    assert oldest_row_date(nulls, "f.parquet", OPS_QUARANTINE) is None


def test_columns_are_held_to_the_contract(tmp_path) -> None:
    """A column may be missing from an older file; one that is unknown or of another type is named."""
    good = {"n": pa.array([1]), "hour": pa.array([LATE], pa.timestamp("us"))}
    fitting = misfits(write(tmp_path, good), "f.parquet", GOLD_OUTCOMES)
    bad = misfits(
        write(tmp_path, good | {"n": pa.array(["1"]), "payload": pa.array(["x"])}), "f.parquet", GOLD_OUTCOMES
    )

    assert fitting == []
    assert bad == ["n", "payload"]
