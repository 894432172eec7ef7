"""Graphs of configured peers."""

import random

import pytest

from waystation.sim.topology import TOPOLOGIES, edges_of


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 20])
def test_every_graph_is_connected(topology, nodes):
    """From the first node every other one can be reached along configured edges, whichever side dials."""
    edges = edges_of(topology, nodes, random.Random(3))
    reached = {0}
    for _ in range(nodes):
        reached |= {end for edge in edges if reached & set(edge) for end in edge}

    assert reached == set(range(nodes))
    assert all(one != other for one, other in edges)


def test_rings_and_stars_look_like_it():
    """In a ring every node has two neighbours, in a star each has the first node."""
    ring = edges_of("ring", 5, random.Random(1))
    star = edges_of("star", 5, random.Random(1))

    assert sorted(node for edge in ring for node in edge) == sorted([*range(5), *range(5)])
    assert all(0 in edge for edge in star)
    assert len(star) == 4
