"""Read from the lake what the report shows; every answer is small whatever the lake holds."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.report import CheckRow, Hourly, OutcomeRow, RefusalRow, Summary, VerdictRow
from waystation.pipeline.tables import (
    BRONZE_EVENTS,
    DATASETS,
    GOLD_OUTCOMES,
    GOLD_VERDICTS,
    OPS_RUNS,
    SILVER_CONNECTIONS,
    SILVER_PACKETS,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["REFUSALS_SHOWN_MAX", "summarise"]

REFUSALS_SHOWN_MAX: Final = 50
"""Most frequent refusals that the report lists."""


def summarise(spark: "SparkSession", lake: Lake, dates: DateRange) -> Summary:
    """Return what the report shows of the chosen dates."""
    events = lake.read(spark, BRONZE_EVENTS, dates.select(lake.manifest(BRONZE_EVENTS).dates()))
    gold = lake.read(spark, GOLD_OUTCOMES, dates.select(lake.manifest(GOLD_OUTCOMES).dates()))
    silver = lake.read(spark, SILVER_CONNECTIONS, dates.select(lake.manifest(SILVER_CONNECTIONS).dates()))
    judged = lake.read(spark, GOLD_VERDICTS, dates.select(lake.manifest(GOLD_VERDICTS).dates()))
    checked = lake.read(spark, SILVER_PACKETS, dates.select(lake.manifest(SILVER_PACKETS).dates()))
    return Summary(
        outcomes=_outcomes(gold),
        connections=_connections(silver),
        anonymous=_anonymous(events),
        refusals=_refusals(events),
        verdicts=_verdicts(judged),
        checks=_checks(checked),
        row_counts=_row_counts(lake, dates),
    )


def _outcomes(gold: "DataFrame") -> list[OutcomeRow]:
    rows = gold.select(_seconds("hour"), "protocol", "outcome", "n", "bytes", "histogram").collect()
    return sorted(
        OutcomeRow(row["hour"], row["protocol"], row["outcome"], row["n"], row["bytes"], dict(row["histogram"]))
        for row in rows
    )


def _connections(silver: "DataFrame") -> list[Hourly]:
    opened = silver.where("opened_at is not null").select(_seconds("opened_at", "hour"), F.lit(1).alias("opened"))
    closed = silver.where("opened_at is not null and closed_at is not null").select(
        _seconds("closed_at", "hour"), F.lit(1).alias("closed")
    )
    return _hourly(opened.unionByName(closed, allowMissingColumns=True))


def _anonymous(events: "DataFrame") -> list[Hourly]:
    counted = events.where(F.col("kind") == "anonymous_counted")
    return _hourly(counted.select(_seconds("ts", "hour"), _number("opened"), _number("closed")))


def _hourly(changes: "DataFrame") -> list[Hourly]:
    sums = changes.groupBy("hour").agg(F.sum("opened").alias("opened"), F.sum("closed").alias("closed")).collect()
    return sorted(Hourly(row["hour"], row["opened"] or 0, row["closed"] or 0) for row in sums)


def _refusals(events: "DataFrame") -> list[RefusalRow]:
    refused = events.where(F.col("kind") == "refused").withColumn("n", F.coalesce(_number("n"), F.lit(1)))
    sums = refused.groupBy("protocol", "reason").agg(F.sum("n").alias("n"))
    most = sums.orderBy(F.desc("n"), "protocol", "reason").limit(REFUSALS_SHOWN_MAX)
    return [RefusalRow(row["protocol"], row["reason"] or "", row["n"]) for row in most.collect()]


def _verdicts(judged: "DataFrame") -> list[VerdictRow]:
    rows = judged.select(_seconds("hour"), "protocol", "verdict", "detail", "n", "bytes").collect()
    return sorted(VerdictRow(*row) for row in rows)


def _checks(checked: "DataFrame") -> list[CheckRow]:
    counted = checked.groupBy("protocol", "verdict").agg(F.count("*").alias("n"), F.sum("size").alias("bytes"))
    return sorted(CheckRow(row["protocol"], row["verdict"], row["n"], row["bytes"]) for row in counted.collect())


def _row_counts(lake: Lake, dates: DateRange) -> list[tuple[str, int]]:
    counts = []
    for dataset in DATASETS:
        if dataset is not OPS_RUNS:
            manifest = lake.manifest(dataset)
            chosen = dates.select(manifest.dates())
            counts.append((dataset.full_name, sum(b.rows for b in manifest.batches if b.event_date in chosen)))
    return counts


def _seconds(column: str, name: str = "") -> "Column":
    """Return the hour of a timestamp as seconds since 1970: Python's local time zone must not touch it."""
    return F.unix_timestamp(F.date_trunc("hour", F.col(column))).alias(name or column)


def _number(key: str) -> "Column":
    return F.try_element_at("attrs", F.lit(key)).try_cast("bigint").alias(key)
