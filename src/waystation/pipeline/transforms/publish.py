"""Selects, orders and converts rows of gold tables for publication as JSON.

``jobs.publish`` calls it: a DataFrame goes in, one with JSON values comes out. Times become microseconds, dates become
ISO texts, and binary values become hexadecimal digits.
"""

import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.rules.policy import Action

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from waystation.pipeline.tables import Dataset

__all__ = ["plain_rows", "ranked_policy", "within"]

_HARDEST_FIRST: Final = tuple(Action)


def within(frame: "DataFrame", moment: str, first: datetime.datetime, last: datetime.datetime) -> "DataFrame":
    """Keep rows whose ``moment`` (timestamp or date) is from ``first`` to before ``last``; takes and gives any columns.

    Where both are the same moment, rows of exactly that moment are kept.
    """
    at = F.col(moment).cast("timestamp")
    end = at <= F.lit(last) if first == last else at < F.lit(last)
    return frame.where((at >= F.lit(first)) & end)


def plain_rows(frame: "DataFrame", dataset: "Dataset", newest_first: str = "") -> "DataFrame":
    """Give the dataset's columns as values that JSON has, ordered by the dataset's key.

    Timestamps become microseconds (bigint), dates ISO texts, binary hexadecimal texts, maps arrays of pairs, sorted.
    With ``newest_first`` that column orders before the key, descending.
    """
    order = [F.col(newest_first).desc()] if newest_first else []
    ordered = frame.orderBy(*order, *[F.col(name) for name in dataset.key])
    return ordered.select(*[_plain(column.name, column.type).alias(column.name) for column in dataset.columns])


def ranked_policy(policy: "DataFrame", as_of: datetime.datetime, rules_max: int) -> "DataFrame":
    """Keep what was decided for ``as_of`` and does not end before it: at most ``rules_max`` rules of each node.

    Takes ``gold.policy``. Gives node_id: string, kind: string, ref: binary, action: string, amount: bigint, rule:
    string, from_us: bigint, until_us: bigint, rule_version: string, mode: string; of each node the hardest first,
    then those with the most evidence.
    """
    hardness = F.array_position(F.array(*[F.lit(action.value) for action in _HARDEST_FIRST]), F.col("action"))
    order = [hardness, F.col("evidence").desc(), F.col("subject_kind"), F.col("subject_ref"), F.col("rule")]
    rank = F.row_number().over(Window.partitionBy("node_id").orderBy(*order))
    holds = (F.col("as_of") == F.lit(as_of)) & (F.col("valid_until") > F.lit(as_of))
    ranked = policy.where(holds).withColumn("rank", rank).where(F.col("rank") <= rules_max)
    return ranked.orderBy("node_id", "rank").select(
        "node_id",
        F.col("subject_kind").alias("kind"),
        F.col("subject_ref").alias("ref"),
        "action",
        "amount",
        "rule",
        F.unix_micros("valid_from").alias("from_us"),
        F.unix_micros("valid_until").alias("until_us"),
        "rule_version",
        "mode",
    )


def _plain(name: str, kind: str) -> "Column":
    value = F.col(name)
    if kind == "timestamp":
        return F.unix_micros(value)
    if kind == "date":
        return value.cast("string")
    if kind == "binary":
        return F.lower(F.hex(value))
    if kind == "array<binary>":
        return F.transform(value, lambda each: F.lower(F.hex(each)))
    if kind.startswith("map<"):
        pairs = F.array_sort(F.map_entries(value))
        return F.transform(pairs, lambda pair: F.array(pair["key"].cast("bigint"), pair["value"].cast("bigint")))
    return value
