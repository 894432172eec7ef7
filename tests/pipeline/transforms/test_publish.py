"""Which rows are published, in which order, and as which values."""

import datetime

import pytest

from waystation.pipeline.tables import GOLD_CONSISTENCY, GOLD_OUTCOMES, GOLD_POLICY
from waystation.pipeline.transforms.publish import plain_rows, ranked_policy, within

pytestmark = pytest.mark.spark

NOON = datetime.datetime(2026, 5, 30, 12, tzinfo=datetime.UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000
HOUR = datetime.timedelta(hours=1)
DAY = datetime.timedelta(days=1)


def test_policy_is_cut_where_it_matters_least(spark) -> None:
    """Of each node so many rules: the hardest, of equal ones those with the most evidence, then by reference."""
    rows = [
        (node, NOON, "peer", bytes([ref]) * 16, action, 0, "burst", evidence, NOON, NOON + DAY, "1", "shadow")
        for node in ("a", "b")
        for ref, action, evidence in ((1, "pow", 99), (3, "rate", 5), (2, "rate", 5), (4, "rate", 6), (5, "block", 1))
        if node == "a" or ref == 1
    ]
    ranked = ranked_policy(spark.createDataFrame(rows, GOLD_POLICY.row_ddl()).repartition(2), NOON, 4).collect()

    assert [(row["node_id"], row["ref"][0], row["action"]) for row in ranked] == [
        ("a", 5, "block"),
        ("a", 4, "rate"),
        ("a", 2, "rate"),
        ("a", 3, "rate"),
        ("b", 1, "pow"),
    ]
    assert (ranked[0]["from_us"], ranked[0]["until_us"]) == (NOON_US, NOON_US + 86_400_000_000)


def test_values_are_those_that_json_has(spark) -> None:
    """Moments as microseconds, maps as sorted pairs, in the order of the key or newest first."""
    rows = [(NOON + number * HOUR, "bhumi", word, 1, 2, {9: 1, 3: 2}) for number in (0, 1) for word in ("ok", "gone")]
    outcomes = spark.createDataFrame(rows, GOLD_OUTCOMES.row_ddl()).repartition(2)
    shown = plain_rows(within(outcomes, "hour", NOON, NOON + 2 * HOUR), GOLD_OUTCOMES, "hour").collect()
    exactly = within(outcomes, "hour", NOON, NOON).count()

    assert [(row["hour"], row["outcome"]) for row in shown] == [
        (NOON_US + 3_600_000_000, "gone"),
        (NOON_US + 3_600_000_000, "ok"),
        (NOON_US, "gone"),
        (NOON_US, "ok"),
    ]
    assert shown[0]["histogram"] == [[3, 2], [9, 1]]
    assert exactly == 2


def test_days_and_ids_are_texts(spark) -> None:
    """A day counts from its midnight; ids are hexadecimal, in arrays too."""
    rows = [("r", NOON.date() + number * DAY, 1, 1, 0, None, None, None, 0, [b"\xff", b"\x00"]) for number in (0, 1)]
    days = spark.createDataFrame(rows, GOLD_CONSISTENCY.row_ddl())
    (row,) = plain_rows(within(days, "day", NOON - DAY, NOON), GOLD_CONSISTENCY).collect()

    assert (row["day"], row["suspicious"], row["ratio"]) == ("2026-05-30", ["ff", "00"], None)
