"""Counts packets by hour, protocol, verdict and detail; an event that summarises several packets counts them all.

``jobs.verdicts`` calls it: ``bronze.events`` go in, rows of ``gold.packet_verdicts`` come out.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import GOLD_VERDICTS
from waystation.pipeline.transforms.attributes import number_or_none

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["verdicts"]


def verdicts(events: "DataFrame") -> "DataFrame":
    """Count packets by hour, protocol, verdict and detail; a gathered event counts as often as it says.

    Takes ``bronze.events``. Gives the columns of ``gold.packet_verdicts`` and ``event_date: date``.
    """
    times = F.coalesce(number_or_none("n"), F.lit(1))
    judged = events.where((F.col("kind") == "packet_judged") & F.col("outcome").isNotNull())
    counted = (
        judged.withColumn("hour", F.date_trunc("hour", "ts"))
        .withColumn("verdict", F.col("outcome"))
        .withColumn("detail", F.coalesce("reason", F.lit("")))
        .withColumn("times", times)
        .groupBy("hour", "protocol", "verdict", "detail")
        .agg(F.sum("times").alias("n"), F.sum(F.coalesce("bytes", F.lit(0))).alias("bytes"))
    )
    return counted.select(*GOLD_VERDICTS.names(), F.to_date("hour").alias("event_date"))
