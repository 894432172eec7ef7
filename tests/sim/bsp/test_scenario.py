"""BSP towns repeat themselves exactly, find nothing in what is right, and do what their plans say."""

from dataclasses import replace

import pytest

from tests.sim.bsp.build import INTRUDED, RESTLESS, SLOW_DISKS, TOWN, WIRED, graph_plan, lines_of, run_with
from waystation.sim.bsp.plan import BspFaults, GroupPlan


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 401, 20))
def test_many_towns_break_no_law(first):
    """Four hundred towns, ten times as long."""
    for seed in range(first, first + 20):
        result = run_with(None, seed, hours=0.05)
        assert result.failure is None, result.command


@pytest.mark.parametrize("seed", range(40))
def test_26_random_graphs(seed):
    """Random graphs, joins, cuts, modes and loss: equal sets, causal order, once each, then silence."""
    result = run_with(None, seed, graph_plan(seed), hours=1 / 90)

    assert result.failure is None, f"graph seed {seed}"
    assert result.exchanges["delivered"] == 5 * result.exchanges["written"] > 0, f"graph seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 500, 20))
def test_26_five_hundred_random_graphs(first):
    """The rest of scenario 26."""
    for seed in range(first, first + 20):
        test_26_random_graphs(seed)


def test_quiet_town_delivers_to_everybody():
    """Where nothing goes wrong everything that is written reaches all three."""
    outcomes = run_with(None, 1, TOWN).exchanges

    assert outcomes["delivered"] == 3 * outcomes["written"] > 60
    assert outcomes["malformed"] == 0


def test_crashes_and_quarrels_take_place():
    """A restless network has lives that begin with messages, sharing that ends, and bodies that go."""
    lines = lines_of(RESTLESS)

    assert any(" crashes" in line for line in lines)
    assert any(" begins with " in line and " with 0 " not in line for line in lines)
    assert any(line.endswith(" False") and " Shared " in line for line in lines)
    assert run_with(None, 1, RESTLESS).exchanges["deleted"] > 0


def test_unnoticed_crash_is_healed():
    """Where nobody is told of a crash, time alone brings everything."""
    plan = replace(SLOW_DISKS, announces_crash=False, probes=False, faults=BspFaults(crashes=2_000.0))

    assert [run_with(None, seed, plan).failure for seed in range(1, 4)] == [None] * 3


def test_hostile_peers_are_heard_and_get_nothing():
    """Intruders speak about groups that are not theirs, and no message is named to them."""
    lines = lines_of(INTRUDED)

    assert any(" receives h0 MESSAGE" in line for line in lines)
    told = {line.split()[4] for line in lines if " sends h0 " in line or " sends h1 " in line}
    assert told == {"REQUEST"}


def test_wired_town_loses_connections_and_nothing_else():
    """Over slow streams that break everything arrives all the same, and connections are made again."""
    lines = lines_of(WIRED)
    result = run_with(None, 1, WIRED)

    assert result.exchanges["delivered"] == 3 * result.exchanges["written"] > 30
    assert sum(" LineUp " in line for line in lines) > 6


def test_hostile_peers_of_a_wired_town_are_let_in():
    """Behind a real handshake an intruder is received, too."""
    lines = lines_of(replace(WIRED, hostiles=("intruder", "flooder", "garbage")))

    assert any(" receives h0 " in line for line in lines)
    assert any(" receives h1 OFFER" in line for line in lines)
    assert {line.split()[4] for line in lines if " sends h0 " in line} <= {"REQUEST"}


def test_late_members_get_everything():
    """Who joins late has the same in the end."""
    plan = replace(TOWN, groups=(GroupPlan("deps_v1", (0, 1, 2), (0, 5_000_000, 15_000_000)),))
    outcomes = run_with(None, 1, plan).exchanges

    assert outcomes["delivered"] == 3 * outcomes["written"]


def test_connections_are_renewed_when_it_is_planned():
    """A network whose connections are made anew at the end has a line up more for each of both devices."""
    ups = [sum(" LineUp " in line for line in lines_of(replace(TOWN, renews=renews))) for renews in (False, True)]

    assert ups == [6, 12]
