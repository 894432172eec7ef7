"""Pairs start and end events into one row per connection and one row per delivery attempt.

``jobs.conform`` calls it: ``bronze.events`` go in. An event without its counterpart still gives a row, with null for
the missing side.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import SILVER_CONNECTIONS, SILVER_DELIVERIES
from waystation.pipeline.transforms.attributes import attribute, number_or_none

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["connections", "deliveries"]

_ATTEMPT_REF: Final = "^[0-9a-f]{32}$"


def connections(events: "DataFrame") -> "DataFrame":
    """Pair ``peer_identified`` with ``peer_left`` by ``node_id`` and ``conn_ref``.

    Takes ``bronze.events``. Gives the columns of ``silver.connections`` and ``event_date: date``, the date on which the
    connection opened, or ended when its opening was not kept.
    """
    of_connections = events.where(F.col("kind").isin("peer_identified", "peer_left") & F.col("conn_ref").isNotNull())
    opened, left = F.col("kind") == "peer_identified", F.col("kind") == "peer_left"
    paired = of_connections.groupBy("node_id", "conn_ref").agg(
        F.min("protocol").alias("protocol"),
        F.min("peer_ref").alias("peer_ref"),
        F.min(F.when(opened, F.col("ts"))).alias("opened_at"),
        F.max(F.when(left, F.col("ts"))).alias("closed_at"),
        F.max(F.when(left, F.col("reason"))).alias("close_reason"),
        F.max(number_or_none("bytes_in")).alias("bytes_in"),
        F.max(number_or_none("bytes_out")).alias("bytes_out"),
    )
    return _dated(paired, SILVER_CONNECTIONS.names(), "opened_at", "closed_at")


def deliveries(events: "DataFrame") -> "DataFrame":
    """Pair ``delivery_accepted`` with ``delivery_finished`` by ``node_id``, ``protocol`` and ``attempt_ref``.

    Takes ``bronze.events``; events without a well-formed attempt_ref fall away. An outcome whose acceptance was not
    recorded was accepted ``latency_us`` before it; without a latency it was immediate. Gives the columns of
    ``silver.deliveries`` and ``event_date: date``, the date on which the attempt was accepted, or finished when nothing
    was accepted.
    """
    reference = attribute("attempt_ref")
    accepted, finished = F.col("kind") == "delivery_accepted", F.col("kind") == "delivery_finished"
    began = F.timestamp_micros(F.unix_micros("ts") - F.col("latency_us"))
    of_deliveries = events.where((accepted | finished) & reference.rlike(_ATTEMPT_REF))
    paired = (
        of_deliveries.withColumn("attempt_ref", F.unhex(reference))
        .groupBy("node_id", "protocol", "attempt_ref")
        .agg(
            F.min("peer_ref").alias("dest_ref"),
            F.coalesce(F.min(F.when(accepted, F.col("ts"))), F.min(F.when(finished, began))).alias("accepted_at"),
            F.max(F.when(finished, F.col("ts"))).alias("finished_at"),
            F.max(F.when(finished, F.col("outcome"))).alias("outcome"),
            F.max(F.when(finished, F.col("latency_us"))).alias("latency_us"),
            F.max(number_or_none("tries")).alias("tries"),
            F.sum("bytes").alias("bytes"),
        )
    )
    return _dated(paired, SILVER_DELIVERIES.names(), "accepted_at", "finished_at")


def _dated(paired: "DataFrame", names: list[str], first: str, second: str) -> "DataFrame":
    return paired.select(*names, F.to_date(F.coalesce(first, second)).alias("event_date"))
