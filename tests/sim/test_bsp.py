"""BSP towns repeat themselves exactly, find nothing in what is right, and do what their plans say."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.sim.build_bsp import INTRUDED, RESTLESS, SLOW_DISKS, TOWN, WIRED, lines_of, run_town
from waystation.sim.bsp import run_graph
from waystation.sim.bsp_plan import BspFaults, GroupPlan
from waystation.sim.invariants import ViolationError

PROGRAM = "from waystation.sim.run import run_seed; print(run_seed('bsp', 6, 0.005).trace_hash)"


def test_one_seed_has_one_trace():
    """Twice the same seed is twice the same result; another seed is another trace."""
    first, again, other = (run_town(seed) for seed in (3, 3, 4))

    assert first == again
    assert first.trace_hash != other.trace_hash


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_trace_does_not_depend_on_the_process(hash_seed):
    """No order of a set and no address of an object reaches a trace."""
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    said = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)

    assert said.stdout.strip() == run_town(6).trace_hash


@pytest.mark.parametrize("seed", range(1, 9))
def test_drawn_town_breaks_no_law(seed):
    """The device keeps every law in towns drawn from seeds."""
    result = run_town(seed)

    assert result.failure is None
    assert result.exchanges["delivered"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 401, 20))
def test_many_towns_break_no_law(first):
    """Four hundred towns, ten times as long."""
    for seed in range(first, first + 20):
        result = run_town(seed, hours=0.05)
        assert result.failure is None, result.command


@pytest.mark.parametrize("seed", range(40))
def test_26_random_graphs(seed):
    """Random graphs, joins, cuts, modes and loss: equal sets, causal order, once each, then silence."""
    outcomes = graph_of(seed)

    assert outcomes["delivered"] == 5 * outcomes["written"] > 0, f"graph seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 500, 20))
def test_26_five_hundred_random_graphs(first):
    """The rest of scenario 26."""
    for seed in range(first, first + 20):
        outcomes = graph_of(seed)
        assert outcomes["delivered"] == 5 * outcomes["written"] > 0, f"graph seed {seed}"


def graph_of(seed):
    """Run one graph; a failure names its seed."""
    try:
        return run_graph(seed)
    except ViolationError as error:
        raise AssertionError(f"graph seed {seed}: {error}") from error


def test_quiet_town_delivers_to_everybody():
    """Where nothing goes wrong everything that is written reaches all three."""
    outcomes = run_town(1, TOWN).exchanges

    assert outcomes["delivered"] == 3 * outcomes["written"] > 60
    assert outcomes["malformed"] == 0


def test_crashes_and_quarrels_take_place():
    """A restless town has lives that begin with messages, sharing that ends, and bodies that go."""
    lines = lines_of(RESTLESS)

    assert any(" crashes" in line for line in lines)
    assert any(" begins with " in line and " with 0 " not in line for line in lines)
    assert any(line.endswith(" False") and " Shared " in line for line in lines)
    assert run_town(1, RESTLESS).exchanges["deleted"] > 0


def test_unnoticed_crash_is_healed():
    """Where nobody is told of a crash, time alone brings everything."""
    plan = replace(SLOW_DISKS, tells_crash=False, probes=False, faults=BspFaults(crashes=2_000.0))

    assert [run_town(seed, plan).failure for seed in range(1, 4)] == [None] * 3


def test_hostile_peers_are_heard_and_get_nothing():
    """Intruders speak about groups that are not theirs, and no message is named to them."""
    lines = lines_of(INTRUDED)

    assert any(" hears h0 MESSAGE" in line for line in lines)
    told = {line.split()[4] for line in lines if " tells h0 " in line or " tells h1 " in line}
    assert told == {"REQUEST"}


def test_wired_town_loses_connections_and_nothing_else():
    """Over slow streams that break everything arrives all the same, and connections are made again."""
    lines = lines_of(WIRED)
    result = run_town(1, WIRED)

    assert result.exchanges["delivered"] == 3 * result.exchanges["written"] > 30
    assert sum(" LineUp " in line for line in lines) > 6


def test_hostile_peers_of_a_wired_town_are_let_in():
    """Behind a real handshake an intruder is heard, too."""
    lines = lines_of(replace(WIRED, hostiles=("intruder", "flooder", "garbage")))

    assert any(" hears h0 " in line for line in lines)
    assert any(" hears h1 OFFER" in line for line in lines)
    assert {line.split()[4] for line in lines if " tells h0 " in line} <= {"REQUEST"}


def test_late_members_get_everything():
    """Who joins late has the same in the end."""
    plan = replace(TOWN, groups=(GroupPlan("deps_v1", (0, 1, 2), (0, 5_000_000, 15_000_000)),))
    outcomes = run_town(1, plan).exchanges

    assert outcomes["delivered"] == 3 * outcomes["written"]


def test_connections_are_renewed_when_it_is_planned():
    """A town whose connections are made anew at the end has a line up more for each of both devices."""
    ups = [sum(" LineUp " in line for line in lines_of(replace(TOWN, renews=renews))) for renews in (False, True)]

    assert ups == [6, 12]
