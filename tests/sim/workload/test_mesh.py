"""The mesh: links, look-ups, and the day on which it falls in two."""

from collections import Counter

from tests.sim.workload.build import hour_of, made, rows_of
from waystation.sim.workload.mesh import links_of


def test_links_form_a_ring_with_a_tail():
    """The last node hangs on the first; everybody else is on a ring."""
    assert links_of(1) == []
    assert links_of(2) == [(0, 1)]
    assert links_of(3) == [(0, 1), (0, 2)]
    assert links_of(5) == [(0, 1), (0, 3), (0, 4), (1, 2), (2, 3)]


def test_links_by_the_hour_are_those_that_ended_links_tell(workload):
    """Whoever reads the ends of links finds the truth's links in each hour."""
    files, truth = workload
    found = {}
    for row in rows_of(files, "mesh_link_ended"):
        if row["relay_id"]:
            pair = tuple(sorted((row["node_id"], row["relay_id"])))
            began_us = row["ts"] - int(row["attrs"]["duration_us"])
            for hour in range(hour_of(began_us), hour_of(row["ts"] - 1) + 1, 3_600):
                found.setdefault(hour, set()).add(pair)

    assert found == {at["hour"]: set(map(tuple, at["links"])) for at in truth["mesh"] if at["links"]}


def test_lookups_are_what_the_truth_counts(workload):
    """Look-ups by hour, node and result come to the truth's numbers."""
    files, truth = workload
    counted = Counter()
    for row in rows_of(files, "mesh_lookup"):
        counted[hour_of(row["ts"]), row["node_id"], row["outcome"]] += int(row["attrs"]["n"])

    told = {(at["hour"], each["server"], each["result"]): each["n"] for at in truth["mesh"] for each in at["lookups"]}
    assert counted == told


def test_a_partition_parts_the_mesh_and_heals():
    """Between split and heal no link crosses, and afterwards the parts are one again."""
    _, truth = made("mesh_partition")
    noon = truth["start_us"] // 1_000_000 + 2 * 86_400 + 12 * 3_600
    parts = {at["hour"]: at["components"] for at in truth["mesh"] if at["links"]}

    assert len(parts[noon]) == 1
    assert all(len(parts[noon + hour * 3_600]) == 2 for hour in range(1, 6))
    assert len(parts[noon + 8 * 3_600]) == 1


def test_the_first_node_holds_the_last_one():
    """The node on which the tail hangs is an articulation point while all links stand."""
    _, truth = made()
    first = truth["nodes"][0]["node_id"]

    assert any(at["articulation"] == [first] for at in truth["mesh"])
