"""Counts relay observations per day, builds latency histograms, and computes the totals and quantiles of a week.

``jobs.qos`` calls it: ``silver.probes`` go in, rows of gold tables on relays come out.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import GOLD_RELAY_DAY, GOLD_RELAY_HISTO
from waystation.pipeline.transforms.outcomes import bucket
from waystation.rules.relay_observation import FAILED, MISSING, OK, Probe
from waystation.rules.relay_state import Incident
from waystation.rules.relay_window import MEDIA_BYTES_MIN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["QUANTILES", "quantile_buckets", "relay_day", "relay_histo", "relay_week"]

QUANTILES: Final = {"p50": 50, "p95": 95, "p99": 99}
"""Names of the quantiles that are kept, and the share of each in hundredths."""

_ANSWERED: Final = (Probe.RTT, Probe.SELF_SEND)  # whose latencies the score takes too
_REQUESTS: Final = (*_ANSWERED, Probe.BLOB)


def relay_histo(probes: "DataFrame") -> "DataFrame":
    """Count latencies by relay, day, kind of probe and bucket.

    Takes ``silver.probes``. Rows that were not ok or have no latency are left out. Gives the columns of
    ``gold.relay_histo`` and ``event_date: date``.
    """
    answers = probes.where((F.col("outcome") == OK) & F.col("latency_us").isNotNull())
    counted = (
        answers.withColumn("day", F.to_date("ts"))
        .withColumn("bucket", bucket(F.col("latency_us")).cast("int"))
        .groupBy("relay_id", "day", "probe_kind", "bucket")
        .agg(F.sum("n").alias("n"))
    )
    return counted.select(*GOLD_RELAY_HISTO.names(), F.col("day").alias("event_date"))


def relay_day(probes: "DataFrame") -> "DataFrame":
    """Count what was observed of each relay on each day.

    Takes ``silver.probes``. A span counts on the day it ended on. Gives the columns of ``gold.relay_day`` and
    ``event_date: date``.
    """
    counted = probes.groupBy("relay_id", F.to_date("ts").alias("day")).agg(*_facts())
    return counted.select(*GOLD_RELAY_DAY.names(), F.col("day").alias("event_date"))


def relay_week(probes: "DataFrame") -> "DataFrame":
    """Count what was observed of each relay in all rows, and find the quantiles of its latencies.

    Takes the rows of ``silver.probes`` that lie in the week. Gives ``relay_id: string``, the counts of
    ``gold.relay_day``, and for each of ``QUANTILES`` a bucket, ``p50: int`` and so on, null without an answer. Only
    latencies count that the score takes too.
    """
    answers = probes.where(F.col("probe_kind").isin([each.value for each in _ANSWERED]))
    histogram = relay_histo(answers).groupBy("relay_id", "bucket").agg(F.sum("n").alias("n"))
    found = quantile_buckets(histogram, ["relay_id"], QUANTILES)
    return probes.groupBy("relay_id").agg(*_facts()).join(found, "relay_id", "left")


def quantile_buckets(histogram: "DataFrame", keys: Sequence[str], shares: Mapping[str, int]) -> "DataFrame":
    """Find the smallest bucket up to which a share of all counts lies, as ``rules.histogram.quantile`` does.

    Takes the columns ``keys``, ``bucket: int`` and ``n: bigint``, above 0, with each bucket once for one value of the
    keys. Gives the keys and one column of buckets for each of ``shares``.

    Args:
        histogram: What to look at.
        keys: Columns that identify a histogram.
        shares: Name of a column to its share in hundredths, 1 to 100.
    """
    of_one = Window.partitionBy(*keys)
    up_to = of_one.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    counted = histogram.select(
        *keys, "bucket", F.sum("n").over(up_to).alias("seen"), F.sum("n").over(of_one).alias("total")
    )
    reached = {name: F.col("seen") * 100 >= F.col("total") * share for name, share in shares.items()}
    return counted.groupBy(*keys).agg(
        *(F.min(F.when(holds, F.col("bucket"))).alias(name) for name, holds in reached.items())
    )


def _facts() -> "list[Column]":
    """Return the sums of ``gold.relay_day``, by its names."""
    ok, failed, missing = (F.col("outcome") == outcome for outcome in (OK, FAILED, MISSING))
    connect, span, known = _is(Probe.CONNECT), _is(Probe.SPAN), _is(Probe.KNOWN_HASH)
    forged = F.col("incident") == Incident.BAD_SIGNATURE.value
    duration = F.coalesce("duration_us", F.lit(0))
    measured = _is(Probe.BLOB) & ok & (F.col("bytes") >= MEDIA_BYTES_MIN) & (duration > 0)
    return [
        _sum(connect, "n_connect"),
        _sum(connect & ok, "n_connect_ok"),
        _sum(span & ok, "up_us", duration),
        _sum(span & (ok | failed), "wanted_us", duration),
        _sum(F.lit(True), "n_probe"),
        _sum(forged, "n_bad_sig"),
        _sum(F.col("incident").isNotNull() & ~forged, "n_tampered"),
        _sum(known & ok, "n_known_ok"),
        _sum(known & missing, "n_known_missing"),
        _sum(failed & _is(*_REQUESTS), "n_timeout"),
        _sum(measured, "transferred_bytes", F.col("bytes")),
        _sum(measured, "transfer_us", duration),
    ]


def _is(*kinds: Probe) -> "Column":
    return F.col("probe_kind").isin([kind.value for kind in kinds])


def _sum(holds: "Column", name: str, amount: "Column | None" = None) -> "Column":
    each = F.col("n") if amount is None else F.col("n") * amount
    return F.sum(F.when(holds, each).otherwise(F.lit(0))).cast("bigint").alias(name)
