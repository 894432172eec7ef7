"""Which dates are read, and how moments and references become plain values."""

import datetime

import pytest

from tests.pipeline.jobs.summarise.build import DAY, NOON, frame_of
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.jobs.summarise.reading import Reading, digits, hour_of, number, seconds
from waystation.pipeline.lake import Lake
from waystation.pipeline.manifest import Batch, Manifest
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_CAPACITY


def test_last_days_end_at_the_last_computed_date(tmp_path) -> None:
    """What became empty hides what stood there before, instead of showing it as the newest."""
    lake, day = Lake(tmp_path), NOON.date()
    manifest = Manifest((Batch(day, "b", 1),), computed=frozenset({day, day + 3 * DAY}))
    lake.storage.write_atomically(f"{GOLD_CAPACITY.folder}/MANIFEST.json", manifest.encode(GOLD_CAPACITY))
    reading = Reading(None, lake, DateRange())

    assert reading.dates(GOLD_CAPACITY) == reading.dates(GOLD_CAPACITY, 4) == [day]
    assert reading.dates(GOLD_CAPACITY, 3) == []


def test_nothing_is_asked_of_what_holds_nothing(tmp_path) -> None:
    """A dataset that was never written gives no frame, so that no job runs."""
    assert Reading(None, Lake(tmp_path), DateRange()).rows(GOLD_CAPACITY) is None


@pytest.mark.spark
def test_values_are_plain(spark) -> None:
    """Moments are seconds, references eight digits, attributes numbers or null."""
    later = NOON + datetime.timedelta(minutes=5, seconds=1)
    event = {"event_id": bytes(range(16)), "ts": later, "attrs": {"n": "7", "m": "x"}}
    frame = frame_of(spark, BRONZE_EVENTS, event)
    row = frame.select(seconds("ts"), hour_of("ts"), digits("event_id"), number("n"), number("m"), number("o")).first()

    assert tuple(row) == (int(later.timestamp()), int(NOON.timestamp()), "00010203", 7, None, None)
