"""Retention deletes what is too old, and proves it."""

import datetime
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.journal.build import NOON_US, name_at
from tests.pipeline.build import AS_OF, context_of
from waystation.core.errors import HostError
from waystation.pipeline.jobs.retain import counted_from, forget_checkpoints, retain
from waystation.pipeline.lake import MANIFEST, Lake
from waystation.pipeline.manifest import Batch, Manifest, Place
from waystation.pipeline.tables import BRONZE_EVENTS, OPS_RETENTION, OPS_RUNS

TODAY = AS_OF.date()
LIMIT = TODAY - datetime.timedelta(days=BRONZE_EVENTS.retention_days)


def put_day(lake: Lake, date: datetime.date, rows_on: datetime.date) -> Batch:
    """Write a batch of one event whose own time may be another day's."""
    entry = Batch(date, "one", 1)
    at = datetime.datetime.combine(rows_on, datetime.time(12), datetime.UTC)
    folder = lake.folder(BRONZE_EVENTS) / entry.folder
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"ts": pa.array([at], pa.timestamp("us", "UTC"))}), folder / "part-0.parquet")
    return entry


def put_manifest(lake: Lake, manifest: Manifest) -> None:
    """Replace the manifest of the events."""
    lake.storage.write_atomically(f"{BRONZE_EVENTS.folder}/{MANIFEST}", manifest.encode(BRONZE_EVENTS))


@pytest.mark.spark
def test_old_dates_go_and_the_proof_is_kept(spark, tmp_path) -> None:
    """Dates before the limit are deleted with their files, names of segments and run reports; the rest stays."""
    lake, old_day = Lake(tmp_path), LIMIT - datetime.timedelta(days=1)
    days = [put_day(lake, date, date) for date in (old_day, LIMIT, TODAY)]
    stray = put_day(lake, old_day - datetime.timedelta(days=1), old_day)
    names = [name_at(NOON_US - 30 * 86_400_000_000).text, name_at(NOON_US).text]
    started = {name: Place(1, 2) for name in names}
    put_manifest(lake, Manifest(tuple(days), frozenset(names), frozenset({old_day, TODAY}), started))
    for date in (TODAY, TODAY - datetime.timedelta(days=91)):
        lake.write_run(OPS_RUNS, "r1", date, {})
    counts = retain(context_of(spark, lake, "r1"))
    proofs = {row["dataset"]: row.asDict() for row in lake.read(spark, OPS_RETENTION).collect()}
    after = lake.manifest(BRONZE_EVENTS)

    assert (after.batches, after.computed) == (tuple(days[1:]), {TODAY})
    assert after.segments == set(after.started) == {names[1]}
    assert after.is_closed(names[0])
    assert not list(lake.folder(BRONZE_EVENTS).glob(f"event_date={stray.event_date}"))
    assert counts.rows_in == 2
    proof = proofs["bronze.events"]
    assert [proof[name] for name in ("deleted_dates", "deleted_rows", "files", "oldest_date")] == [2, 1, 2, LIMIT]
    assert [proofs["ops.runs"][name] for name in ("deleted_dates", "deleted_rows", "files")] == [1, 1, 1]
    assert all(row["holds"] for row in proofs.values())


@pytest.mark.spark
def test_old_row_in_a_young_folder_is_found(spark, tmp_path) -> None:
    """A row older than its folder says breaks the proof, which is kept all the same."""
    lake = Lake(tmp_path)
    put_manifest(lake, Manifest((put_day(lake, TODAY, LIMIT - datetime.timedelta(days=1)),)))
    with pytest.raises(HostError, match=r"left in bronze\.events"):
        retain(context_of(spark, lake, "r1"))
    broken = lake.read(spark, OPS_RETENTION).where("not holds").collect()

    assert [(row["dataset"], row["oldest_date"]) for row in broken] == [
        ("bronze.events", LIMIT - datetime.timedelta(days=1))
    ]


def test_wrong_clock_of_a_node_deletes_nothing() -> None:
    """Ages are counted from the events' own time, but never from a time that has not come."""
    hour, year = datetime.timedelta(hours=1), datetime.timedelta(days=365)

    assert counted_from(AS_OF, AS_OF + year) == AS_OF
    assert counted_from(AS_OF + year, AS_OF + hour / 2) == AS_OF


def test_checkpoints_nobody_uses_are_deleted(tmp_path) -> None:
    """A checkpoint without a write for as long as events are kept is deleted; one in use stays."""
    lake = Lake(tmp_path)
    for name, age_days in (("old", 20), ("used", 1)):
        path = Path(tmp_path, "checkpoints", name, "offsets", "0")
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        at = AS_OF.timestamp() - age_days * 86_400
        os.utime(path, (at, at))

    assert forget_checkpoints(lake, AS_OF) == ["old"]
    assert lake.storage.folders("checkpoints") == ["used"]
