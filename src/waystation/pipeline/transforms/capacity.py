"""Computes the daily load of each node and the growth of its store, from minute samples and proof-of-work checks.

``jobs.capacity`` calls it: ``bronze.events`` and ``silver.pow`` go in, rows of ``gold.capacity`` come out.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import GOLD_CAPACITY
from waystation.pipeline.transforms.attributes import number_or_none
from waystation.rules.capacity import GROWTH_DAYS, days_to_full, growth, nearest_rank, per_second

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["capacity"]

_BITS_MAX: Final = 40  # more than any protocol can demand (lprp 8: 26), and the sum stays exact
_SUMS: Final = ("messages", "bytes_in", "bytes_out", "cpu_us")
_MEASURED: Final = ("peak_connections", *_SUMS, "memory_bytes", "store_bytes")
_PERCENT: Final = 99


def capacity(events: "DataFrame", work: "DataFrame", disk_gib: int) -> "DataFrame":
    """Sum up each node's day, and compute the growth of its store over the days before.

    Takes ``bronze.events`` and ``silver.pow``, both with the ``GROWTH_DAYS`` before the days that are wanted. Gives the
    columns of ``gold.capacity`` and ``event_date: date``. A day without samples has no row, not zeros (PIPE-SAMPLE).
    """
    days = _sampled(events).join(_worked(work), ["node_id", "day"], "left")
    whole = days.select(
        *("node_id", "day", "minutes", *_MEASURED),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("pow_accepted", "pow_turned_down")),
        F.coalesce("pow_work", F.lit(0)).cast("double").alias("pow_work"),
    )
    rows = whole.groupBy("node_id").applyInArrow(_finisher(disk_gib), GOLD_CAPACITY.row_ddl())
    return rows.select(*GOLD_CAPACITY.names(), F.col("day").alias("event_date"))


def _sampled(events: "DataFrame") -> "DataFrame":
    samples = events.where(F.col("kind") == "node_sampled")
    stored = _number("store_bytes") + _number("journal_bytes")
    return samples.groupBy("node_id", F.to_date("ts").alias("day")).agg(
        F.max(_number("connections")).alias("peak_connections"),
        *(F.sum(_number(name)).alias(name) for name in _SUMS),
        F.max(_number("memory_bytes")).alias("memory_bytes"),
        F.max_by(stored, F.struct("ts", "event_id")).alias("store_bytes"),
        F.sort_array(F.collect_list(_number("messages"))).alias("minutes"),
    )


def _worked(work: "DataFrame") -> "DataFrame":
    accepted, count = F.col("result") == "accepted", F.col("n").cast("decimal(18,0)")
    hashes = F.expr(f"shiftleft(1L, greatest(least(coalesce(bits, 0), {_BITS_MAX}), 0))").cast("decimal(18,0)")
    return work.groupBy("node_id", F.to_date("judged_at").alias("day")).agg(
        F.sum(F.when(accepted, F.col("n")).otherwise(0)).alias("pow_accepted"),
        F.sum(F.when(accepted, 0).otherwise(F.col("n"))).alias("pow_turned_down"),
        F.sum(F.when(accepted, count * hashes)).alias("pow_work"),
    )


def _number(key: str) -> "Column":
    return F.coalesce(number_or_none(key), F.lit(0))


def _finisher(disk_gib: int) -> Callable[[pa.Table], pa.Table]:
    schema = GOLD_CAPACITY.arrow_schema()

    def finish(table: pa.Table) -> pa.Table:
        days = sorted(table.to_pylist(), key=lambda row: row["day"])
        return pa.Table.from_pylist([_finished(row, days, disk_gib) for row in days], schema)

    return finish


def _finished(row: dict[str, Any], days: list[dict[str, Any]], disk_gib: int) -> dict[str, Any]:
    number = row["day"].toordinal()
    reach = range(number - GROWTH_DAYS + 1, number + 1)
    points = [(each["day"].toordinal(), each["store_bytes"]) for each in days]
    slope = growth([point for point in points if point[0] in reach])
    return {
        **row,
        "messages_per_s_p99": per_second(nearest_rank(row["minutes"], _PERCENT)),
        "growth_bytes_day": slope,
        "days_to_full": days_to_full(row["store_bytes"], slope, disk_gib),
    }
