"""Job that applies policy rules to what nodes accepted on chosen dates, and reports what they would have refused.

``waystation pipeline backtest`` runs it, through ``pipeline.applications``. It writes no table.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.backtest import EXAMPLES_MAX, BacktestReport, collate
from waystation.pipeline.jobs.step import Context
from waystation.pipeline.tables import BRONZE_EVENTS
from waystation.pipeline.transforms.backtest import BASE_BITS, RULES_DDL, accepted_items, tried
from waystation.rules.policy import PolicyRule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["run_backtest"]


def run_backtest(
    context: Context, rules: Sequence[PolicyRule], base_bits: Mapping[str, int] = BASE_BITS
) -> BacktestReport:
    """Return what ``rules`` would have refused on ``context.dates``.

    Args:
        context: Its lake is only read.
        rules: The policy; each rule is tried by itself.
        base_bits: Bits that the node demands of each kind of work before anything is added.
    """
    dates = context.dates.select(context.lake.manifest(BRONZE_EVENTS).dates())
    rows = [
        (number, rule.subject_kind, rule.subject_ref, rule.action.value, rule.amount)
        for number, rule in enumerate(rules)
    ]
    items = accepted_items(context.read(BRONZE_EVENTS, dates), base_bits)
    results = tried(items, context.spark.createDataFrame(rows, RULES_DDL)).localCheckpoint()
    counts = results.groupBy("number", "item").agg(F.sum("n").alias("n"), F.sum("refused").alias("refused"))
    return collate(
        dates,
        rules,
        [(row["number"], row["item"], row["n"], row["refused"]) for row in counts.collect()],
        [(row["number"], bytes(row["event_id"]), row["at_us"]) for row in _examples(results).collect()],
    )


def _examples(results: "DataFrame") -> "DataFrame":
    """Return the first refused items of each rule."""
    place = F.row_number().over(Window.partitionBy("number").orderBy("ts", "event_id"))
    placed = results.where(F.col("refused") > 0).withColumn("place", place)
    return placed.where(F.col("place") <= EXAMPLES_MAX).select("number", "event_id", F.unix_micros("ts").alias("at_us"))
