"""From a journal to what a node carried."""

import dataclasses
import datetime

import pytest

from tests.journal.build import DAY_US, NOON_US, name_at
from tests.pipeline.build import context_of, put_events
from tests.pipeline.frames import rows_of
from waystation.journal.events import NodeSampled
from waystation.pipeline.jobs.capacity import measure_capacity
from waystation.pipeline.jobs.ingest import ingest
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.settings import PipelineSettings
from waystation.pipeline.tables import GOLD_CAPACITY

pytestmark = pytest.mark.spark

GIB = 2**30
FIRST = datetime.date(2026, 5, 29)


def test_days_in_any_order_see_the_days_before(spark, tmp_path) -> None:
    """Growth and what is left are the same when the last day is measured first, alone."""
    lake = Lake(tmp_path / "lake")
    for day in range(3):
        at = NOON_US + day * DAY_US
        sample = NodeSampled(at, 4, 600 * day, 1, 2, 3, 5, (day + 1) * GIB, 10)
        put_events(tmp_path / "journal", name_at(at, day + 1), [sample])
    ingest(spark, lake, tmp_path / "journal")
    context = dataclasses.replace(context_of(spark, lake, "r"), settings=PipelineSettings(disk_gib=10))
    last = FIRST + datetime.timedelta(days=2)
    measure_capacity(dataclasses.replace(context, run_id="last", dates=DateRange(last, last)))
    columns = ("day", "messages", "messages_per_s_p99", "store_bytes", "growth_bytes_day", "days_to_full")
    alone = rows_of(lake.read(spark, GOLD_CAPACITY), *columns)
    counts = measure_capacity(dataclasses.replace(context, run_id="all"))
    rows = rows_of(lake.read(spark, GOLD_CAPACITY), *columns)

    assert alone == rows[2:] == [(last, 1_200, 20.0, 3 * GIB + 10, GIB, 6)]
    assert rows[0] == (FIRST, 0, 0.0, GIB + 10, None, None)
    assert (counts.rows_in, counts.rows_out) == (9, 3)


def test_nothing_is_no_error(spark, tmp_path) -> None:
    """An empty lake stays without."""
    counts = measure_capacity(context_of(spark, Lake(tmp_path), "r"))

    assert (counts.rows_in, counts.rows_out) == (0, 0)
