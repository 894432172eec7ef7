"""Manifests: what counts, and what does not."""

import datetime
import shutil
import threading

import pytest

from waystation.core.errors import HostError
from waystation.pipeline.lake import Batch, Lake, Manifest, date_of_folder
from waystation.pipeline.tables import GOLD_OUTCOMES, OPS_RUNS

DAYS = [datetime.date(2026, 5, day) for day in (28, 29)]
SCHEMA = ", ".join([*(f"{column.name} {column.type}" for column in GOLD_OUTCOMES.columns), "event_date date"])


def frame(spark, counts: dict[datetime.date, int]):
    """Give one row per date."""
    rows = [(None, "bhumi", "ok", n, 0, {1: n}, date) for date, n in counts.items()]
    return spark.createDataFrame(rows, SCHEMA)


def numbers(spark, lake: Lake) -> dict[datetime.date, int]:
    """Return what a reader sees."""
    return {row["event_date"]: row["n"] for row in lake.read(spark, GOLD_OUTCOMES).collect()}


def test_unwritten_table_is_empty(tmp_path) -> None:
    """A table nobody wrote has an empty manifest."""
    assert Lake(tmp_path).manifest(GOLD_OUTCOMES) == Manifest()


def test_lock_keeps_a_second_writer_out(tmp_path) -> None:
    """One writer at a time; afterwards the next may come."""
    lake = Lake(tmp_path / "lake")
    with lake.locked(), pytest.raises(HostError, match="another pipeline"), lake.locked():
        pass
    with lake.locked():
        held = True

    assert held


def test_unusable_folder_is_said(tmp_path) -> None:
    """A lake that cannot be made is one sentence with the exit code of the store."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot use the lake") as caught, Lake(tmp_path / "file" / "lake").locked():
        pass

    assert caught.value.exit_code == 5


def test_run_report_is_one_line(tmp_path) -> None:
    """A run report is a file of one line of JSON below its date."""
    path = Lake(tmp_path).write_run(OPS_RUNS, "r1", DAYS[0], {"run_id": "r1"})

    assert path.read_text() == '{"run_id": "r1"}\n'
    assert str(path.relative_to(tmp_path)) == "ops/runs/v=1/event_date=2026-05-28/r1.json"


def test_waiting_writer_gets_the_lake_when_it_is_free(tmp_path) -> None:
    """Who waits holds the lake after the one before has gone."""
    lake = Lake(str(tmp_path / "lake"))
    order = []

    def later() -> None:
        with lake.locked(wait=True):
            order.append("second")

    with lake.locked():
        thread = threading.Thread(target=later)
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join()

    assert order == ["first", "second"]


def test_lake_in_an_object_store_has_no_folder_and_no_lock() -> None:
    """A bucket is named by its URI; nothing is locked there, and nobody gets a path of this machine."""
    lake = Lake("s3a://bucket/lake")
    with lake.locked(), lake.locked():
        place = lake.place(GOLD_OUTCOMES)

    assert place == "s3a://bucket/lake/gold/delivery_outcomes/v=1"
    with pytest.raises(HostError, match="not a folder"):
        lake.folder(GOLD_OUTCOMES)


def test_folders_of_dates_are_told_from_others() -> None:
    """A partition's folder has a date; others have none."""
    assert date_of_folder("event_date=2026-05-28") == DAYS[0]
    assert [date_of_folder(name) for name in ("event_date=x", "batch=2026-05-28", "2026-05-28")] == [None] * 3


@pytest.mark.spark
def test_empty_frame_and_left_overs_of_a_write(spark, tmp_path) -> None:
    """Dates without rows are remembered as computed and read as empty; what a killed write left is removed."""
    lake = Lake(tmp_path.as_uri())
    staging = lake.folder(GOLD_OUTCOMES) / ".spark-staging-1"
    staging.mkdir(parents=True)
    rows = lake.overwrite(frame(spark, {}), GOLD_OUTCOMES, "one", DAYS)

    assert rows == 0
    assert lake.manifest(GOLD_OUTCOMES) == Manifest(computed=frozenset(DAYS))
    assert numbers(spark, lake) == {}
    assert not staging.exists()


@pytest.mark.spark
def test_whole_dates_are_replaced(spark, tmp_path) -> None:
    """Overwriting a date replaces it alone; a date that became empty is gone."""
    lake = Lake(tmp_path)
    lake.overwrite(frame(spark, {DAYS[0]: 1, DAYS[1]: 2}), GOLD_OUTCOMES, "one", DAYS)
    lake.overwrite(frame(spark, {DAYS[1]: 5}), GOLD_OUTCOMES, "two", [DAYS[1]])
    replaced = numbers(spark, lake)
    lake.overwrite(frame(spark, {DAYS[1]: 6}), GOLD_OUTCOMES, "three", DAYS)

    assert replaced == {DAYS[0]: 1, DAYS[1]: 5}
    assert numbers(spark, lake) == {DAYS[1]: 6}
    assert lake.manifest(GOLD_OUTCOMES).batches == (Batch(DAYS[1], "three", 1),)


@pytest.mark.spark
def test_files_of_a_dead_run_do_not_count(spark, tmp_path) -> None:
    """What a run wrote without listing it is not read, and the next run removes it."""
    lake = Lake(tmp_path)
    lake.append(frame(spark, {DAYS[0]: 1}), GOLD_OUTCOMES, "good", ["s1"])
    listed = (lake.folder(GOLD_OUTCOMES) / "MANIFEST.json").read_bytes()
    lake.append(frame(spark, {DAYS[0]: 9}), GOLD_OUTCOMES, "dead", ["s2"])
    (lake.folder(GOLD_OUTCOMES) / "MANIFEST.json").write_bytes(listed)
    seen = numbers(spark, lake)
    lake.append(frame(spark, {DAYS[1]: 3}), GOLD_OUTCOMES, "next", ["s3"])

    assert seen == {DAYS[0]: 1}
    assert not list(tmp_path.rglob("batch=dead"))
    assert lake.manifest(GOLD_OUTCOMES).segments == {"s1", "s3"}


@pytest.mark.spark
def test_tasks_of_a_write_that_died_are_not_taken_over(spark, tmp_path) -> None:
    """What a killed driver's tasks had finished is removed before the next write, which would commit it as its own."""
    lake, day = Lake(tmp_path / "lake"), f"event_date={DAYS[0]}/batch=good"
    other = Lake(tmp_path / "other")
    other.append(frame(spark, {DAYS[0]: 7}), GOLD_OUTCOMES, "good", ["s1"])
    (finished,) = (other.folder(GOLD_OUTCOMES) / day).glob("*.parquet")
    left = lake.folder(GOLD_OUTCOMES) / "_temporary/0/task_202605280000001234567890123456789_0001_m_000000" / day
    left.mkdir(parents=True)
    shutil.copy(finished, left)
    written = lake.append(frame(spark, {DAYS[0]: 1}), GOLD_OUTCOMES, "good", ["s1"])

    assert written == 1
    assert numbers(spark, lake) == {DAYS[0]: 1}


@pytest.mark.spark
def test_same_batch_again_replaces_itself(spark, tmp_path) -> None:
    """Appending a batch of the same name twice leaves it once; what is listed is never overwritten."""
    lake = Lake(tmp_path)
    for _ in range(2):
        lake.append(frame(spark, {DAYS[0]: 1}), GOLD_OUTCOMES, "good", ["s1"])

    assert lake.read(spark, GOLD_OUTCOMES).count() == 1
    assert lake.manifest(GOLD_OUTCOMES).batches == (Batch(DAYS[0], "good.1", 1),)
