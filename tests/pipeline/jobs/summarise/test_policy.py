"""What is told of abuse."""

import pytest

from tests.pipeline.jobs.summarise.build import DAY, HOUR, NOON, NOON_S, frame_of
from waystation.pipeline.jobs.summarise.policy import findings, findings_hourly, policy
from waystation.pipeline.tables import GOLD_ABUSE_FINDINGS, GOLD_POLICY

pytestmark = pytest.mark.spark


def test_findings_are_the_most_severe_first(spark) -> None:
    """Severity counts before age, and every finding counts in its hour."""
    rows = [
        {"rule": rule, "severity": severity, "window_start": NOON + HOUR * hour, "actor_ref": b"\xab" * 16}
        for rule, severity, hour in (("burst", "low", 1), ("replay", "high", 0), ("burst", "medium", 1))
    ]
    frame = frame_of(spark, GOLD_ABUSE_FINDINGS, *rows)

    assert [(row.severity, row.actor) for row in findings(frame)] == [
        *(("high", "ab" * 4), ("medium", "ab" * 4), ("low", "ab" * 4)),
    ]
    assert findings_hourly(frame) == [(NOON_S, "replay", 1), (NOON_S + 3_600, "burst", 2)]


def test_policy_is_what_holds_now(spark) -> None:
    """Of each node only the newest moment counts, and a rule whose end has come is left out."""
    rows = (
        {"node_id": "a", "as_of": NOON - DAY, "rule": "old", "valid_until": NOON + DAY},
        {"node_id": "a", "as_of": NOON, "rule": "new", "valid_until": NOON + DAY},
        {"node_id": "a", "as_of": NOON, "rule": "over", "valid_until": NOON},
        {"node_id": "b", "as_of": NOON - DAY, "rule": "other", "valid_until": NOON + DAY},
    )
    frame = frame_of(spark, GOLD_POLICY, *rows)

    assert [row.rule for row in policy(frame, NOON)] == ["new", "other"]
    assert {row.rule for row in policy(frame, None)} == {"new", "other", "over"}
