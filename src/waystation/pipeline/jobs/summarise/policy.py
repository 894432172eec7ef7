"""Report queries for abuse findings and for the policy rules derived from them.

``summarise.whole`` calls them with Spark tables and puts the lists that come out into the ``Summary``.
"""

import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.window import Window

from waystation.pipeline.jobs.summarise.reading import digits, hour_of, seconds
from waystation.pipeline.report import FindingRow, PolicyRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FINDINGS_MAX", "POLICY_MAX", "findings", "findings_hourly", "policy"]

FINDINGS_MAX: Final = 200
"""Findings that the report lists, the most severe first."""
POLICY_MAX: Final = 200
"""Rules of policy that the report lists."""
_HOURLY_MAX: Final = 5_000


def findings(gold: "DataFrame") -> list[FindingRow]:
    """Return the most severe rows of ``gold.abuse_findings``, of equal ones the newest."""
    severity = F.when(F.col("severity") == "high", 0).when(F.col("severity") == "medium", 1).otherwise(2)
    keys = ("node_id", "protocol", "actor_kind", "actor_ref", "rule")
    worst = gold.orderBy(severity, F.desc("window_start"), F.desc("n"), *keys).limit(FINDINGS_MAX)
    shown = worst.select(
        *("node_id", "protocol", "actor_kind", digits("actor_ref"), "rule", seconds("window_start"), "n", "limit"),
        *(seconds("first_at"), seconds("last_at"), "severity", "suggested_action", seconds("expires_at")),
    )
    return [FindingRow(*row) for row in shown.collect()]


def findings_hourly(gold: "DataFrame") -> list[tuple[int, str, int]]:
    """Return hour, rule and number of all findings, sorted."""
    counted = gold.groupBy(hour_of("window_start"), "rule").agg(F.count("*").alias("n"))
    newest = counted.orderBy(F.desc("hour"), "rule").limit(_HOURLY_MAX)
    return sorted((row["hour"], row["rule"], row["n"]) for row in newest.collect())


def policy(gold: "DataFrame", as_of: datetime.datetime | None) -> list[PolicyRow]:
    """Return the rules of ``gold.policy`` that hold: of each node's newest moment, and not over at ``as_of``."""
    newest = F.max("as_of").over(Window.partitionBy("node_id"))
    held = gold.withColumn("newest", newest).where("as_of = newest")
    if as_of is not None:
        held = held.where(F.col("valid_until") > F.lit(as_of))
    shown = held.orderBy("mode", "action", "node_id", "subject_kind", "subject_ref", "rule").limit(POLICY_MAX)
    columns = ("action", "amount", "rule", "evidence", seconds("valid_until"), "mode")
    rows = shown.select("node_id", seconds("as_of"), "subject_kind", digits("subject_ref"), *columns)
    return [PolicyRow(*row) for row in rows.collect()]
