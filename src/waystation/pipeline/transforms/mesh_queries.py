"""Selects mesh look-ups (searches for a client among other nodes) from events, dated by their start.

``jobs.mesh`` calls it: ``bronze.events`` go in, rows of ``silver.mesh_queries`` come out.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import SILVER_MESH_QUERIES
from waystation.pipeline.transforms.attributes import is_well_formed, number_or_none

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FOUND", "malformed_query", "mesh_queries"]

FOUND: Final = "found"
_RESULTS: Final = (FOUND, "absent", "timeout")


def mesh_queries(events: "DataFrame") -> "DataFrame":
    """Return look-ups with the time at which they began.

    Takes ``bronze.events``; look-ups with an unknown result or without numbers fall away. One with a latency began that
    long before it was reported; those that were summed up are dated by their report. Gives the columns of
    ``silver.mesh_queries`` and ``event_date: date``, the date of ``asked_at``.
    """
    began = F.timestamp_micros(F.unix_micros("ts") - F.coalesce("latency_us", F.lit(0)))
    rows = events.where((F.col("kind") == "mesh_lookup") & _is_well_formed()).select(
        "event_id",
        "node_id",
        "protocol",
        began.alias("asked_at"),
        F.col("peer_ref").alias("target_ref"),
        F.coalesce(number_or_none("n"), F.lit(1)).alias("n"),
        number_or_none("asked").alias("n_peers"),
        number_or_none("found").alias("n_found"),
        F.col("latency_us").alias("first_found_us"),
        F.col("outcome").alias("result"),
    )
    return rows.select(*SILVER_MESH_QUERIES.names(), F.to_date("asked_at").alias("event_date"))


def malformed_query() -> "Column":
    """Return whether a row of ``bronze.events`` is a look-up that ``mesh_queries`` turns down; never null."""
    return (F.col("kind") == "mesh_lookup") & ~_is_well_formed()


def _is_well_formed() -> "Column":
    known = F.coalesce(F.col("outcome").isin(*_RESULTS), F.lit(False))
    return known & is_well_formed("n") & number_or_none("asked").isNotNull() & number_or_none("found").isNotNull()
