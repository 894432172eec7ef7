"""Judging groups, hour by hour, as events come in."""

import dataclasses
import datetime

import pytest

from tests.journal.build import DAY_US, NOON_US
from tests.pipeline.build import context_of
from tests.pipeline.graphs import bronze, ref
from waystation.journal.events import MessageChanged, MessageHeld, MessageStored
from waystation.pipeline.jobs.bsp import judge_groups
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_BSP_GROUPS, GOLD_BSP_INVALID, SILVER_BSP_MESSAGES

pytestmark = pytest.mark.spark

GROUP = ref("g")
FIRST_DAY = [
    MessageStored(NOON_US, "bsp", None, "waiting", 9, GROUP, ref("root"), b"", 1, 0),
    MessageStored(NOON_US + 1, "bsp", None, "waiting", 9, GROUP, ref("leaf"), ref("root"), 1, 0),
    MessageStored(NOON_US + 2, "bsp", None, "gossip", 9, GROUP, ref("odd"), b"", 1, 0),
    MessageStored(NOON_US + 3, "bsp", None, "invalid", 9, GROUP, ref("early"), b"", 1, 0),
    MessageHeld(NOON_US + 50, "bsp", ref("p"), GROUP, ref("leaf"), 1, 40, None, None),
]
SECOND_DAY = [
    MessageChanged(NOON_US + DAY_US, "bsp", "invalid", "unparsable", GROUP, ref("root"), 0),
    MessageChanged(NOON_US + DAY_US + 1, "bsp", "invalid", "invalid_dependency", GROUP, ref("leaf"), 0),
]
EVENING = datetime.datetime(2026, 5, 30, 22, tzinfo=datetime.UTC)
NIGHT = EVENING + datetime.timedelta(hours=1)


def judged(spark, lake, run_id, as_of):
    """Run the job once at a moment."""
    return judge_groups(dataclasses.replace(context_of(spark, lake, run_id), as_of=as_of))


def facts(spark, lake):
    """Return waiting, roots and followers of the one group by hour."""
    rows = lake.read(spark, GOLD_BSP_GROUPS).selectExpr("*", "hour(as_of) as h").collect()
    names = ("n_waiting", "n_invalid_root", "n_invalid_transitive", "n_peers", "converge_us")
    return {row["h"]: tuple(row[name] for name in names) for row in rows}


def test_late_changes_reach_earlier_dates_and_hours_of_a_date_stay(spark, tmp_path) -> None:
    """A change told a day later moves the message's row; each hour keeps its groups, the last hour its invalid ones."""
    lake = Lake(tmp_path)
    frame = bronze(spark, [*FIRST_DAY, *SECOND_DAY])
    is_first = "event_date = date'2026-05-29'"
    lake.append(frame.where(is_first), BRONZE_EVENTS, "one", ["one"])
    first = judged(spark, lake, "first", NIGHT)
    lake.append(frame.where(f"not {is_first}"), BRONZE_EVENTS, "two", ["two"])
    second = judged(spark, lake, "second", EVENING)
    silver = lake.read(spark, SILVER_BSP_MESSAGES).select("state", "event_date").distinct().collect()
    invalid = lake.read(spark, GOLD_BSP_INVALID).collect()

    # In silver three messages and one word of a peer; in gold one group, and an invalid message in the last hour.
    assert (first.rows_in, first.rows_out, first.rows_rejected) == (5, 4 + 1 + 1, 1)
    assert (second.rows_in, second.rows_out, second.rows_rejected) == (7, 4 + 2, 1)
    assert [tuple(row) for row in silver] == [("invalid", datetime.date(2026, 5, 29))]
    assert facts(spark, lake) == {23: (2, 1, 0, 1, 49), 22: (0, 2, 1, 1, 49)}
    assert [(bytes(row["message_ref"]), bytes(row["root_ref"])) for row in invalid] == [(ref("early"), ref("early"))]


def test_nothing_to_do_does_nothing(spark, tmp_path) -> None:
    """An empty lake is no error."""
    counts = judge_groups(context_of(spark, Lake(tmp_path), "r"))

    assert (counts.rows_in, counts.rows_out) == (0, 0)
