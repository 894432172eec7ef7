"""Hostile clients and nodes come again and again until they leave, shown by those of MERK."""

import random

from tests.sim.test_site import Pair
from waystation.sim.merk.hostile import Hostile
from waystation.sim.merk.hostile_node import HostileNode


def connects(pair, host):
    """Return how often an address has connected."""
    return sum(" connect " in line and host in line for line in pair.lines)


def test_client_comes_back_until_it_leaves():
    """A client that is disconnected for garbage is there again soon, and never after it has left."""
    pair = Pair()
    client = Hostile(pair.context, random.Random(1), "10.3.0.7", "garbage")
    client.come()
    pair.run(200)
    client.leave()
    came = connects(pair, "10.3.0.7")
    client.come()
    pair.run(200)

    assert came > 2
    assert connects(pair, "10.3.0.7") == came


def test_node_dials_and_is_dialled_until_it_leaves():
    """A hostile node keeps up to three links of its own, accepts every caller, and ends all when it leaves."""
    pair = Pair()
    node = HostileNode(pair.context, random.Random(1), 7, "mute")
    node.come()
    pair.run(200)
    linked, reachable = pair.nodes_linked(), node.is_reachable(0)
    node.leave()
    pair.run(60)

    assert reachable and not node.is_reachable(0)
    assert max(linked) > 1
    assert pair.nodes_linked() == [1, 1]
    assert connects(pair, "10.8.0.7") > 1
