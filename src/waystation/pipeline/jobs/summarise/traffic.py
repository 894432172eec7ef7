"""Report queries for deliveries, packets, connections and refusals.

``summarise.whole`` calls them with Spark tables and puts the lists that come out into the ``Summary``.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.summarise.reading import hour_of, number
from waystation.pipeline.report import CheckRow, Hourly, OutcomeRow, RefusalRow, VerdictRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["REFUSALS_SHOWN_MAX", "anonymous", "checks", "connections", "outcomes", "refusals", "verdicts"]

REFUSALS_SHOWN_MAX: Final = 50
"""Most frequent refusals that the report lists."""
_ROWS_MAX: Final = 50_000
"""Newest rows by the hour: a year of hours with six outcomes each."""


def outcomes(gold: "DataFrame") -> list[OutcomeRow]:
    """Return the rows of ``gold.delivery_outcomes``, sorted."""
    rows = gold.select(hour_of("hour"), "protocol", "outcome", "n", "bytes", "histogram")
    newest = rows.orderBy(F.desc("hour"), "protocol", "outcome").limit(_ROWS_MAX).collect()
    return sorted(
        OutcomeRow(row["hour"], row["protocol"], row["outcome"], row["n"], row["bytes"], dict(row["histogram"]))
        for row in newest
    )


def verdicts(gold: "DataFrame") -> list[VerdictRow]:
    """Return the rows of ``gold.packet_verdicts``, sorted."""
    rows = gold.select(hour_of("hour"), "protocol", "verdict", "detail", "n", "bytes")
    newest = rows.orderBy(F.desc("hour"), "protocol", "verdict", "detail").limit(_ROWS_MAX)
    return sorted(VerdictRow(*row) for row in newest.collect())


def checks(packets: "DataFrame") -> list[CheckRow]:
    """Return ``silver.packets`` counted by protocol and verdict, sorted."""
    counted = packets.groupBy("protocol", "verdict").agg(F.count("*").alias("n"), F.sum("size").alias("bytes"))
    return sorted(CheckRow(row["protocol"], row["verdict"], row["n"], row["bytes"]) for row in counted.collect())


def connections(silver: "DataFrame") -> list[Hourly]:
    """Return ``silver.connections`` counted by the hour; those whose opening was not kept are left out."""
    opened = silver.where("opened_at is not null").select(hour_of("opened_at"), F.lit(1).alias("opened"))
    closed = silver.where("opened_at is not null and closed_at is not null")
    ended = closed.select(hour_of("closed_at"), F.lit(1).alias("closed"))
    return _hourly(opened.unionByName(ended, allowMissingColumns=True))


def anonymous(events: "DataFrame") -> list[Hourly]:
    """Return the counts of ``bronze.events`` for connections that did not identify themselves, by the hour."""
    counted = events.where(F.col("kind") == "anonymous_counted")
    return _hourly(counted.select(hour_of("ts"), number("opened"), number("closed")))


def _hourly(changes: "DataFrame") -> list[Hourly]:
    sums = changes.groupBy("hour").agg(F.sum("opened").alias("opened"), F.sum("closed").alias("closed"))
    newest = sums.orderBy(F.desc("hour")).limit(_ROWS_MAX).collect()
    return sorted(Hourly(row["hour"], row["opened"] or 0, row["closed"] or 0) for row in newest)


def refusals(events: "DataFrame") -> list[RefusalRow]:
    """Return the most frequent refusals of ``bronze.events``."""
    refused = events.where(F.col("kind") == "refused").withColumn("n", F.coalesce(number("n"), F.lit(1)))
    sums = refused.groupBy("protocol", "reason").agg(F.sum("n").alias("n"))
    most = sums.orderBy(F.desc("n"), "protocol", "reason").limit(REFUSALS_SHOWN_MAX)
    return [RefusalRow(row["protocol"], row["reason"] or "", row["n"]) for row in most.collect()]
