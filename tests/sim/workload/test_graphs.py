"""Plain facts about small graphs."""

from waystation.sim.workload.graphs import articulation_points, components, depth_of, parts_of


def test_components_are_sorted_parts():
    """Whatever a chain of links joins is one part."""
    assert components([("c", "d"), ("a", "b"), ("d", "e")]) == [["a", "b"], ["c", "d", "e"]]
    assert components([]) == []


def test_articulation_points_are_those_that_hold_parts_together():
    """The middle of a path splits it, nobody of a ring does."""
    assert articulation_points([("a", "b"), ("b", "c")]) == ["b"]
    assert articulation_points([("a", "b"), ("b", "c"), ("a", "c")]) == []
    assert articulation_points([("a", "b"), ("b", "c"), ("a", "c"), ("a", "z")]) == ["a"]
    assert articulation_points([("a", "b"), ("x", "y")]) == []


def test_depth_counts_messages_of_the_longest_chain():
    """A message alone is one deep, and what nobody knows adds nothing."""
    assert depth_of({}) == 0
    assert depth_of({0: (), 1: (0,), 2: (0,), 3: (1, 2), 4: (-1,)}) == 3


def test_parts_are_joined_by_known_messages_only():
    """Two messages that wait for the same unknown one are two parts."""
    assert parts_of({0: (), 1: (0,), 2: (), 3: (-1,), 4: (-1,)}) == 4
    assert parts_of({0: (), 1: (), 2: (0, 1)}) == 1
