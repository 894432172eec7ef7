"""Daily counts, histograms and the facts of a week are those of plain Python."""

import pytest

from tests.pipeline.relays_build import RELAYS, edge_of, facts_of, histo_of, observed, probes_frame
from waystation.pipeline.tables import GOLD_RELAY_DAY, GOLD_RELAY_HISTO
from waystation.pipeline.transforms.relays import QUANTILES, relay_day, relay_histo, relay_week
from waystation.rules.histogram import THRESHOLDS_US

pytestmark = pytest.mark.spark

ROWS = observed(1)
FACTS = [name for name in GOLD_RELAY_DAY.names() if name not in ("relay_id", "day")]


@pytest.fixture(scope="module")
def probes(spark):
    """Give the rows as a frame."""
    return probes_frame(spark, ROWS).persist()


def test_histograms_are_those_of_plain_python(probes) -> None:
    """Every relay, day, kind and bucket has its answers, as often as their rows say."""
    found = relay_histo(probes)
    rows = found.collect()
    keys = GOLD_RELAY_HISTO.names()[:-1]

    assert {tuple(row[key] for key in keys): row["n"] for row in rows} == histo_of(ROWS)
    assert len(rows) == len(histo_of(ROWS))
    assert all(row["event_date"] == row["day"] for row in rows)
    assert found.columns == [*GOLD_RELAY_HISTO.names(), "event_date"]
    assert [kind for _, kind in found.dtypes[:-1]] == [column.type for column in GOLD_RELAY_HISTO.columns]


def test_days_are_those_of_plain_python(probes) -> None:
    """Every relay and day has its counts; no sum is null."""
    found = relay_day(probes)
    rows = {(row["relay_id"], row["day"]): row for row in found.collect()}
    expected = {
        key: facts_of([row for row in ROWS if (row.relay_id, row.day) == key])
        for key in {(row.relay_id, row.day) for row in ROWS}
    }

    assert {key: {name: row[name] for name in FACTS} for key, row in rows.items()} == {
        key: {name: facts.get(name, 0) for name in FACTS} for key, facts in expected.items()
    }
    assert found.columns == [*GOLD_RELAY_DAY.names(), "event_date"]
    assert [kind for _, kind in found.dtypes[:-1]] == [column.type for column in GOLD_RELAY_DAY.columns]


def test_week_has_facts_and_quantiles(probes) -> None:
    """Sums and quantiles are those of plain Python; each quantile is the smallest bucket that reaches its share."""
    rows = {row["relay_id"]: row for row in relay_week(probes).collect()}

    for relay in RELAYS:
        mine = [row for row in ROWS if row.relay_id == relay]
        facts = facts_of(mine)
        assert {name: rows[relay][name] for name in FACTS} == {name: facts.get(name, 0) for name in FACTS}
        for name, share in QUANTILES.items():
            assert THRESHOLDS_US[rows[relay][name] + 1] - 1 == edge_of(mine, share / 100)
