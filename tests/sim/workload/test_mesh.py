"""The mesh: links, look-ups, and the day on which it falls in two."""

from tests.sim.workload.build import journal_rows, made
from waystation.sim.workload.mesh import links_of

HOUR_US = 3_600_000_000


def test_links_form_a_ring_with_a_tail():
    """The last node hangs on the first; everybody else is on a ring."""
    assert links_of(1) == []
    assert links_of(2) == [(0, 1)]
    assert links_of(3) == [(0, 1), (0, 2)]
    assert links_of(5) == [(0, 1), (0, 3), (0, 4), (1, 2), (2, 3)]


def test_links_by_the_hour_are_those_that_ended_links_tell():
    """Whoever reads the ends of links finds the truth's links in each hour."""
    for scenarios in ((), ("all",)):
        files, truth = made(*scenarios)
        found = {}
        for row in journal_rows(files):
            if row["kind"] == "mesh_link_ended" and row["relay_id"]:
                pair = tuple(sorted((row["node_id"], row["relay_id"])))
                began_us = row["ts"] - int(row["attrs"]["duration_us"])
                for hour in range(began_us // HOUR_US, (row["ts"] - 1) // HOUR_US + 1):
                    found.setdefault(hour * 3_600, set()).add(pair)

        assert found == {at["hour"]: set(map(tuple, at["links"])) for at in truth["mesh"] if at["links"]}


def test_lookups_are_what_the_truth_counts():
    """Look-ups by hour, node and result come to the truth's numbers."""
    files, truth = made("all")
    counted = {}
    for row in journal_rows(files):
        if row["kind"] == "mesh_lookup":
            key = (row["ts"] // HOUR_US * 3_600, row["node_id"], row["outcome"])
            counted[key] = counted.get(key, 0) + int(row["attrs"]["n"])

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
