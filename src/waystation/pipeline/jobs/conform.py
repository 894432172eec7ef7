"""Make ``silver.connections`` and ``silver.deliveries`` out of ``bronze.events``, whole dates at a time."""

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import Counts, DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import BRONZE_EVENTS, SILVER_CONNECTIONS, SILVER_DELIVERIES
from waystation.pipeline.transforms.conform import connections, deliveries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PAIRING_DAYS", "conform"]

PAIRING_DAYS: Final = 8
"""How far apart two events of one connection may lie: references change weekly (specs/pipeline.md, Privacy 3)."""


def conform(spark: "SparkSession", lake: Lake, run_id: str, dates: DateRange) -> Counts:
    """Rewrite the chosen dates of both tables; what an event near a date says about its neighbours is looked up."""
    bronze = lake.manifest(BRONZE_EVENTS)
    targets = dates.select(bronze.dates())
    if not targets:
        return Counts(0, 0)
    reach = _reach(targets, bronze.dates())
    events = lake.read(spark, BRONZE_EVENTS, reach)
    of_targets = F.col("event_date").isin(targets)
    out = lake.overwrite(connections(events).where(of_targets), SILVER_CONNECTIONS, run_id, targets)
    out += lake.overwrite(deliveries(events).where(of_targets), SILVER_DELIVERIES, run_id, targets)
    return Counts(sum(batch.rows for batch in bronze.batches if batch.event_date in reach), out)


def _reach(targets: Sequence[datetime.date], dates: Sequence[datetime.date]) -> list[datetime.date]:
    margin = datetime.timedelta(days=PAIRING_DAYS)
    return [date for date in dates if targets[0] - margin <= date <= targets[-1] + margin]
