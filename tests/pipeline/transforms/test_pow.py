"""Verdicts on work as events tell them."""

import pytest

from tests.journal.build import NODE_ID, NOON_US, traffic
from tests.pipeline.frames import events_frame, rows_of
from waystation.journal.events import WorkJudged
from waystation.pipeline.tables import SILVER_POW
from waystation.pipeline.transforms.pow import work

pytestmark = pytest.mark.spark

TOLD = {
    NODE_ID: [
        *traffic(1, NOON_US, 5),
        WorkJudged(NOON_US, "lprp", b"w" * 16, "lease", "accepted", 20, 550_000),
        WorkJudged(NOON_US + 1, "lprp", None, "relay", "too_few_bits", None, None, 7),
    ]
}


def test_each_verdict_is_one_row(spark) -> None:
    """Accepted work knows when it was demanded; what was gathered keeps how many they were."""
    frame = work(events_frame(spark, TOLD)).selectExpr(
        "*", "unix_micros(issued_at) issued_us", "unix_micros(judged_at) judged_us"
    )
    rows = rows_of(frame, "worker_ref", "work", "result", "bits", "issued_us", "judged_us", "n")

    assert rows == [
        (None, "relay", "too_few_bits", None, None, NOON_US + 1, 7),
        (b"w" * 16, "lease", "accepted", 20, NOON_US - 550_000, NOON_US, 1),
    ]
    assert frame.columns[:-2] == [*SILVER_POW.names(), "event_date"]
