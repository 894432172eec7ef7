"""What the report is told, all of it, of one lake."""

import datetime
from collections import Counter

import pytest

from tests.pipeline.build import outcomes_of, plain_rows, verdicts_of
from tests.pipeline.conftest import Ran
from tests.pipeline.jobs.summarise.build import NOON, NOON_S, put_row
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.jobs.summarise import summarise
from waystation.pipeline.lake import Lake
from waystation.pipeline.report import RunFacts, render
from waystation.pipeline.tables import DATASETS, OPS_RUNS

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


CHANGES = {
    "bronze.events": {"kind": "refused", "reason": "odd"},
    "silver.connections": {"opened_at": NOON},
    "gold.delivery_outcomes": {"outcome": "ok", "n": 1, "histogram": {70: 1}},
    "gold.relay_scores": {"relay_id": "aabbccddeeff0011", "state": "active", "p50_us": 1, "p95_us": 2, "p99_us": 3},
    "gold.abuse_findings": {"severity": "high"},
    "gold.policy": {"action": "block", "mode": "shadow", "valid_until": NOON + datetime.timedelta(hours=1)},
    "gold.mesh_topology": {"server": "aabbccddeeff0011", "n_queries": 2, "n_found": 1},
    "gold.bsp_groups": {"n_messages": 1, "n_delivered": 1, "converge_us": 5},
    "gold.consistency": {"n_expected": 50, "ratio": 0.9, "lower_bound": 0.8, "upper_bound": 0.97},
}
"""What a row must hold to be shown at all."""


@pytest.mark.slow
def test_every_table_reaches_the_page(spark, tmp_path) -> None:
    """One row in each dataset fills every part of the summary, and all plots are drawn but that of anonymous counts."""
    lake = Lake(tmp_path)
    for dataset in DATASETS:
        if dataset is not OPS_RUNS:
            put_row(lake, dataset, **CHANGES.get(dataset.full_name, {}))
    document = {"run_id": "r", "started_at": "a", "finished_at": "b", "steps": [], "segments": []}
    lake.write_run(OPS_RUNS, "r", NOON.date(), document)
    summary = summarise(spark, lake, DateRange(), NOON)
    parts = {name: getattr(summary, name) for name in type(summary).__dataclass_fields__}

    assert [name for name, part in parts.items() if not part] == ["anonymous"]
    assert summary.as_of_s == NOON_S
    assert render(summary, RunFacts()).count("<svg") == 2 * 13
