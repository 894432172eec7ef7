"""Counts and histograms: Spark and plain Python agree on every bucket."""

import random
from collections import Counter

import pytest

from tests.journal.build import NOON_US, name_at
from waystation.core import facts
from waystation.core.facts import Outcome
from waystation.core.instant import Instant
from waystation.engine.recorder import Recorder
from waystation.journal.segment import encode_lines
from waystation.pipeline.tables import GOLD_OUTCOMES
from waystation.pipeline.transforms.conform import deliveries
from waystation.pipeline.transforms.ingest import accept, parse_lines
from waystation.pipeline.transforms.outcomes import bucket, outcomes
from waystation.rules.histogram import THRESHOLDS_US, bucket_of

pytestmark = pytest.mark.spark

DELIVERIES = (
    "protocol string, accepted_us bigint, finished_us bigint, outcome string, latency_us bigint, tries bigint, "
    "bytes bigint"
)


def test_buckets_are_those_of_plain_python(spark) -> None:
    """At, before and after every border, and at many points between, both give the same bucket."""
    rng = random.Random(7)
    latencies = {border + step for border in THRESHOLDS_US for step in (-1, 0, 1)}
    latencies |= {int(2 ** rng.uniform(0, 62)) for _ in range(3_000)} | {0, 2**63 - 1}
    frame = spark.createDataFrame([(latency,) for latency in sorted(latencies)], "latency_us bigint")
    rows = frame.select("latency_us", bucket(frame["latency_us"]).alias("bucket")).collect()

    assert [row for row in rows if row["bucket"] != bucket_of(row["latency_us"])] == []


def test_attempts_are_counted_with_their_latencies(spark) -> None:
    """Each hour, protocol and outcome has its attempts, bytes and histogram; a row without latency may be many."""
    rng = random.Random(8)
    rows = []
    for _ in range(500):
        began = rng.randrange(5 * 3_600) * 1_000_000
        outcome = rng.choice(["ok", "timeout", None])
        latency = rng.randrange(10**6) if outcome and rng.random() < 0.7 else None
        accepted = began if rng.random() < 0.5 else None
        tries = rng.randrange(1, 90) if outcome else None
        rows.append((rng.choice(["bhumi", "merk"]), accepted, began, outcome, latency, tries, 3))
    frame = spark.createDataFrame(rows, DELIVERIES).selectExpr(
        "*", "timestamp_micros(accepted_us) as accepted_at", "timestamp_micros(finished_us) as finished_at"
    )
    result = outcomes(frame)
    found = {
        (row["h"], row["protocol"], row["outcome"]): (row["n"], row["bytes"], dict(row["histogram"]))
        for row in result.selectExpr("*", "unix_timestamp(hour) as h").collect()
    }
    expected: dict = {}
    for protocol, _, began, outcome, latency, tries, size in rows:
        entry = expected.setdefault(
            (began // 3_600_000_000 * 3_600, protocol, outcome or "unfinished"), [0, 0, Counter()]
        )
        entry[0] += 1 if latency is not None else tries or 1
        entry[1] += size
        entry[2] += Counter([bucket_of(latency)] if latency is not None else [])

    assert found == {key: (n, size, dict(histogram)) for key, (n, size, histogram) in expected.items()}
    assert result.columns == [*GOLD_OUTCOMES.names(), "event_date"]
    assert dict(result.dtypes)["histogram"] == "map<int,bigint>"


MAILBOX = (
    (0, facts.DeliveryAccepted("lprp", 1, b"t" * 32, 364)),
    (10, facts.DeliveryAccepted("lprp", 2, b"t" * 32, 64)),
    (20, facts.DeliveryAccepted("lprp", 3, b"s" * 32, 100)),
    (30, facts.DeliveryFinished("lprp", 4, b"n" * 32, Outcome.OFFLINE, None, 0, 1)),
    (40, facts.DeliveryFinished("lprp", 5, b"t" * 32, Outcome.REFUSED, None, 0, 1)),
    (50, facts.WorkJudged("lprp", b"w" * 32, "relay", "accepted", 16, 30_000)),
    (5_000, facts.DeliveryFinished("lprp", 1, b"t" * 32, Outcome.OK, 5_000, 0, 1)),
    (9_000, facts.LeaseChanged("lprp", b"s" * 32, "forgotten", 1)),
    (9_000, facts.DeliveryFinished("lprp", 3, b"s" * 32, Outcome.GONE, 8_980, 0, 1)),
)
"""Microseconds and what a host tells then: delivered, still waiting, no lease, queue full, lease over."""


def test_mail_that_waits_for_its_tenant_is_counted_once(spark) -> None:
    """A packet of LPRP has the hour in which it was taken, and the outcome of its mailbox; what waits is unfinished."""
    written: list = []
    recorder = Recorder(written.append, random.Random(1))
    recorder.set_wall(Instant(0), NOON_US)
    recorder.use_key(b"k" * 32)
    for at, fact in MAILBOX:
        recorder.note(fact, Instant(at))
    lines = [(line, name_at().text) for line in encode_lines(written, 0).decode().splitlines()]
    events = accept(parse_lines(spark.createDataFrame(lines, "value string, segment string")))
    counted = outcomes(deliveries(events)).selectExpr("*", "unix_timestamp(hour) as h").collect()

    assert {row["outcome"]: (row["n"], row["bytes"], dict(row["histogram"])) for row in counted} == {
        "ok": (1, 364, {bucket_of(5_000): 1}),
        "gone": (1, 100, {bucket_of(8_980): 1}),
        "offline": (1, 0, {}),
        "refused": (1, 0, {}),
        "unfinished": (1, 64, {}),
    }
    assert {(row["protocol"], row["h"]) for row in counted} == {("lprp", NOON_US // 1_000_000)}
