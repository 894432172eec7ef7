"""Finds the first report of each peer that it stores a BSP (Bramble Sync) message, with its offer and send times.

``jobs.bsp`` calls it: ``bronze.events`` go in, rows of ``silver.bsp_sync`` come out.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import SILVER_BSP_SYNC
from waystation.pipeline.transforms.attributes import is_well_formed, number_or_none, reference

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["bsp_sync", "malformed_word"]

_AGO: Final = ("offered", "requested", "sent")


def bsp_sync(events: "DataFrame") -> "DataFrame":
    """Return for each message and peer the first word of the peer that it holds it.

    Takes ``bronze.events``; events with a malformed attribute fall away. The first is that by ``ts``, ``seq`` and
    ``event_id``; when it was offered, asked for and sent is counted back from there. Gives the columns of
    ``silver.bsp_sync`` and ``event_date: date``, the date of ``held_at``.
    """
    ago = [F.timestamp_micros(F.unix_micros("ts") - number_or_none(f"{what}_us")).alias(f"{what}_at") for what in _AGO]
    reports = events.where((F.col("kind") == "message_held") & _is_well_formed()).select(
        "node_id",
        "peer_ref",
        reference("group_ref").alias("group_ref"),
        reference("message_ref").alias("message_ref"),
        F.struct("ts", "seq", "event_id").alias("at"),
        F.struct(F.col("ts").alias("held_at"), *ago, number_or_none("copies").alias("send_count")).alias("first"),
    )
    firsts = reports.groupBy("node_id", "peer_ref", "group_ref", "message_ref").agg(
        F.min_by("first", "at").alias("first")
    )
    rows = firsts.select("node_id", "peer_ref", "group_ref", "message_ref", "first.*")
    return rows.select(*SILVER_BSP_SYNC.names(), F.to_date("held_at").alias("event_date"))


def malformed_word() -> "Column":
    """Return whether a row of ``bronze.events`` is a word of a peer, and ``bsp_sync`` turns it down; never null."""
    return (F.col("kind") == "message_held") & ~_is_well_formed()


def _is_well_formed() -> "Column":
    """Return whether an event names a peer, a group, a message, and how often it was sent."""
    named = F.col("peer_ref").isNotNull() & reference("group_ref").isNotNull() & reference("message_ref").isNotNull()
    times = is_well_formed("offered_us") & is_well_formed("requested_us") & is_well_formed("sent_us")
    return named & number_or_none("copies").isNotNull() & times
