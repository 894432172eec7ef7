"""Where relays stand is what the plain fold says, however the rows lie."""

import random
from collections import Counter

import pytest

from tests.pipeline.relays_build import RELAYS, UNTIL_US, edge_of, facts_of, observed, probes_frame, week_of
from waystation.pipeline.tables import GOLD_RELAY_SCORES, GOLD_RELAY_TRANSITIONS
from waystation.pipeline.transforms.relay_history import relay_histories, relay_scores, relay_transitions
from waystation.pipeline.transforms.relays import relay_week
from waystation.rules.consistency import wilson_low
from waystation.rules.relay_history import fold

pytestmark = pytest.mark.spark

ROWS = observed(2)
UNTIL_S = UNTIL_US // 1_000_000
LONG_GONE = "33aa11bb22cc33dd"


def history_of(relay):
    """Return the plain fold of one relay."""
    mine = sorted((row for row in ROWS if row.relay_id == relay), key=lambda row: (row.ts_us, row.event_id))
    return fold((row.observation for row in mine), UNTIL_S)


def share(part, whole):
    """Return a ratio as tables have it."""
    return round(part / whole, 6) if whole else None


def test_scores_and_changes_are_those_of_the_plain_fold(spark) -> None:
    """Every relay has its standing, score, ratios and quantiles, and every change of its state is listed."""
    gone = ROWS[0]._replace(relay_id=LONG_GONE, ts_us=UNTIL_US - 9 * 86_400_000_000, probe_kind="rtt")
    histories = relay_histories(probes_frame(spark, [*ROWS, gone]), UNTIL_S).persist()
    scores = relay_scores(histories, relay_week(probes_frame(spark, week_of(ROWS, UNTIL_US))), UNTIL_S)
    changes = relay_transitions(histories)
    rows = {row["relay_id"]: row for row in scores.selectExpr("*", "unix_timestamp(since) as since_s").collect()}
    listed = sorted(changes.selectExpr("*", "unix_timestamp(at) as at_s").collect(), key=lambda row: row["at_s"])

    for relay in RELAYS:
        assert _plain(rows[relay]) == _expected(relay)
        assert [_change(row) for row in listed if row["relay_id"] == relay] == [
            (each.at_s, each.before.value, each.after.value, each.reason.value, round(each.score, 6), each.observations)
            for each in history_of(relay).transitions
        ]
    assert len({row["after"] for row in listed}) == 4
    assert (rows[LONG_GONE]["state"], rows[LONG_GONE]["p50_us"], rows[LONG_GONE]["uptime_ratio"]) == (
        *("probation", None),
        None,
    )
    for found, dataset in ((scores, GOLD_RELAY_SCORES), (changes, GOLD_RELAY_TRANSITIONS)):
        assert found.columns == [*dataset.names(), "event_date"]
        assert [kind for _, kind in found.dtypes[:-1]] == [column.type for column in dataset.columns]


@pytest.mark.parametrize("partitions", [1, 7])
def test_order_and_partitions_change_nothing(spark, partitions) -> None:
    """Shuffled rows in any number of partitions give the same histories."""
    shuffled = random.Random(partitions).sample(ROWS, len(ROWS))
    found = relay_histories(probes_frame(spark, shuffled, partitions), UNTIL_S).collect()

    assert {row["relay_id"]: (row["state"], row["score"], row["n_obs"]) for row in found} == {
        relay: (history.standing.state.value, round(history.explanation.score, 6), history.counts.observations)
        for relay in RELAYS
        for history in [history_of(relay)]
    }


def _plain(row):
    names = [name for name in GOLD_RELAY_SCORES.names() if name not in ("relay_id", "as_of", "since")]
    return {name: row[name] for name in [*names, "since_s"]}


def _expected(relay):
    history, week = history_of(relay), [row for row in week_of(ROWS, UNTIL_US) if row.relay_id == relay]
    facts = Counter(facts_of(week))
    asked = facts["n_known_ok"] + facts["n_known_missing"]
    return {
        "p50_us": edge_of(week, 0.5),
        "p95_us": edge_of(week, 0.95),
        "p99_us": edge_of(week, 0.99),
        "uptime_ratio": share(facts["up_us"], facts["wanted_us"]),
        "connect_ratio": share(facts["n_connect_ok"], facts["n_connect"]),
        "throughput_bps": facts["transferred_bytes"] * 1_000_000 // facts["transfer_us"],
        "integrity_faults": facts["n_bad_sig"] + facts["n_tampered"],
        "consistency_ratio": share(facts["n_known_ok"], asked),
        "consistency_low": wilson_low(facts["n_known_ok"], asked),
        "n_obs": history.counts.observations,
        "score": round(history.explanation.score, 6),
        "state": history.standing.state.value,
        "reason": None if history.reason is None else history.reason.value,
        "since_s": history.standing.since_s,
    }


def _change(row):
    return row["at_s"], row["before"], row["after"], row["reason"], row["score"], row["n_obs"]
