"""Report queries for the mesh and for Bramble Sync groups.

``summarise.whole`` calls them with Spark tables and puts the lists that come out into the ``Summary``. Each list is
bounded, because the report is one page.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.summarise.reading import digits, seconds
from waystation.pipeline.report import GroupRow, MeshHour, RootRow, ServerRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["GROUPS_MAX", "HOURS_MAX", "ROOTS_MAX", "SERVERS_MAX", "groups", "mesh_hours", "roots", "servers"]

SERVERS_MAX: Final = 60
"""Servers of the mesh that the report draws, those whose loss splits it and those with most links first."""
HOURS_MAX: Final = 90 * 24
"""Hours of the mesh: as long as its dataset is kept."""
GROUPS_MAX: Final = 50
"""Groups that the report lists, those with most wrong first."""
ROOTS_MAX: Final = 50
"""Invalid messages that the report lists, those that took most with them first."""


def mesh_hours(gold: "DataFrame") -> list[MeshHour]:
    """Return ``gold.mesh_topology`` summed up by the hour, sorted."""
    summed = gold.groupBy(seconds("hour")).agg(
        F.count("*").alias("servers"),
        F.sum("degree").alias("ends"),
        F.count_distinct("component").alias("components"),
        F.count_if("is_articulation").alias("articulations"),
        F.sum("n_queries").alias("n_queries"),
        F.sum("n_found").alias("n_found"),
    )
    rows = summed.orderBy(F.desc("hour")).limit(HOURS_MAX).collect()
    return sorted(MeshHour(row["hour"], row["servers"], row["ends"] // 2, *row[3:]) for row in rows)


def servers(gold: "DataFrame", hours: Sequence[MeshHour]) -> list[ServerRow]:
    """Return the servers of the last hour that has links, of the last hour when none has."""
    linked = [row.hour_s for row in hours if row.links] or [row.hour_s for row in hours]
    if not linked:
        return []
    last = gold.where(F.unix_seconds("hour") == max(linked))
    most = last.orderBy(F.desc("is_articulation"), F.desc("degree"), "server").limit(SERVERS_MAX)
    shown = most.select(
        *("server", seconds("hour"), "neighbours", "degree", "component", "component_size", "is_articulation"),
        *("n_queries", "n_found", "p95_us"),
    )
    return [ServerRow(*row) for row in shown.collect()]


def groups(gold: "DataFrame") -> list[GroupRow]:
    """Return the groups of the newest moment in ``gold.bsp_groups``, with their times to hold of all dates."""
    columns = (
        *("n_messages", "n_delivered", "n_waiting", "n_invalid_root", "n_invalid_transitive", "n_deleted"),
        *("missing_deps", "depth", "n_components", "fork_width", "n_peers", "converge_us"),
    )
    each = gold.groupBy("node_id", "group_ref").agg(
        F.max_by(F.struct("as_of", *columns), F.col("as_of")).alias("row"),
        F.min("converge_us").alias("least_us"),
        F.max("converge_us").alias("most_us"),
    )
    newest = gold.agg(F.max("as_of").alias("newest"))
    current = each.select("node_id", "group_ref", "row.*", "least_us", "most_us").join(F.broadcast(newest))
    worst = current.where("as_of = newest").orderBy(
        *(F.desc(name) for name in ("n_invalid_root", "n_invalid_transitive", "n_waiting", "n_messages")),
        *("node_id", "group_ref"),
    )
    shown = worst.select("node_id", digits("group_ref"), seconds("as_of"), *columns, "least_us", "most_us")
    return [GroupRow(*row) for row in shown.limit(GROUPS_MAX).collect()]


def roots(gold: "DataFrame") -> list[RootRow]:
    """Return the messages of one date of ``gold.bsp_invalid`` that are invalid by themselves."""
    counted = gold.groupBy("node_id", "group_ref", "root_ref").agg(
        F.count_if(F.col("distance") > 0).alias("n_invalid"), F.max("distance").alias("distance")
    )
    most = counted.orderBy(F.desc("n_invalid"), "node_id", "group_ref", "root_ref").limit(ROOTS_MAX)
    shown = most.select("node_id", digits("group_ref"), digits("root_ref"), "n_invalid", "distance")
    return [RootRow(*row) for row in shown.collect()]
