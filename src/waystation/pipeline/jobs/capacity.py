"""Step that writes ``gold.capacity`` from ``bronze.events`` and ``silver.pow``, one whole date at a time.

``pipeline.run`` executes it. A row is one node's day: connections, messages, bytes, size and growth of its store. The
days before each date are read too, to compute the growth of the store.
"""

import datetime

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_CAPACITY, SILVER_POW
from waystation.pipeline.transforms.capacity import capacity
from waystation.rules.capacity import GROWTH_DAYS

__all__ = ["measure_capacity"]


def measure_capacity(context: Context) -> Counts:
    """Rewrite the dates that are due; the days before them are looked at for how the store grew."""
    due = context.due(GOLD_CAPACITY, BRONZE_EVENTS, SILVER_POW)
    if not due:
        return Counts(0, 0)
    first = due[0] - datetime.timedelta(days=GROWTH_DAYS - 1)
    dates = [date for date in context.lake.manifest(BRONZE_EVENTS).dates() if first <= date <= due[-1]]
    rows = capacity(context.read(BRONZE_EVENTS, dates), context.read(SILVER_POW, due), context.settings.disk_gib)
    out = context.rewrite(rows.where(F.col("event_date").isin(due)), GOLD_CAPACITY, due)
    return Counts(context.rows(BRONZE_EVENTS, dates) + context.rows(SILVER_POW, due), out)
