"""From a journal to what nodes are told about a flooder."""

import dataclasses
import datetime

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from tests.journal.build import NODE_ID, NOON_US, name_at, traffic
from tests.pipeline.build import context_of, put_events
from tests.pipeline.frames import rows_of
from waystation.journal.events import Refused
from waystation.pipeline.jobs.abuse import find_abuse
from waystation.pipeline.jobs.ingest import ingest
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import GOLD_ABUSE_FINDINGS, GOLD_POLICY, SILVER_POW

pytestmark = pytest.mark.spark

HOUR_US = 3_600_000_000
FLOODER = b"f" * 16
NOON = datetime.datetime(2026, 5, 29, 12, tzinfo=datetime.UTC)


def at_hour(hour: int) -> datetime.datetime:
    """Return so many hours after noon."""
    return NOON + datetime.timedelta(hours=hour)


def test_a_flooder_is_limited_then_blocked(spark, tmp_path) -> None:
    """One high hour leads to a rate, two to a block; rules of other moments of the day stay, each once."""
    lake = Lake(tmp_path / "lake")
    flood = [Refused(NOON_US + hour * HOUR_US + 5, "strata", FLOODER, "rate_limited", 5_000) for hour in (0, 1)]
    put_events(tmp_path / "journal", name_at(), [*traffic(1, NOON_US, 20), *flood])
    ingest(spark, lake, tmp_path / "journal")
    context = context_of(spark, lake, "r")
    nothing_due = DateRange(datetime.date(2020, 1, 1), datetime.date(2020, 1, 1))
    runs = [dataclasses.replace(context, run_id=f"r{hour}", as_of=at_hour(hour)) for hour in (1, 2)]
    runs.append(dataclasses.replace(runs[1], run_id="again", dates=nothing_due))
    counts = [find_abuse(each) for each in runs]
    policy = lake.read(spark, GOLD_POLICY).withColumn("hour", F.hour("as_of"))
    found = lake.read(spark, GOLD_ABUSE_FINDINGS)

    assert rows_of(policy, "node_id", "hour", "subject_ref", "action", "amount", "evidence", "mode") == [
        (NODE_ID, 13, FLOODER, "rate", 10, 1, "shadow"),
        (NODE_ID, 14, FLOODER, "block", 0, 2, "shadow"),
    ]
    assert rows_of(found, "actor_ref", "rule", "n", "severity") == [(FLOODER, "burst", 5_000, "high")] * 2
    assert lake.read(spark, SILVER_POW).count() == 0
    assert [each.rows_out for each in counts] == [3, 4, 2]


def test_nothing_is_no_error(spark, tmp_path) -> None:
    """An empty lake stays without."""
    counts = find_abuse(context_of(spark, Lake(tmp_path), "r"))

    assert (counts.rows_in, counts.rows_out) == (0, 0)
