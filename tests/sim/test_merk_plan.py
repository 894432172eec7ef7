"""Plans of MERK worlds are drawn from one generator and say everything."""

import random
from dataclasses import fields

import pytest

from waystation.sim.merk_plan import (
    HOSTILE_CLIENTS,
    HOSTILE_NODES,
    TOPOLOGIES,
    MerkFaults,
    MerkPlan,
    draw_merk_plan,
    edges_of,
)

DRAWN = [draw_merk_plan(random.Random(seed)) for seed in range(400)]


def test_same_generator_draws_the_same_plan():
    """A plan is a function of its seed."""
    assert draw_merk_plan(random.Random(7)) == DRAWN[7] != DRAWN[8]


def test_plans_differ_in_everything_that_matters():
    """Over many seeds every choice is made both ways, and every kind of hostile peer takes part."""
    assert {1, 2, 3, 20} <= {plan.nodes for plan in DRAWN}
    assert {plan.topology for plan in DRAWN} == set(TOPOLOGIES)
    for name in ("hidden", "closed", "allows_private", "bunches", "rate_limits"):
        assert {bool(getattr(plan, name)) for plan in DRAWN} == {False, True}
    assert {kind for plan in DRAWN for kind in plan.hostiles} == set(HOSTILE_CLIENTS)
    assert {kind for plan in DRAWN for kind in plan.hostile_nodes} == set(HOSTILE_NODES)
    for part, names in (
        ("client", ("moves", "doubles", "stalls", "vanishes", "bursts", "says_again")),
        ("faults", [field.name for field in fields(MerkFaults)]),
    ):
        for name in names:
            rates = [getattr(getattr(plan, part), name) for plan in DRAWN]
            assert min(rates) == 0 < max(rates)


def test_links_carry_whole_messages():
    """MERK speaks WebSocket, whose messages are never cut."""
    assert all(plan.link.framed and plan.trunk.framed for plan in DRAWN)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 20])
def test_every_graph_is_connected(topology, nodes):
    """From the first node every other one can be reached along configured edges, whoever dials."""
    edges = edges_of(topology, nodes, random.Random(3))
    reached = {0}
    for _ in range(nodes):
        reached |= {end for edge in edges if reached & set(edge) for end in edge}

    assert reached == set(range(nodes))
    assert all(one != other for one, other in edges)


def test_rings_and_stars_look_like_it():
    """In a ring everybody has two neighbours, in a star everybody has the first node."""
    ring = edges_of("ring", 5, random.Random(1))
    star = edges_of("star", 5, random.Random(1))

    assert sorted(node for edge in ring for node in edge) == sorted([*range(5), *range(5)])
    assert all(0 in edge for edge in star)
    assert len(star) == 4


def test_description_names_every_field():
    """The first line of a trace says what the plan is."""
    assert all(f"{field.name}=" in DRAWN[0].describe() for field in fields(MerkPlan))
