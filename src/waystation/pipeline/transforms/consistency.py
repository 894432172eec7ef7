"""Computes for each relay and day the expected packets and the missing ones, by ``rules.consistency``.

``jobs.consistency`` calls it. Input is all of ``silver.packet_seen``: older dates are needed to know when a packet was
first seen anywhere.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import GOLD_CONSISTENCY
from waystation.rules.consistency import SUSPICIOUS_MAX, WINDOW_DAYS, Ratio, Terms, ratio

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["consistency", "expectations"]

_COUNTED_DDL: Final = (
    "relay_id string, day date, n_expected bigint, n_served bigint, n_missing bigint, peers_compared bigint, "
    "suspicious array<binary>"
)
_RATED_DDL: Final = f"{_COUNTED_DDL}, ratio double, lower_bound double, upper_bound double"


def expectations(seen: "DataFrame", terms: Terms) -> "DataFrame":
    """Return every packet and relay that ought to have it, by ``rules.consistency.expected``.

    Takes ``silver.packet_seen``, all dates of it: only then is it known when a packet was first seen anywhere. A relay
    is looked at on days on which it stored anything. Gives ``relay_id: string``, ``day: date`` (that on which any node
    saw the packet first), ``packet_id: binary`` and ``served: boolean``.
    """
    packets = seen.groupBy("packet_id").agg(
        F.min("content_type").alias("content_type"),
        F.min("expires_at").alias("expires_at"),
        F.min("first_seen_at").alias("first_seen_at"),
        F.collect_set("node_id").alias("nodes"),
    )
    dated = packets.withColumn("day", F.to_date("first_seen_at"))
    since = seen.groupBy(F.col("node_id").alias("relay_id")).agg(F.min("first_seen_at").alias("since"))
    pairs = dated.join(_stored_types(seen), ["day", "content_type"]).join(since, "relay_id")
    served = F.array_contains("nodes", F.col("relay_id"))
    due_us = F.unix_micros("first_seen_at") + terms.grace_us
    alive = F.col("expires_at").isNull() | (F.col("expires_at") >= F.ceil(due_us / F.lit(1_000_000)))
    enough = F.size("nodes") - served.cast("int") >= terms.witnesses
    timely = (F.unix_micros("since") <= due_us) & (due_us <= terms.as_of_us)
    wanted = pairs.where(enough & alive & timely)
    return wanted.select("relay_id", "day", "packet_id", served.alias("served"))


def consistency(seen: "DataFrame", terms: Terms) -> "DataFrame":
    """Count for each relay and day what it ought to have and what it has.

    Takes ``silver.packet_seen``, all dates of it. Gives the columns of ``gold.consistency`` and ``event_date: date``.
    """
    keys = ["relay_id", "day"]
    wanted = expectations(seen, terms)
    counted = wanted.groupBy(*keys).agg(
        F.count(F.lit(1)).alias("n_expected"), F.sum(F.col("served").cast("bigint")).alias("n_served")
    )
    place = F.row_number().over(Window.partitionBy(*keys).orderBy("packet_id"))
    first = wanted.where(~F.col("served")).withColumn("place", place).where(F.col("place") <= SUSPICIOUS_MAX)
    missing = first.groupBy(*keys).agg(F.sort_array(F.collect_list("packet_id")).alias("suspicious"))
    nodes = _active(seen)
    others = nodes.groupBy("day").agg(F.count(F.lit(1)).alias("n_nodes"))
    rows = nodes.join(others, "day").join(counted, keys, "left").join(missing, keys, "left")
    expected, served = F.coalesce("n_expected", F.lit(0)), F.coalesce("n_served", F.lit(0))
    whole = rows.select(
        *keys,
        expected.alias("n_expected"),
        served.alias("n_served"),
        (expected - served).alias("n_missing"),
        (F.col("n_nodes") - 1).alias("peers_compared"),
        F.coalesce("suspicious", F.array().cast("array<binary>")).alias("suspicious"),
    )
    rated = whole.mapInArrow(_rate, _RATED_DDL)
    return rated.select(*GOLD_CONSISTENCY.names(), F.col("day").alias("event_date"))


def _active(seen: "DataFrame") -> "DataFrame":
    return seen.select(F.col("node_id").alias("relay_id"), F.to_date("first_seen_at").alias("day")).distinct()


def _stored_types(seen: "DataFrame") -> "DataFrame":
    """Return the types of content that each relay is taken to store, on each day on which it stored anything."""
    stored = seen.select(F.col("node_id").alias("relay_id"), "content_type", F.to_date("first_seen_at").alias("day"))
    days = F.explode(F.sequence(F.lit(0), F.lit(WINDOW_DAYS - 1))).alias("later")
    reach = stored.distinct().select("relay_id", "content_type", "day", days)
    counting = reach.select("relay_id", "content_type", F.date_add("day", F.col("later")).alias("day")).distinct()
    return counting.join(_active(seen), ["relay_id", "day"], "left_semi")


def _rate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        pairs = zip(batch.column("n_expected").to_pylist(), batch.column("n_served").to_pylist(), strict=True)
        ratios = [ratio(expected, served) for expected, served in pairs]
        columns = [pa.array([getattr(each, name) for each in ratios], pa.float64()) for name in Ratio._fields]
        yield pa.RecordBatch.from_arrays([*batch.columns, *columns], names=[*batch.schema.names, *Ratio._fields])
