"""Counts delivery attempts by hour, protocol and outcome, with a latency histogram of each group.

``jobs.outcomes`` calls it: ``silver.deliveries`` go in. Buckets equal those of ``rules.histogram``. An attempt without
an outcome counts as ``unfinished``.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import GOLD_OUTCOMES, UNFINISHED
from waystation.rules.histogram import BUCKETS_COUNT, THRESHOLDS_US

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["bucket", "outcomes"]


def bucket(latency_us: "Column") -> "Column":
    """Return ``rules.histogram.bucket_of`` as a Spark expression; null for null.

    The logarithm only guesses; integers decide, so that no JVM's last digit can move a latency into another bucket.
    """
    value = F.greatest(latency_us, F.lit(1))
    guess = F.greatest(F.least(F.floor(F.ln(value) * 10), F.lit(BUCKETS_COUNT - 1)), F.lit(0)).cast("int")
    borders = F.expr(f"array({', '.join(f'{border}L' for border in THRESHOLDS_US)})")
    after = F.try_element_at(borders, guess + 2)
    at = F.try_element_at(borders, guess + 1)
    moved = F.when(value >= after, guess + 1).when(value < at, guess - 1).otherwise(guess)
    return F.when(latency_us.isNotNull(), moved)


def outcomes(deliveries: "DataFrame") -> "DataFrame":
    """Count attempts by the hour they began in, protocol and outcome, with a histogram of their latencies.

    Takes ``silver.deliveries``. Gives the columns of ``gold.delivery_outcomes`` and ``event_date: date``. An attempt
    without an outcome counts as ``unfinished``; one without a latency is in ``n`` but not in the histogram, and counts
    as often as its ``tries`` say, since it may stand for several.
    """
    times = F.when(F.col("latency_us").isNull(), F.coalesce("tries", F.lit(1))).otherwise(F.lit(1))
    began = F.coalesce("accepted_at", "finished_at")
    by_bucket = (
        deliveries.withColumn("hour", F.date_trunc("hour", began))
        .withColumn("outcome", F.coalesce("outcome", F.lit(UNFINISHED)))
        .withColumn("bucket", bucket(F.col("latency_us")))
        .withColumn("times", times)
        .groupBy("hour", "protocol", "outcome", "bucket")
        .agg(F.sum("times").alias("n"), F.sum(F.coalesce("bytes", F.lit(0))).alias("bytes"))
    )
    entry = F.when(F.col("bucket").isNotNull(), F.struct("bucket", "n"))  # lists leave nulls out
    by_hour = by_bucket.groupBy("hour", "protocol", "outcome").agg(
        F.sum("n").alias("n"),
        F.sum("bytes").alias("bytes"),
        F.map_from_entries(F.array_sort(F.collect_list(entry))).alias("histogram"),
    )
    return by_hour.select(*GOLD_OUTCOMES.names(), F.to_date("hour").alias("event_date"))
