"""Step for Bramble Sync (BSP) groups: writes their messages and holders by date, then group states as of this run.

``pipeline.run`` executes it on ``bronze.events``. It writes ``silver.bsp_messages``, ``silver.bsp_sync``,
``gold.bsp_groups`` and ``gold.bsp_invalid``.
"""

import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.conform import reach
from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.tables import (
    BRONZE_EVENTS,
    GOLD_BSP_GROUPS,
    GOLD_BSP_INVALID,
    SILVER_BSP_MESSAGES,
    SILVER_BSP_SYNC,
    Dataset,
)
from waystation.pipeline.transforms.bsp_groups import bsp_groups, bsp_invalid, closures
from waystation.pipeline.transforms.bsp_messages import bsp_messages, malformed_message
from waystation.pipeline.transforms.bsp_sync import bsp_sync, malformed_word

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["judge_groups"]

_KINDS: Final = ("message_stored", "message_changed", "message_held")
_LOOKED_BACK: Final = datetime.timedelta(days=SILVER_BSP_MESSAGES.retention_days)
"""A group is computed from the messages that are kept; those whose key has changed fade as their dates go."""


def judge_groups(context: Context) -> Counts:
    """Rewrite the dates that are due of what is known of messages, then judge all groups at ``as_of``.

    Events that do not say whole what they should are rejected and counted.
    """
    rows_in, rows_out, bad = _conform(context)
    judged = _judge(context)
    return Counts(rows_in, rows_out + judged, bad)


def _conform(context: Context) -> tuple[int, int, int]:
    """Rewrite silver; a message may change on another date than that of its arrival, which its row is dated by."""
    due = context.due(SILVER_BSP_MESSAGES, BRONZE_EVENTS)
    if not due:
        return 0, 0, 0
    dates = reach(due, context.lake.manifest(BRONZE_EVENTS).dates())
    events = context.read(BRONZE_EVENTS, dates).where(F.col("kind").isin(*_KINDS)).persist()
    of_due = F.col("event_date").isin(due)
    out = context.rewrite(bsp_messages(events).where(of_due), SILVER_BSP_MESSAGES, due)
    out += context.rewrite(bsp_sync(events).where(of_due), SILVER_BSP_SYNC, due)
    is_bad = of_due & (malformed_message() | malformed_word())
    rows_in, bad = events.agg(F.count("*"), F.count_if(is_bad)).first() or (0, 0)
    events.unpersist()
    return rows_in, out, bad


def _judge(context: Context) -> int:
    """Write gold for the date of ``as_of``; rows of other hours of that date stay."""
    as_of, date = context.as_of, context.as_of.date()
    dates = _kept(context, SILVER_BSP_MESSAGES)
    if not dates and date not in context.lake.manifest(GOLD_BSP_GROUPS).dates():
        return 0
    messages = context.read(SILVER_BSP_MESSAGES, dates)
    closed = closures(messages, as_of).persist()
    groups = bsp_groups(closed, messages, context.read(SILVER_BSP_SYNC, _kept(context, SILVER_BSP_SYNC)), as_of)
    is_latest = _is_latest(context.read(GOLD_BSP_GROUPS, [date]), as_of)
    out = context.rewrite_hour(groups, GOLD_BSP_GROUPS)
    if is_latest:
        out += context.rewrite(bsp_invalid(closed, as_of), GOLD_BSP_INVALID, [date])
    closed.unpersist()
    return out


def _kept(context: Context, dataset: Dataset) -> list[datetime.date]:
    """Return the dates of silver that groups are computed from at ``as_of``."""
    last = context.as_of.date()
    return [date for date in context.lake.manifest(dataset).dates() if last - _LOOKED_BACK <= date <= last]


def _is_latest(known: "DataFrame", as_of: datetime.datetime) -> bool:
    """Return whether no later hour of the date was judged: ``gold.bsp_invalid`` holds the last hour of each date."""
    return known.where(F.col("as_of") > F.lit(as_of)).isEmpty()
