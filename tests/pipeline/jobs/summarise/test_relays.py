"""What is told of relays."""

import pytest

from tests.pipeline.jobs.summarise.build import DAY, HOUR, NOON, NOON_S, frame_of
from waystation.pipeline.jobs.summarise.relays import consistency, relays, transitions
from waystation.pipeline.tables import GOLD_CONSISTENCY, GOLD_RELAY_SCORES, GOLD_RELAY_TRANSITIONS

pytestmark = pytest.mark.spark


def test_each_relay_shows_its_newest_score(spark) -> None:
    """Older rows of a relay are left out, and the blacklisted come first."""
    rows = (
        {"relay_id": "a", "as_of": NOON, "score": 0.1, "state": "active", "p50_us": 7},
        {"relay_id": "a", "as_of": NOON + HOUR, "score": 0.9, "state": "active", "p50_us": 8, "reason": "proved_good"},
        {"relay_id": "b", "as_of": NOON, "score": 0.95, "state": "blacklisted", "since": NOON - HOUR},
    )
    found = relays(frame_of(spark, GOLD_RELAY_SCORES, *rows))

    assert [(row.relay_id, row.as_of_s, row.score) for row in found] == [
        ("b", NOON_S, 0.95),
        ("a", NOON_S + 3_600, 0.9),
    ]
    assert (found[0].since_s, found[0].reason, found[1].p50_us) == (NOON_S - 3_600, None, 8)


def test_transitions_are_in_order_of_relay_and_moment(spark) -> None:
    """Two changes of one relay come back in the order they happened."""
    rows = [{"relay_id": relay, "at": NOON + HOUR * n, "after": f"{n}"} for relay in "ba" for n in (2, 1)]
    found = transitions(frame_of(spark, GOLD_RELAY_TRANSITIONS, *rows))

    assert [row.relay_id + row.after for row in found] == ["a1", "a2", "b1", "b2"]


def test_consistency_names_a_few_missing_packets(spark) -> None:
    """Days are in order, and of the missing packets five are named by eight digits."""
    missing = [bytes([number]) * 32 for number in range(9)]
    rows = [
        {"relay_id": "a", "day": NOON.date() + n * DAY, "n_missing": n, "ratio": 0.5, "suspicious": missing}
        for n in (1, 0)
    ]
    found = consistency(frame_of(spark, GOLD_CONSISTENCY, *rows))

    assert [row.n_missing for row in found] == [0, 1]
    assert found[0].suspicious == ("00000000", "01010101", "02020202", "03030303", "04040404")
