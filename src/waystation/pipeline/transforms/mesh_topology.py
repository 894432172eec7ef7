"""Computes the position of every server in the hourly mesh graph, and counts its look-ups.

``jobs.mesh`` calls it with links and look-ups. Positions are those of ``rules.topology``. Two servers are linked in an
hour if either one reported a link in it.
"""

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import GOLD_MESH_TOPOLOGY
from waystation.pipeline.transforms.mesh_queries import FOUND
from waystation.pipeline.transforms.outcomes import bucket
from waystation.rules.histogram import bounds_us, quantile
from waystation.rules.topology import Place, places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["mesh_topology"]

_SHARE: Final = 0.95


def mesh_topology(links: "DataFrame", queries: "DataFrame") -> "DataFrame":
    """Place every server of each hour among those it was linked with, by ``rules.topology``.

    Takes ``silver.mesh_links`` and ``silver.mesh_queries``. Two servers are linked in an hour when either says that a
    link was established for a microsecond of it. A server that only looked for clients has a row without neighbours.
    Gives the columns of ``gold.mesh_topology`` and ``event_date: date``, the date of the hour.
    """
    edges = links.where(F.col("up_us") > 0).select("hour", F.col("from_server").alias("server"), "to_server").distinct()
    by_hour = edges.unionByName(_look_ups(queries), allowMissingColumns=True).groupBy("hour")
    rows = by_hour.applyInArrow(_place_table, GOLD_MESH_TOPOLOGY.row_ddl())
    return rows.select(*GOLD_MESH_TOPOLOGY.names(), F.to_date("hour").alias("event_date"))


def _look_ups(queries: "DataFrame") -> "DataFrame":
    """Count look-ups by hour, server and bucket of their time; the bucket is null for those that found nothing."""
    found = F.col("result") == FOUND
    return (
        queries.withColumn("hour", F.date_trunc("hour", "asked_at"))
        .withColumn("bucket", F.when(found, bucket(F.col("first_found_us"))))
        .groupBy("hour", F.col("node_id").alias("server"), "bucket")
        .agg(F.sum("n").alias("n"), F.sum(F.when(found, F.col("n")).otherwise(0)).alias("n_found"))
    )


def _place_table(hour: pa.Table) -> pa.Table:
    """Turn what one hour has into a row for each of its servers."""
    rows = hour.to_pylist()
    links = [(row["server"], row["to_server"]) for row in rows if row["to_server"] is not None]
    asked: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["to_server"] is None:
            asked.setdefault(row["server"], []).append(row)
    placed = [_row(rows[0]["hour"], place, asked.get(place.server, [])) for place in places(asked, links)]
    return pa.Table.from_pylist(placed, GOLD_MESH_TOPOLOGY.arrow_schema())


def _row(hour: object, place: Place, asked: list[dict[str, Any]]) -> dict[str, object]:
    histogram = {row["bucket"]: row["n"] for row in asked if row["bucket"] is not None}
    return {
        "server": place.server,
        "hour": hour,
        "neighbours": list(place.neighbours),
        "degree": place.degree,
        "component": place.component,
        "component_size": place.component_size,
        "is_articulation": place.is_articulation,
        "n_queries": sum(row["n"] for row in asked),
        "n_found": sum(row["n_found"] for row in asked),
        "p95_us": _upper_edge(quantile(histogram, _SHARE)),
    }


def _upper_edge(bucket_number: int | None) -> int | None:
    """Return the last microsecond of a bucket; the last bucket has no end, and stands for its beginning."""
    if bucket_number is None:
        return None
    first, after = bounds_us(bucket_number)
    return first if after is None else after - 1
