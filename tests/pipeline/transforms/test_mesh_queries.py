"""Look-ups, on one frame for all cases."""

import datetime

import pytest

from tests.journal.build import NODE_ID, NOON_US
from tests.pipeline.graphs import bronze, ref
from waystation.journal.events import MeshLookup
from waystation.pipeline.tables import SILVER_MESH_QUERIES
from waystation.pipeline.transforms.mesh_queries import malformed_query, mesh_queries

pytestmark = pytest.mark.spark

MIDNIGHT_US = NOON_US + 43_200_000_000
EVENTS = [
    MeshLookup(MIDNIGHT_US + 100, "merk", ref("client"), 3, 1, 900, "found"),
    MeshLookup(MIDNIGHT_US, "merk", None, 12, 0, None, "absent", 4),
]
ODD = [
    f'{{"ts":1,"seq":{9_000 + number},"protocol":"merk","kind":"mesh_lookup",{rest}}}'
    for number, rest in enumerate(
        (
            '"outcome":"maybe","attrs":{"asked":"1","found":"0","n":"1"}',
            '"outcome":"absent","attrs":{"asked":"1","found":"none","n":"1"}',
            '"outcome":"absent"',
        )
    )
]


def test_look_ups_are_dated_by_their_beginning(spark) -> None:
    """One with a latency began that long ago, a date earlier even; several count as often as they say."""
    events = bronze(spark, EVENTS, ODD)
    frame = mesh_queries(events)
    rows = {row["result"]: row for row in frame.selectExpr("*", "unix_micros(asked_at) as at").collect()}
    found, absent = rows["found"], rows["absent"]

    assert len(rows) == 2
    assert (found["at"], found["event_date"]) == (MIDNIGHT_US - 800, datetime.date(2026, 5, 29))
    assert (found["node_id"], bytes(found["target_ref"]), found["first_found_us"]) == (NODE_ID, ref("client"), 900)
    assert (absent["at"], absent["target_ref"], absent["event_date"]) == (MIDNIGHT_US, None, datetime.date(2026, 5, 30))
    assert (absent["n"], absent["n_peers"], absent["n_found"], absent["first_found_us"]) == (4, 12, 0, None)
    assert events.where(malformed_query()).count() == len(ODD)
    assert frame.columns == [*SILVER_MESH_QUERIES.names(), "event_date"]
    assert all(dict(frame.dtypes)[column.name] == column.type for column in SILVER_MESH_QUERIES.columns)
