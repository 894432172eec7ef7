"""Splits the lifetime of each ended mesh link into hours, and computes for how much of each hour it was connected.

``jobs.mesh`` calls it: ``bronze.events`` go in, rows of ``silver.mesh_links`` come out. Overlapping links between the
same two nodes count once. Lifetimes are cut to the last ``SPAN_DAYS_MAX`` days.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import SILVER_MESH_LINKS
from waystation.pipeline.transforms.attributes import number_or_none

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["SPAN_DAYS_MAX", "malformed_link", "mesh_links"]

SPAN_DAYS_MAX: Final = 31
"""Of a longer link only the last days are recorded: each hour of it is a row."""

_HOUR_US: Final = 3_600_000_000
_SPAN_US_MAX: Final = SPAN_DAYS_MAX * 24 * _HOUR_US
_COUNTS: Final = ("frames_in", "frames_out", "bytes_in", "bytes_out")
_RELAY: Final = "^[0-9a-f]{16}$"


def mesh_links(events: "DataFrame") -> "DataFrame":
    """Split the span of each link over the hours it was established in, to the microsecond.

    Takes ``bronze.events``; links with a malformed attribute or without the other node fall away. A span ends at
    ``ts`` and is cut to its last ``SPAN_DAYS_MAX`` days. Simultaneous links between the same two nodes count that time
    once. Frames, bytes and the end itself belong to the hour of ``ts``, which may be one in which the link was no
    longer established. Gives the columns of ``silver.mesh_links`` and ``event_date: date``.
    """
    hours = _ended(events).select("*", F.explode(F.sequence("first_hour", "last_hour")).alias("hour_number"))
    begins = F.greatest("began_us", F.col("hour_number") * _HOUR_US)
    ends = F.least("ended_us", (F.col("hour_number") + 1) * _HOUR_US)
    is_end = F.col("hour_number") == F.col("last_hour")
    by_hour = hours.groupBy("from_server", "to_server", "hour_number").agg(
        _covered_us(F.collect_list(F.struct(begins.alias("begins"), ends.alias("ends")))).alias("up_us"),
        F.sum(F.when(is_end, F.col("frames")).otherwise(0)).alias("n_frames"),
        F.sum(F.when(is_end, F.col("carried")).otherwise(0)).alias("n_bytes"),
        F.count_if(is_end).alias("n_ended"),
    )
    rows = by_hour.withColumn("hour", F.timestamp_micros(F.col("hour_number") * _HOUR_US))
    return rows.select(*SILVER_MESH_LINKS.names(), F.to_date("hour").alias("event_date"))


def malformed_link() -> "Column":
    """Return whether a row of ``bronze.events`` is a link that ``mesh_links`` turns down; never null."""
    return (F.col("kind") == "mesh_link_ended") & ~_is_well_formed()


def _ended(events: "DataFrame") -> "DataFrame":
    """Return links with both nodes, their span and its hours in microseconds and hours since 1970, and their counts."""
    ended = F.unix_micros("ts")
    span = F.least(number_or_none("duration_us"), F.lit(_SPAN_US_MAX), ended)
    links = events.where((F.col("kind") == "mesh_link_ended") & _is_well_formed()).select(
        F.col("node_id").alias("from_server"),
        F.col("relay_id").alias("to_server"),
        (ended - span).alias("began_us"),
        ended.alias("ended_us"),
        (number_or_none("frames_in") + number_or_none("frames_out")).alias("frames"),
        (number_or_none("bytes_in") + number_or_none("bytes_out")).alias("carried"),
    )
    return links.withColumns({"first_hour": _hour_of("began_us"), "last_hour": _hour_of("ended_us")})


def _hour_of(microseconds: str) -> "Column":
    return F.expr(f"`{microseconds}` div {_HOUR_US}L")


def _covered_us(spans: "Column") -> "Column":
    """Return how many microseconds lie in at least one of the spans; their order means nothing."""
    start = F.struct(F.lit(0).cast("bigint").alias("until"), F.lit(0).cast("bigint").alias("total"))

    def add(sofar: "Column", span: "Column") -> "Column":
        new = F.greatest(span["ends"] - F.greatest(span["begins"], sofar["until"]), F.lit(0))
        return F.struct(F.greatest(sofar["until"], span["ends"]).alias("until"), (sofar["total"] + new).alias("total"))

    return F.aggregate(F.array_sort(spans), start, add, lambda done: done["total"])


def _is_well_formed() -> "Column":
    named = F.coalesce(F.col("relay_id").rlike(_RELAY), F.lit(False))
    for key in ("duration_us", *_COUNTS):
        named = named & number_or_none(key).isNotNull()
    return named
