"""Report queries for relay states, scores and consistency.

``summarise.whole`` calls them with Spark tables and puts the lists that come out into the ``Summary``.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.summarise.reading import DIGITS, seconds
from waystation.pipeline.report import ConsistencyRow, RelayRow, TransitionRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["RELAYS_MAX", "TRANSITIONS_MAX", "consistency", "relays", "transitions"]

RELAYS_MAX: Final = 200
"""Relays that the report lists, the blacklisted and the worst first."""
TRANSITIONS_MAX: Final = 2_000
"""Newest changes of state that the report knows."""
_CONSISTENCY_ROWS_MAX: Final = 2_000
_SUSPICIOUS_MAX: Final = 5

_SCORES: Final = (
    *("p50_us", "p95_us", "p99_us", "uptime_ratio", "connect_ratio", "throughput_bps", "integrity_faults"),
    *("consistency_ratio", "consistency_low", "n_obs", "score", "state"),
)


def relays(scores: "DataFrame") -> list[RelayRow]:
    """Return the newest row of each relay in ``gold.relay_scores``."""
    row = F.struct("as_of", *_SCORES, "since", "reason")
    newest = scores.groupBy("relay_id").agg(F.max_by(row, F.col("as_of")).alias("row")).select("relay_id", "row.*")
    worst = newest.orderBy(F.col("state") != "blacklisted", "score", "relay_id").limit(RELAYS_MAX)
    shown = worst.select("relay_id", seconds("as_of"), *_SCORES, seconds("since"), "reason")
    return [RelayRow(*row) for row in shown.collect()]


def transitions(changes: "DataFrame") -> list[TransitionRow]:
    """Return the newest rows of ``gold.relay_transitions``, by relay and moment."""
    columns = ("relay_id", "at", "before", "after", "reason", "score")
    newest = changes.select(*columns).orderBy(F.desc("at"), "relay_id", "reason").limit(TRANSITIONS_MAX)
    shown = newest.withColumn("us", F.unix_micros("at")).withColumn("at", seconds("at")).collect()
    return [TransitionRow(*row[: len(columns)]) for row in sorted(shown, key=lambda row: (row["relay_id"], row["us"]))]


def consistency(gold: "DataFrame") -> list[ConsistencyRow]:
    """Return the newest rows of ``gold.consistency``, by relay and day; the first five missing packets of each."""
    newest = gold.orderBy(F.desc("day"), "lower_bound", "relay_id").limit(_CONSISTENCY_ROWS_MAX)
    few = F.transform(
        F.slice("suspicious", 1, _SUSPICIOUS_MAX), lambda packet: F.lower(F.hex(F.substring(packet, 1, DIGITS // 2)))
    )
    shown = newest.select(
        *("relay_id", "day", "n_expected", "n_served", "n_missing", "ratio", "lower_bound", "upper_bound"),
        *("peers_compared", few.alias("suspicious")),
    )
    rows = [ConsistencyRow(*row)._replace(suspicious=tuple(row["suspicious"])) for row in shown.collect()]
    return sorted(rows, key=lambda row: (row.relay_id, row.day))
