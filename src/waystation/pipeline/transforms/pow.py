"""Selects proof-of-work verdicts from events; an event that summarises several verdicts stays one row with a count.

``jobs.abuse`` calls it: ``bronze.events`` go in, rows of ``silver.pow`` come out.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import SILVER_POW
from waystation.pipeline.transforms.attributes import attribute, number_or_none

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["work"]


def work(events: "DataFrame") -> "DataFrame":
    """Return every verdict on work; those that were gathered stay one row with how many they are.

    Takes ``bronze.events``. Gives the columns of ``silver.pow`` and ``event_date: date``, the date of ``judged_at``.
    """
    judged = events.where((F.col("kind") == "work_judged") & F.col("outcome").isNotNull())
    demanded = F.timestamp_micros(F.unix_micros("ts") - F.col("latency_us"))
    rows = judged.select(
        *("event_id", "node_id", "protocol"),
        F.col("peer_ref").alias("worker_ref"),
        F.coalesce(attribute("work"), F.lit("")).alias("work"),
        F.col("outcome").alias("result"),
        attribute("bits").try_cast("int").alias("bits"),
        demanded.alias("issued_at"),
        F.col("ts").alias("judged_at"),
        F.coalesce(number_or_none("n"), F.lit(1)).alias("n"),
    )
    return rows.select(*SILVER_POW.names(), F.to_date("judged_at").alias("event_date"))
