"""Benchmark: daily latency histograms and rolling seven-day quantiles of relays, in Spark and in DuckDB.

Usage: python -m bench.pipeline.qos [--rows 10000000] [--rounds 3] [--json FILE]

Both read the same Parquet file and put latencies into the buckets of ``rules.histogram``. They return p50 and p99 per
relay and day over the seven days up to that day; the rows must be equal. DuckDB is the baseline: one process, columnar,
no JVM. The first round of each is a warm-up and is not counted.
"""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from bench.report import Bench, Figures, compared
from waystation.pipeline.session import open_session
from waystation.pipeline.tables import SILVER_PROBES
from waystation.pipeline.transforms.relays import quantile_buckets, relay_histo
from waystation.rules.histogram import BUCKETS_COUNT, THRESHOLDS_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RELAYS: Final = 200
DAYS: Final = 8
WINDOW_DAYS: Final = 7
RATIO_MAX: Final = 8.0
SHARES: Final = {"p50": 50, "p99": 99}
DAY_US: Final = 86_400_000_000
START_US: Final = 1_780_012_800_000_000
"""2026-05-29."""

Row = tuple[Any, ...]


def generate(spark: "SparkSession", rows: int, folder: Path) -> None:
    """Write so many observations; each value follows from the row's number alone."""
    numbers = spark.range(rows)
    chance = F.pmod(F.xxhash64("id"), F.lit(1_000_003))
    at_us = F.lit(START_US) + F.pmod(F.xxhash64("id", F.lit(1)), F.lit(DAYS * DAY_US))
    # Latencies from 1 ms to 3 s, a hundredth of them ten times as long: every decade has its buckets.
    latency = F.floor(F.exp(F.pmod(F.xxhash64("id", F.lit(2)), F.lit(8_000_000)) / 1_000_000) * 1_000).cast("bigint")
    relay = F.lower(F.lpad(F.hex(F.pmod(F.xxhash64("id", F.lit(3)), F.lit(RELAYS))), 16, "0"))
    frame = numbers.select(
        F.unhex(F.lpad(F.hex("id"), 32, "0")).alias("event_id"),
        F.lit("0" * 16).alias("node_id"),
        F.lit("strata").alias("protocol"),
        relay.alias("relay_id"),
        F.when(chance % 4 == 0, "self_send").otherwise("rtt").alias("probe_kind"),
        F.timestamp_micros(at_us).alias("ts"),
        F.when(chance % 20 == 0, "failed").otherwise("ok").alias("outcome"),
        F.lit(None).cast("string").alias("incident"),
        F.when(chance % 20 != 0, F.when(chance % 100 == 1, latency * 10).otherwise(latency)).alias("latency_us"),
        F.lit(None).cast("bigint").alias("bytes"),
        F.lit(None).cast("bigint").alias("duration_us"),
        F.lit(1).cast("bigint").alias("n"),
    )
    frame.repartition(8).write.parquet(str(folder))


def by_spark(spark: "SparkSession", folder: Path) -> list[Row]:
    """Return relay, day, p50 and p99 as buckets."""
    probes = spark.read.schema(SILVER_PROBES.row_ddl()).parquet(str(folder))
    rolled = rolling(relay_histo(probes))
    found = quantile_buckets(rolled, ["relay_id", "day"], SHARES)
    return sorted(tuple(row) for row in found.collect())


def rolling(histogram: "DataFrame") -> "DataFrame":
    """Add up, for each relay and each day, the buckets of the seven days that end with it."""
    days = F.sequence(F.lit(0), F.lit(WINDOW_DAYS - 1))
    last = F.lit(START_US // DAY_US + DAYS - 1)
    spread = histogram.select("relay_id", "bucket", "n", F.explode(days).alias("later"), "day")
    moved = spread.withColumn("day", F.date_add("day", F.col("later"))).where(F.unix_date("day") <= last)
    return moved.groupBy("relay_id", "day", "bucket").agg(F.sum("n").alias("n"))


def by_duckdb(folder: Path) -> list[Row]:
    """Return the same."""
    with duckdb.connect() as connection:
        connection.execute(f"SET threads TO {os.cpu_count() or 1}; SET TimeZone = 'UTC'")
        return sorted(connection.execute(_query(folder)).fetchall())


def _query(folder: Path) -> str:
    borders = f"[{', '.join(map(str, THRESHOLDS_US))}]::BIGINT[]"
    last = START_US // DAY_US + DAYS - 1
    shares = ", ".join(
        f"min(bucket) FILTER (WHERE seen * 100 >= total * {share}) AS {name}" for name, share in SHARES.items()
    )
    return f"""
    WITH borders AS MATERIALIZED (SELECT {borders} AS first_us),
    guessed AS (
        SELECT relay_id, probe_kind, CAST(ts AS DATE) AS day, n, greatest(latency_us, 1) AS v,
            greatest(least(floor(ln(greatest(latency_us, 1)) * 10), {BUCKETS_COUNT - 1}), 0)::INTEGER AS guess
        FROM read_parquet('{folder}/*.parquet') WHERE outcome = 'ok' AND latency_us IS NOT NULL),
    daily AS (
        SELECT relay_id, day, probe_kind, CASE WHEN v >= first_us[guess + 2] THEN guess + 1 WHEN v < first_us[guess + 1]
            THEN guess - 1 ELSE guess END AS bucket, sum(n)::BIGINT AS n
        FROM guessed, borders GROUP BY ALL),
    rolled AS (
        SELECT relay_id, day + later::INTEGER AS day, bucket, sum(n)::BIGINT AS n
        FROM daily, range({WINDOW_DAYS}) AS days(later) WHERE day + later::INTEGER <= DATE '1970-01-01' + {last}
        GROUP BY ALL),
    counted AS (
        SELECT relay_id, day, bucket, sum(n) OVER (PARTITION BY relay_id, day ORDER BY bucket) AS seen,
            sum(n) OVER (PARTITION BY relay_id, day) AS total FROM rolled)
    SELECT relay_id, day, {shares} FROM counted GROUP BY relay_id, day"""


def measure(options: Any) -> list[Figures]:
    """Measure both, one after the other in each round; their rows must be equal."""
    with tempfile.TemporaryDirectory(prefix="bench-qos-") as name, open_session() as opened:
        folder = Path(name) / "probes"
        generate(opened.spark, options.rows, folder)
        sides = {"Spark": lambda: by_spark(opened.spark, folder), "DuckDB": lambda: by_duckdb(folder)}
        return compared(sides, lambda found: len(found) == RELAYS * DAYS, options.rounds)


if __name__ == "__main__":
    bench = Bench(__doc__, rounds=3, rows=10_000_000)
    text = f"qos, {bench.options.rows:,} observations of {RELAYS} relays over {DAYS} days"
    bench.compare(text, measure, f"Spark over DuckDB (at most {RATIO_MAX:g})")
