"""Step that writes ``gold.delivery_outcomes`` from ``silver.deliveries``, in whole dates.

``pipeline.run`` executes it. A row counts the delivery attempts of one hour, protocol and outcome, with a histogram of
their latencies.
"""

from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.tables import GOLD_OUTCOMES, SILVER_DELIVERIES
from waystation.pipeline.transforms.outcomes import outcomes

__all__ = ["count_outcomes"]


def count_outcomes(context: Context) -> Counts:
    """Rewrite the dates that are due."""
    due = context.due(GOLD_OUTCOMES, SILVER_DELIVERIES)
    if not due:
        return Counts(0, 0)
    out = context.rewrite(outcomes(context.read(SILVER_DELIVERIES, due)), GOLD_OUTCOMES, due)
    return Counts(context.rows(SILVER_DELIVERIES, due), out)
