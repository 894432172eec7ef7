"""Trying a policy against a lake."""

import datetime

import pytest

from tests.journal.build import NOON_US, name_at, traffic
from tests.pipeline.build import context_of, put_events
from waystation.journal.events import PacketJudged
from waystation.pipeline.jobs.backtest import run_backtest
from waystation.pipeline.jobs.ingest import ingest
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.lake import Lake
from waystation.rules.policy import Action, Mode, PolicyRule

pytestmark = pytest.mark.spark

AUTHOR = b"u" * 16
DAY = datetime.date(2026, 5, 29)


def rule(action: Action, amount: int) -> PolicyRule:
    """Return a rule against the one author."""
    return PolicyRule("peer", AUTHOR, action, amount, "burst", 0, 10, "abuse-1", Mode.SHADOW)


def test_a_lake_is_tried_and_left_as_it_is(spark, tmp_path) -> None:
    """A rate refuses what goes beyond it in each minute, a block everything; the first ones are named."""
    lake = Lake(tmp_path / "lake")
    times = [NOON_US + second * 1_000_000 for second in range(0, 120, 5)]
    packets = [PacketJudged(at, "strata", "accepted", None, AUTHOR, None, "client", 9, 1) for at in times]
    put_events(tmp_path / "journal", name_at(), [*traffic(1, NOON_US, 20), *packets])
    ingest(spark, lake, tmp_path / "journal")
    before = sorted(tmp_path.rglob("*"))
    context = context_of(spark, lake, "r", DateRange(DAY, DAY))
    report = run_backtest(context, [rule(Action.RATE, 10), rule(Action.BLOCK, 0), rule(Action.POW, 4)])

    assert report.dates == (DAY,)
    assert [dict(result.refused) for result in report.results] == [{"packet": 4}, {"packet": 24}, {"packet": 0}]
    assert [example.at[11:19] for example in report.results[0].examples] == [
        "12:00:50",
        "12:00:55",
        "12:01:50",
        "12:01:55",
    ]
    assert len(report.results[1].examples) == 5
    assert sorted(tmp_path.rglob("*")) == before
