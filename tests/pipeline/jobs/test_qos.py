"""Judging relays by date: what is rewritten, what stays, and that rows tie."""

import datetime
from dataclasses import replace

import pytest

from tests.journal.build import DAY_US, NOON_US, name_at
from tests.pipeline.build import context_of
from waystation.journal.events import Event, RelayObserved
from waystation.journal.segment import encode_lines
from waystation.pipeline.jobs.qos import judge_relays
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import (
    BRONZE_EVENTS,
    GOLD_RELAY_DAY,
    GOLD_RELAY_HISTO,
    GOLD_RELAY_SCORES,
    GOLD_RELAY_TRANSITIONS,
    SILVER_PROBES,
)
from waystation.pipeline.transforms.ingest import accept, parse_lines

pytestmark = pytest.mark.spark

GOOD, FORGING = "00aa11bb22cc33dd", "11aa11bb22cc33dd"
LAST_S = 23 * 3_600 + 58 * 60
FORGED_US = NOON_US // DAY_US * DAY_US + LAST_S * 1_000_000
"""Two minutes before midnight: the ban runs out on the next day, of which nothing is recorded."""
DATE = datetime.date(2026, 5, 29)
MIDNIGHT = datetime.datetime(2026, 5, 30, tzinfo=datetime.UTC)
"""The end of that date."""
WRITTEN = (SILVER_PROBES, GOLD_RELAY_HISTO, GOLD_RELAY_DAY, GOLD_RELAY_SCORES, GOLD_RELAY_TRANSITIONS)
OLD_DDL = (
    "relay_id string, as_of timestamp, integrity_faults bigint, n_obs bigint, score double, state string, "
    "since timestamp"
)
OLD_COLUMNS = [
    column.name if f"{column.name} " in OLD_DDL else f"cast(null as {column.type}) as {column.name}"
    for column in GOLD_RELAY_SCORES.columns
]


def events() -> list[Event]:
    """Return ten good minutes of two relays; then one of them forges. One row has an unknown word."""
    rows: list[Event] = [
        RelayObserved(NOON_US + 20_000_000 * number, "strata", relay, "rtt", "ok", None, 20_000)
        for relay in (GOOD, FORGING)
        for number in range(30)
    ]
    rows.append(RelayObserved(FORGED_US, "strata", FORGING, "validity", "failed", "bad_signature", None, None, None, 3))
    rows.append(RelayObserved(NOON_US, "strata", GOOD, "weather", "ok", None))
    return rows


def recorded(spark, lake: Lake):
    """Put the events into a lake; return what a step is given two hours after their date."""
    lines = [(line, name_at().text) for line in encode_lines(events(), 0).decode().splitlines()]
    bronze = accept(parse_lines(spark.createDataFrame(lines, "value string, segment string")))
    lake.overwrite(bronze, BRONZE_EVENTS, "zero", [DATE])
    return replace(context_of(spark, lake, "one"), as_of=MIDNIGHT + datetime.timedelta(hours=2))


def test_relays_are_judged_as_of_an_hour(spark, tmp_path) -> None:
    """Scores of other hours stay, those of this hour are replaced; a ban ends on a day without rows; rows tie."""
    lake = Lake(tmp_path)
    context = recorded(spark, lake)
    old = [(GOOD, MIDNIGHT, 0, 5, 0.5, "backup", MIDNIGHT), (GOOD, context.as_of, 0, 5, 0.5, "backup", MIDNIGHT)]
    scores = spark.createDataFrame(old, OLD_DDL).selectExpr(*OLD_COLUMNS, "to_date(as_of) as event_date")
    lake.overwrite(scores, GOLD_RELAY_SCORES, "zero", [MIDNIGHT.date()])
    counts = judge_relays(context)
    changes = lake.read(spark, GOLD_RELAY_TRANSITIONS).selectExpr("relay_id", "after", "reason", "event_date").collect()

    assert _scores(spark, lake) == {
        (GOOD, 0): ("backup", None),
        (GOOD, 2): ("active", "proved_good"),
        (FORGING, 2): ("probation", "ban_over"),
    }
    assert sorted(map(tuple, changes)) == [
        (GOOD, "active", "proved_good", DATE),
        (FORGING, "active", "proved_good", DATE),
        (FORGING, "blacklisted", "violations", DATE),
        (FORGING, "probation", "ban_over", MIDNIGHT.date()),
    ]
    assert (counts.rows_in, counts.rows_rejected, _rows(lake, SILVER_PROBES)) == (62, 1, 61)
    assert counts.rows_out == sum(_rows(lake, dataset) for dataset in WRITTEN)


@pytest.mark.slow
def test_hours_and_repetitions_agree(spark, tmp_path) -> None:
    """Judging each hour, or one hour twice, or only the last one, gives the same changes and the same last scores."""
    lake, other = Lake(tmp_path / "hourly"), Lake(tmp_path / "once")
    last = recorded(spark, lake)
    for number, hour in enumerate((-1, 0, 2, 2)):
        judge_relays(replace(last, run_id=f"run{number}", as_of=MIDNIGHT + datetime.timedelta(hours=hour)))
    judge_relays(recorded(spark, other))
    hourly, once = _scores(spark, lake), _scores(spark, other)

    assert {key: row for key, row in hourly.items() if key[1] == 2} == once
    assert sorted(hour for _, hour in hourly) == [0, 0, 2, 2, 23, 23]
    assert hourly[FORGING, 0] == ("blacklisted", "violations")
    assert _rows_of(spark, lake, GOLD_RELAY_TRANSITIONS) == _rows_of(spark, other, GOLD_RELAY_TRANSITIONS)
    assert _rows_of(spark, lake, GOLD_RELAY_DAY) == _rows_of(spark, other, GOLD_RELAY_DAY)


def test_nothing_recorded_is_nothing_judged(spark, tmp_path) -> None:
    """An empty lake stays empty."""
    counts = judge_relays(context_of(spark, Lake(tmp_path), "one"))

    assert (counts.rows_in, counts.rows_out, list(tmp_path.iterdir())) == (0, 0, [])


def _scores(spark, lake):
    rows = lake.read(spark, GOLD_RELAY_SCORES).selectExpr("relay_id", "hour(as_of) as h", "state", "reason").collect()
    return {(row["relay_id"], row["h"]): (row["state"], row["reason"]) for row in rows}


def _rows(lake, dataset):
    return sum(batch.rows for batch in lake.manifest(dataset).batches)


def _rows_of(spark, lake, dataset):
    return sorted(map(tuple, lake.read(spark, dataset).drop("batch").collect()), key=str)
