"""Compaction changes files and nothing else."""

import datetime

import pytest

from tests.pipeline.build import AS_OF, context_of
from waystation.core.errors import HostError
from waystation.pipeline import lake as lake_module
from waystation.pipeline.jobs.compact import compact
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import OPS_QUARANTINE

pytestmark = pytest.mark.spark

TODAY = AS_OF.date()
DAYS = [TODAY - datetime.timedelta(days=age) for age in (2, 1, 0)]
DDL = f"{OPS_QUARANTINE.row_ddl()}, event_date date"


def append(spark, lake: Lake, batch: str) -> None:
    """Add a row to each of three days."""
    rows = [("bronze.events", f"s-{batch}", "unparsable", f"{day}", day) for day in DAYS]
    lake.append(spark.createDataFrame(rows, DDL).coalesce(1), OPS_QUARANTINE, batch, ())


def test_closed_days_become_one_file_each(spark, tmp_path) -> None:
    """Closed days are rewritten with the same rows, today is not; old files go at a later write, after their time."""
    lake = Lake(tmp_path)
    for batch in "cab":
        append(spark, lake, batch)
    reader = lake.read(spark, OPS_QUARANTINE)
    before = sorted(map(str, reader.drop("batch").collect()))
    counts = compact(context_of(spark, lake, "r1"), files_max=2)
    after = lake.read(spark, OPS_QUARANTINE)
    read_meanwhile = reader.count()
    manifest = lake.manifest(OPS_QUARANTINE)
    again = compact(context_of(spark, lake, "r2"), files_max=2)

    assert (counts.rows_in, counts.rows_out) == (6, 6)
    assert sorted(map(str, after.drop("batch").collect())) == before
    assert read_meanwhile == len(before)
    assert [sum(entry.event_date == day for entry in manifest.batches) for day in DAYS] == [1, 1, 3]
    assert len(manifest.retired) == 6
    assert (again.rows_in, again.rows_out) == (0, 0)


def test_retired_files_are_swept_after_their_time(spark, tmp_path, monkeypatch) -> None:
    """With no time to wait, the old files are gone at once; a merge that would change rows is refused."""
    monkeypatch.setattr(lake_module, "RETIRED_S", 0)
    lake = Lake(tmp_path)
    for batch in "ab":
        append(spark, lake, batch)
    lake.merge(spark, OPS_QUARANTINE, DAYS[:1], "merged", ("hash",))
    left = lake.storage.folders(f"{OPS_QUARANTINE.folder}/event_date={DAYS[0]}")
    part = next((lake.folder(OPS_QUARANTINE) / f"event_date={DAYS[1]}" / "batch=a").glob("*.parquet"))
    part.unlink()
    with pytest.raises(HostError, match="would change its rows"):
        lake.merge(spark, OPS_QUARANTINE, DAYS[1:2], "worse", ("hash",))

    assert left == ["batch=merged"]
    assert lake.storage.folders(f"{OPS_QUARANTINE.folder}/event_date={DAYS[1]}") >= ["batch=a", "batch=b"]
