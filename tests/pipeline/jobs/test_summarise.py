"""What the report is told."""

import datetime
from collections import Counter

import pytest

from tests.pipeline.build import outcomes_of, plain_rows, verdicts_of
from tests.pipeline.conftest import Ran
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.jobs.summarise import summarise

pytestmark = pytest.mark.spark


def test_summary_agrees_with_a_plain_count(spark, ran: Ran) -> None:
    """Outcomes, verdicts, refusals, connections and anonymous counts are those of the journal."""
    rows = plain_rows(ran.request.journal)
    summary = summarise(spark, ran.lake, DateRange())
    refused = sum(int(row["attrs"]["n"]) for row in rows if row["kind"] == "refused")
    anonymous = sum(int(row["attrs"]["opened"]) for row in rows if row["kind"] == "anonymous_counted")

    assert {(row.hour_s, row.outcome): row.n for row in summary.outcomes} == outcomes_of(rows)
    assert {(row.hour_s, row.verdict, row.detail): row.n for row in summary.verdicts} == verdicts_of(rows)
    assert {row.verdict: row.n for row in summary.checks} == Counter(ran.verdicts.values())
    assert sum(row.n for row in summary.refusals) == refused
    assert sum(row.opened for row in summary.anonymous) == anonymous
    assert sum(row.opened for row in summary.connections) == sum(row["kind"] == "peer_identified" for row in rows)


def test_dates_limit_the_summary(spark, ran: Ran) -> None:
    """Only the chosen dates are shown."""
    date = datetime.date(2026, 5, 30)
    summary = summarise(spark, ran.lake, DateRange(date, date))

    assert {datetime.datetime.fromtimestamp(row.hour_s, datetime.UTC).date() for row in summary.outcomes} == {date}
    assert 0 < dict(summary.row_counts)["bronze.events"] < ran.first.row_counts["bronze.events"]
