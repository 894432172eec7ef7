"""Make ``gold.delivery_outcomes`` out of ``silver.deliveries``, whole dates at a time."""

from typing import TYPE_CHECKING

from waystation.pipeline.jobs.step import Counts, DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import GOLD_OUTCOMES, SILVER_DELIVERIES
from waystation.pipeline.transforms.outcomes import outcomes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["count_outcomes"]


def count_outcomes(spark: "SparkSession", lake: Lake, run_id: str, dates: DateRange) -> Counts:
    """Rewrite the chosen dates of the table."""
    silver, gold = lake.manifest(SILVER_DELIVERIES), lake.manifest(GOLD_OUTCOMES)
    targets = dates.select({*silver.dates(), *gold.dates()})
    if not targets:
        return Counts(0, 0)
    deliveries = lake.read(spark, SILVER_DELIVERIES, targets)
    out = lake.overwrite(outcomes(deliveries), GOLD_OUTCOMES, run_id, targets)
    return Counts(sum(batch.rows for batch in silver.batches if batch.event_date in targets), out)
