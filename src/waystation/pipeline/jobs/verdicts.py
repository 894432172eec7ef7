"""Step that writes ``gold.packet_verdicts`` from ``bronze.events``, in whole dates.

``pipeline.run`` executes it. A row counts the packets of one hour, protocol and verdict (accepted, known, or refused
and why).
"""

from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_VERDICTS
from waystation.pipeline.transforms.verdicts import verdicts

__all__ = ["count_verdicts"]


def count_verdicts(context: Context) -> Counts:
    """Rewrite the dates that are due."""
    due = context.due(GOLD_VERDICTS, BRONZE_EVENTS)
    if not due:
        return Counts(0, 0)
    out = context.rewrite(verdicts(context.read(BRONZE_EVENTS, due)), GOLD_VERDICTS, due)
    return Counts(context.rows(BRONZE_EVENTS, due), out)
