"""The data source as Spark uses it."""

import datetime

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.journal.build import DAY_US, NOON_US, name_at, segment_bytes, traffic
from tests.pipeline.build import put, put_events
from waystation.journal.segment import read_rows
from waystation.pipeline.sources.reading import Wanted
from waystation.pipeline.sources.waystation import PUSHDOWN, SegmentStream, WaystationSource, narrow

DAY = datetime.date(2026, 5, 29)
NEXT = datetime.date(2026, 5, 30)


def stream_of(folder, **options: str) -> SegmentStream:
    """Return what Spark asks for offsets."""
    return SegmentStream({"path": str(folder), "form": "lines", **options}, None)


def test_filters_are_taken_over_only_where_they_are_exact() -> None:
    """Kinds, relays and closed ranges of dates are; anything else is left to Spark; together they narrow."""
    wanted = Wanted()
    for one in (
        In(("kind",), ("a", "b")),
        EqualTo(("kind",), "a"),
        EqualTo(("relay_id",), "r"),
        GreaterThanOrEqual(("event_date",), DAY),
        LessThanOrEqual(("event_date",), NEXT),
    ):
        wanted = narrow(wanted, one)

    assert wanted == Wanted(frozenset({"a"}), frozenset({"r"}), DAY, NEXT)
    assert narrow(wanted, EqualTo(("event_date",), DAY)) == Wanted(frozenset({"a"}), frozenset({"r"}), DAY, DAY)
    for left in (
        EqualTo(("bytes",), 1),
        IsNotNull(("kind",)),
        GreaterThan(("event_date",), DAY),
        EqualTo(("kind",), None),
    ):
        assert narrow(wanted, left) is None


def test_limit_of_spark_is_obeyed(tmp_path) -> None:
    """A limit holds, no limit reads all, and after the target of an available-now query nothing is read."""
    data = segment_bytes(name_at(), traffic(1, NOON_US, 20))
    put(tmp_path, name_at(), data)
    reader = stream_of(tmp_path, rowsPerBatch="5")
    some = reader.latestOffset({}, reader.getDefaultReadLimit())
    reader.prepareForTriggerAvailableNow()
    put(tmp_path, name_at(NOON_US, 2), data)
    everything = reader.latestOffset(some, ReadAllAvailable())
    parts = [part for step in (({}, some), (some, everything)) for part in reader.partitions(*step)]

    assert reader.getDefaultReadLimit() == ReadMaxRows(5)
    assert [sum(batch.num_rows for batch in reader.read(part)) for part in parts] == [5, data.count(b"\n") - 5]
    assert reader.latestOffset(everything, ReadMaxRows(5)) == everything
    assert reader.initialOffset() == {}


@pytest.mark.spark
def test_spark_reads_what_plain_python_reads(spark, tmp_path) -> None:
    """Rows that pass pushed filters, and those that Spark filters itself, are those of the plain reading."""
    names = [name_at(), name_at(NOON_US + DAY_US, 2)]
    for number, name in enumerate(names):
        put_events(tmp_path, name, traffic(number, name.start_us, 30))
    data = (tmp_path / names[1].folder / f"{names[1].text}.jsonl").read_bytes()
    plain = [row for row in read_rows(data) if row["kind"] == "delivery_finished" and row["latency_us"] is not None]
    spark.dataSource.register(WaystationSource)
    spark.conf.set(PUSHDOWN, "true")
    frame = spark.read.format("waystation").load(str(tmp_path))
    condition = f"kind = 'delivery_finished' and event_date = date'{NEXT}' and latency_us is not null"
    rows = [row.asDict() for row in frame.where(condition).collect()]
    spark.conf.unset(PUSHDOWN)
    place = {"segment": names[1].text, "event_date": NEXT}

    assert sorted(rows, key=lambda row: row["seq"]) == [row | place for row in plain] != []
