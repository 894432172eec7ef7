"""Merges archived packets into one row per packet and node: first storage time and number of archived copies.

``jobs.consistency`` calls it: ``bronze.archive`` and the table's present rows go in. Rows whose archived copies have
been deleted are kept unchanged.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import SILVER_PACKET_SEEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["packet_seen"]


def packet_seen(archive: "DataFrame", known: "DataFrame") -> "DataFrame":
    """Return one row per packet and node: when the node stored it first, and how often it archived it.

    Takes ``bronze.archive`` and ``silver.packet_seen`` as it was. The archive is kept for a shorter time than what was
    seen: rows whose archived copies are gone stay as they are. Gives the columns of ``silver.packet_seen`` and
    ``event_date: date``, the date of ``first_seen_at``.
    """
    order = F.struct("stored_at", "segment", "seq")
    reported = F.struct("author_id", "content_type", "packet_ts", "expires_at")
    fresh = archive.groupBy("packet_id", "node_id").agg(
        F.min_by(reported, order).alias("reported"),
        F.min("stored_at").alias("first_seen_at"),
        F.count(F.lit(1)).alias("n_copies"),
    )
    before = known.select("packet_id", "node_id", reported.alias("reported"), "first_seen_at", "n_copies")
    merged = (
        fresh.unionByName(before)
        .groupBy("packet_id", "node_id")
        .agg(
            F.min_by("reported", F.struct("first_seen_at", "reported")).alias("reported"),
            F.min("first_seen_at").alias("first_seen_at"),
            F.max("n_copies").alias("n_copies"),
        )
    )
    return merged.select("*", "reported.*").select(
        *SILVER_PACKET_SEEN.names(), F.to_date("first_seen_at").alias("event_date")
    )
