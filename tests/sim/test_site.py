"""Sites start nodes, dial each other through the context, and measure."""

import random
from dataclasses import replace

from tests.sim.merk.build import QUIET
from waystation.core.instant import Instant
from waystation.protocols.merk.client.awaited_reads import AwaitedReads
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.sim.merk.context import MerkContext, address_of
from waystation.sim.merk.node import MerkSite
from waystation.sim.observations import Sized
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace


class Pair:
    """Two nodes of MERK, the second of which dials the first."""

    def __init__(self):
        self.schedule, self.observed, self.lines = Schedule(), [], []
        context = MerkContext(self.schedule, replace(QUIET, nodes=2), self.observed.append, MerkClient, AwaitedReads)
        self.sites = []
        for node in range(2):
            settings = MerkSettings(peers=[address_of(0)] if node else [], allow_private_peers=True)
            trace, rng = Trace(self.lines.append), random.Random(node)
            site = MerkSite(context, rng, trace, node, settings, MerkRelay, lambda _event: None)
            context.add_node(site.world, site.key_pair.public, site)
            self.sites.append(site)
        self.context = context

    def run(self, seconds):
        self.schedule.run(Instant(self.schedule.now + int(seconds * 1_000_000)))

    def nodes_linked(self):
        return [site.world.sizes().get("merk", {}).get("nodes") for site in self.sites]


def test_dial_reaches_the_site_of_its_address():
    """What a relay wants dialled is carried out, and the link is the dialling site's."""
    pair = Pair()
    pair.run(5)

    assert pair.nodes_linked() == [1, 1]
    assert [len(site.links()) for site in pair.sites] == [0, 1]
    assert pair.sites[1].links()[0].other == 0


def test_dial_of_a_node_that_is_down_fails_later():
    """A node that is away is dialled in vain, and again when it is back."""
    pair = Pair()
    pair.run(5)
    pair.sites[0].crash(20_000_000)
    pair.run(15)
    away, was_up = pair.nodes_linked(), pair.sites[0].world.is_up
    pair.run(60)

    assert (away, was_up) == ([None, 0], False)
    assert any(" unreachable merk " in line for line in pair.lines)
    assert pair.nodes_linked() == [1, 1]


def test_closing_site_leaves_and_dials_no_more():
    """At the end of a run nothing may be left."""
    pair = Pair()
    pair.run(5)
    for site in pair.sites:
        site.close()
    pair.run(300)

    assert pair.nodes_linked() == [0, 0]


def test_measuring_observes_sizes_of_nodes_that_run():
    """A node that is down has none."""
    pair = Pair()
    pair.run(1)
    pair.sites[0].stop(1_000_000)
    for site in pair.sites:
        site.measure(settled=False)
    sized = [each for each in pair.observed if isinstance(each, Sized)]

    assert [each.node for each in sized] == [1]
    assert sized[0].facts["peers_count"] == 1
