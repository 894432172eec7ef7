"""What is told of the mesh and of groups."""

import pytest

from tests.pipeline.jobs.summarise.build import HOUR, NOON, NOON_S, frame_of
from waystation.pipeline.jobs.summarise.graphs import SERVERS_MAX, groups, mesh_hours, roots, servers
from waystation.pipeline.report import MeshHour, RootRow
from waystation.pipeline.tables import GOLD_BSP_GROUPS, GOLD_BSP_INVALID, GOLD_MESH_TOPOLOGY

pytestmark = pytest.mark.spark


def test_last_hour_with_links_is_drawn(spark) -> None:
    """Hours are summed up, and a later hour without links does not hide the last one that has some."""
    ring = [
        {"server": f"s{n:03}", "degree": 2, "component": "s000", "is_articulation": n == 79, "n_queries": 1}
        for n in range(80)
    ]
    frame = frame_of(spark, GOLD_MESH_TOPOLOGY, *ring, {"server": "s000", "hour": NOON + HOUR, "component": "s000"})
    hours = mesh_hours(frame)
    drawn = servers(frame, hours)

    assert hours == [MeshHour(NOON_S, 80, 80, 1, 1, 80, 0), MeshHour(NOON_S + 3_600, 1, 0, 1, 0, 0, 0)]
    assert len(drawn) == SERVERS_MAX
    assert (drawn[0].server, drawn[0].hour_s) == ("s079", NOON_S)


def test_no_hour_gives_no_server(spark) -> None:
    """A mesh that was never seen is not asked for."""
    assert servers(frame_of(spark, GOLD_MESH_TOPOLOGY), []) == []


def test_groups_of_the_newest_moment_know_their_range(spark) -> None:
    """A group that is told no more is left out; the others know their least and most time to hold."""
    mine, gone = b"\xaa" * 16, b"\xbb" * 16
    rows = (
        {"group_ref": mine, "as_of": NOON, "converge_us": 5},
        {"group_ref": mine, "as_of": NOON + HOUR, "converge_us": 9, "n_messages": 4},
        {"group_ref": gone, "as_of": NOON, "converge_us": 7},
    )
    found = groups(frame_of(spark, GOLD_BSP_GROUPS, *rows))

    assert [(row.group, row.n_messages, row.converge_us, row.least_us, row.most_us) for row in found] == [
        ("aaaaaaaa", 4, 9, 5, 9)
    ]


def test_roots_know_what_they_took_with_them(spark) -> None:
    """A root does not count itself."""
    root, other = b"\x01" * 16, b"\x02" * 16
    rows = [{"node_id": "n", "message_ref": bytes([n]) * 16, "root_ref": root, "distance": n} for n in range(4)]
    found = roots(frame_of(spark, GOLD_BSP_INVALID, *rows, {"node_id": "n", "root_ref": other, "message_ref": other}))

    assert found == [RootRow("n", "0" * 8, "01010101", 3, 3), RootRow("n", "0" * 8, "02020202", 0, 0)]
