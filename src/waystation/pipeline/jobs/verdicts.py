"""Make ``gold.packet_verdicts`` out of ``bronze.events``, whole dates at a time."""

from typing import TYPE_CHECKING

from waystation.pipeline.jobs.step import Counts, DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_VERDICTS
from waystation.pipeline.transforms.verdicts import verdicts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["count_verdicts"]


def count_verdicts(spark: "SparkSession", lake: Lake, run_id: str, dates: DateRange) -> Counts:
    """Rewrite the chosen dates of the table."""
    bronze, gold = lake.manifest(BRONZE_EVENTS), lake.manifest(GOLD_VERDICTS)
    targets = dates.select({*bronze.dates(), *gold.dates()})
    if not targets:
        return Counts(0, 0)
    events = lake.read(spark, BRONZE_EVENTS, targets)
    out = lake.overwrite(verdicts(events), GOLD_VERDICTS, run_id, targets)
    return Counts(sum(batch.rows for batch in bronze.batches if batch.event_date in targets), out)
