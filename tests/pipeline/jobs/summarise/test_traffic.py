"""Counts of what passed through."""

import datetime

import pytest

from tests.pipeline.jobs.summarise.build import HOUR, NOON, NOON_S, frame_of
from waystation.pipeline.jobs.summarise.traffic import REFUSALS_SHOWN_MAX, connections, outcomes, refusals
from waystation.pipeline.report import Hourly, OutcomeRow
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_OUTCOMES, SILVER_CONNECTIONS

pytestmark = pytest.mark.spark


def test_outcomes_keep_their_histograms(spark) -> None:
    """A row comes back as it stands, its hour in seconds."""
    row = {"hour": NOON, "protocol": "bhumi", "outcome": "ok", "n": 3, "bytes": 9, "histogram": {70: 3}}

    assert outcomes(frame_of(spark, GOLD_OUTCOMES, row)) == [OutcomeRow(NOON_S, "bhumi", "ok", 3, 9, {70: 3})]


def test_connections_count_where_they_begin_and_end(spark) -> None:
    """An opening counts in its hour, an end in its own, and one whose opening was not kept nowhere."""
    minute = datetime.timedelta(minutes=1)
    rows = (
        {"opened_at": NOON, "closed_at": NOON + HOUR},
        {"opened_at": NOON + minute},
        {"closed_at": NOON + HOUR},
    )

    assert connections(frame_of(spark, SILVER_CONNECTIONS, *rows)) == [
        Hourly(NOON_S, 2, 0),
        Hourly(NOON_S + 3_600, 0, 1),
    ]


def test_refusals_are_the_most_frequent(spark) -> None:
    """Refusals are summed by protocol and reason, and only the first fifty come back."""
    rows = [{"kind": "refused", "protocol": "p", "reason": f"r{n:02}", "attrs": {"n": str(n)}} for n in range(60)]
    found = refusals(frame_of(spark, BRONZE_EVENTS, *rows, {"kind": "other"}))

    assert len(found) == REFUSALS_SHOWN_MAX
    assert found[0] == ("p", "r59", 59)
