"""Counts and histograms: Spark and plain Python agree on every bucket."""

import random
from collections import Counter

import pytest

from waystation.pipeline.tables import GOLD_OUTCOMES
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
