"""Step on the mesh of MERK nodes: links and look-ups for due dates, then every server's hourly position.

``pipeline.run`` executes it on ``bronze.events``. It writes ``silver.mesh_links``, ``silver.mesh_queries`` and
``gold.mesh_topology``. A look-up is the search for a client at other nodes.
"""

import datetime
from typing import Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_MESH_TOPOLOGY, SILVER_MESH_LINKS, SILVER_MESH_QUERIES
from waystation.pipeline.transforms.mesh_links import SPAN_DAYS_MAX, malformed_link, mesh_links
from waystation.pipeline.transforms.mesh_queries import malformed_query, mesh_queries
from waystation.pipeline.transforms.mesh_topology import mesh_topology

__all__ = ["map_mesh"]

_KINDS: Final = ("mesh_lookup", "mesh_link_ended")


def map_mesh(context: Context) -> Counts:
    """Rewrite the dates that are due of links and look-ups, then of the topology.

    Events that do not say whole what they should are rejected and counted.
    """
    rows_in, rows_out, bad = _conform(context)
    due = context.due(GOLD_MESH_TOPOLOGY, SILVER_MESH_LINKS, SILVER_MESH_QUERIES)
    if due:
        links, queries = context.read(SILVER_MESH_LINKS, due), context.read(SILVER_MESH_QUERIES, due)
        rows_out += context.rewrite(mesh_topology(links, queries), GOLD_MESH_TOPOLOGY, due)
    return Counts(rows_in, rows_out, bad)


def _conform(context: Context) -> tuple[int, int, int]:
    """Rewrite silver; a link or a look-up of a date is recorded on that date or later."""
    due = context.due(SILVER_MESH_LINKS, BRONZE_EVENTS)
    if not due:
        return 0, 0, 0
    last = due[-1] + datetime.timedelta(days=SPAN_DAYS_MAX)
    dates = [date for date in context.lake.manifest(BRONZE_EVENTS).dates() if due[0] <= date <= last]
    events = context.read(BRONZE_EVENTS, dates).where(F.col("kind").isin(*_KINDS)).persist()
    of_due = F.col("event_date").isin(due)
    out = context.rewrite(mesh_links(events).where(of_due), SILVER_MESH_LINKS, due)
    out += context.rewrite(mesh_queries(events).where(of_due), SILVER_MESH_QUERIES, due)
    is_bad = of_due & (malformed_link() | malformed_query())
    rows_in, bad = events.agg(F.count("*"), F.count_if(is_bad)).first() or (0, 0)
    events.unpersist()
    return rows_in, out, bad
