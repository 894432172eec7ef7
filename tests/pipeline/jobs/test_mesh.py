"""Mapping the mesh, date by date, as events come in."""

import pytest

from tests.journal.build import DAY_US, NODE_ID, NOON_US
from tests.pipeline.build import context_of
from tests.pipeline.graphs import HOUR_US, bronze, ref
from waystation.journal.events import MeshLinkEnded, MeshLookup
from waystation.pipeline.jobs.mesh import map_mesh
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_MESH_TOPOLOGY, SILVER_MESH_LINKS

pytestmark = pytest.mark.spark

OTHER = "aa" * 8
EVENTS = [
    MeshLookup(NOON_US + 600, "merk", ref("c"), 3, 1, 500, "found"),
    MeshLookup(NOON_US + 600, "merk", ref("c"), 3, 1, 500, "gossip"),
    # Ends on the second day at noon, and stood since the hour before midnight.
    MeshLinkEnded(NOON_US + DAY_US, "merk", ref("n"), OTHER, 1, 13 * HOUR_US, 1, 2, 3, 4),
]


def test_link_told_later_reaches_the_date_it_stood_on(spark, tmp_path) -> None:
    """A link that ended a day later adds hours to the date before."""
    lake = Lake(tmp_path)
    frame = bronze(spark, EVENTS)
    lake.append(frame.where("kind = 'mesh_lookup'"), BRONZE_EVENTS, "one", ["one"])
    first = map_mesh(context_of(spark, lake, "first"))
    lake.append(frame.where("kind <> 'mesh_lookup'"), BRONZE_EVENTS, "two", ["two"])
    second = map_mesh(context_of(spark, lake, "second"))
    rows = lake.read(spark, GOLD_MESH_TOPOLOGY).selectExpr("*", "unix_micros(hour) as h").collect()

    # One look-up and its hour; then the hours from 23 to 12 and the end, of both servers.
    assert (first.rows_in, first.rows_out, first.rows_rejected) == (2, 1 + 1, 1)
    assert (second.rows_in, second.rows_out, second.rows_rejected) == (3, 14 + 1 + 13 * 2 + 1, 1)
    assert [batch.rows for batch in lake.manifest(SILVER_MESH_LINKS).batches] == [1, 13]
    assert {(row["h"] - NOON_US) // HOUR_US: row["degree"] for row in rows if row["server"] == NODE_ID} == {
        0: 0,
        **dict.fromkeys(range(11, 24), 1),
    }


def test_nothing_to_do_does_nothing(spark, tmp_path) -> None:
    """An empty lake is no error."""
    counts = map_mesh(context_of(spark, Lake(tmp_path), "r"))

    assert (counts.rows_in, counts.rows_out) == (0, 0)
