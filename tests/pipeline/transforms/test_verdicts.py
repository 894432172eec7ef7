"""Packets by verdict: what the journal's events add up to."""

import pytest

from tests.journal.build import NOON_US, ONE_OF_EACH, name_at, segment_bytes, traffic
from tests.pipeline.build import verdicts_of
from waystation.journal.events import PacketJudged
from waystation.journal.segment import read_rows
from waystation.pipeline.tables import GOLD_VERDICTS
from waystation.pipeline.transforms.ingest import accept, parse_lines
from waystation.pipeline.transforms.verdicts import verdicts

pytestmark = pytest.mark.spark

NAME = name_at()
MANY = PacketJudged(NOON_US, "strata", "duplicate", None, None, None, "client", 10**6, 5_000)
LINES = segment_bytes(NAME, [*traffic(9, NOON_US, 200), *ONE_OF_EACH, MANY])


def test_counts_are_those_of_plain_python(spark) -> None:
    """Each hour, verdict and detail has its packets and bytes; gathered rows count as often as they say."""
    lines = [(line, NAME.text) for line in LINES.decode().splitlines()]
    events = accept(parse_lines(spark.createDataFrame(lines, "value string, segment string")))
    frame = verdicts(events)
    rows = frame.selectExpr("*", "unix_timestamp(hour) as hour_s").collect()
    found = {(row["hour_s"], row["verdict"], row["detail"]): row["n"] for row in rows}
    judged = [row for row in read_rows(LINES) if row["kind"] == "packet_judged"]

    assert found == verdicts_of(judged)
    assert found[NOON_US // 1_000_000, "duplicate", ""] == 5_000
    assert sum(row["bytes"] for row in rows) == sum(row["bytes"] for row in judged)
    assert frame.columns == [*GOLD_VERDICTS.names(), "event_date"]
