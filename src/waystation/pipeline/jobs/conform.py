"""Step that writes ``silver.connections`` and ``silver.deliveries`` from ``bronze.events``, in whole dates.

``pipeline.run`` executes it; a row is one connection or one delivery attempt. Events up to ``PAIRING_DAYS`` around a
date are read, because start and end may be on different dates.
"""

import datetime
from collections.abc import Sequence
from typing import Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.tables import BRONZE_EVENTS, SILVER_CONNECTIONS, SILVER_DELIVERIES
from waystation.pipeline.transforms.conform import connections, deliveries

__all__ = ["PAIRING_DAYS", "conform", "reach"]

PAIRING_DAYS: Final = 8
"""How far apart two events of one connection may lie: references change weekly (docs/decisions/pipeline.md)."""


def conform(context: Context) -> Counts:
    """Rewrite the dates that are due; events near a date are looked at for what they say of its neighbours."""
    due = context.due(SILVER_DELIVERIES, BRONZE_EVENTS)
    if not due:
        return Counts(0, 0)
    dates = reach(due, context.lake.manifest(BRONZE_EVENTS).dates())
    events = context.read(BRONZE_EVENTS, dates)
    of_due = F.col("event_date").isin(due)
    out = context.rewrite(connections(events).where(of_due), SILVER_CONNECTIONS, due)
    out += context.rewrite(deliveries(events).where(of_due), SILVER_DELIVERIES, due)
    return Counts(context.rows(BRONZE_EVENTS, dates), out)


def reach(due: Sequence[datetime.date], dates: Sequence[datetime.date]) -> list[datetime.date]:
    """Return those of ``dates`` whose events may belong to rows of the dates that are due."""
    margin = datetime.timedelta(days=PAIRING_DAYS)
    return [date for date in dates if due[0] - margin <= date <= due[-1] + margin]
