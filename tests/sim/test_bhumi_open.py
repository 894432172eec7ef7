"""Open Bhumi worlds repeat themselves exactly, find nothing in what is right, and do what their plans say."""

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.sim.build_bhumi_open import BESET, BOUND, BROKEN, NOSY, QUIET, SHORT, SKEWED, SLOW, run_with
from waystation.sim.bhumi_open import large_town
from waystation.sim.run import run_seed
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace

PROGRAM = "from waystation.sim.run import run_seed; print(run_seed('bhumi-open', 7, 0.005).trace_hash)"


def lines_of(plan, hours=0.02):
    """Return the trace of a run that breaks no law."""
    lines = []
    result = run_with(None, 1, plan, hours, lines.append)
    assert result.failure is None
    return lines


def count(lines, *words):
    """Return how many lines hold all these words."""
    return sum(all(word in line for word in words) for line in lines)


def test_one_seed_has_one_trace():
    """Twice the same seed is twice the same result; another seed is another trace."""
    first, again, other = (run_seed("bhumi-open", seed, 0.005) for seed in (4, 4, 6))

    assert first == again
    assert first.trace_hash != other.trace_hash


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_trace_does_not_depend_on_the_process(hash_seed):
    """No order of a set and no address of an object reaches a trace."""
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    said = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)

    assert said.stdout.strip() == run_seed("bhumi-open", 7, 0.005).trace_hash


@pytest.mark.parametrize("seed", range(1, 7))
def test_drawn_world_breaks_no_law(seed):
    """Relays, devices and clients keep every law in worlds drawn from seeds."""
    result = run_seed("bhumi-open", seed, 0.01)

    assert result.failure is None
    assert result.exchanges["probe"] > 0


@pytest.mark.parametrize("topology", ["line", "ring", "star", "random"])
def test_every_topology_lets_look_ups_be_right(topology):
    """Twelve relays that know a neighbour or two: at least 95 of 100 look-ups name the right relay first."""
    found = run_with(None, 1, replace(QUIET, relays=12, topology=topology, device=QUIET.device)).exchanges

    assert found["lookups_right"] >= 40
    assert found.get("lookups_wrong", 0) <= 0.05 * found["lookups_right"]


def test_clocks_that_differ_by_two_minutes_do_no_harm():
    """Nor does a relay that tells nobody where it is."""
    lines = lines_of(SKEWED)

    assert count(lines, " LookedUp ", "True True") > 20
    assert not count(lines, " LookedUp ", "True False")


def test_devices_move_and_are_found():
    """Senders that knew the old relay get their answer at the new one."""
    outcomes = run_with(None, 1, SLOW).exchanges

    assert outcomes["moved"] > 0
    assert outcomes["ok"] > 0


def test_proofs_of_identity_change_nothing_else():
    """Relays that demand them are found, linked and asked as all others are."""
    outcomes = run_with(None, 1, BOUND).exchanges

    assert outcomes["lookups_right"] > 20
    assert outcomes["probe"] == BOUND.senders


def test_faults_take_place():
    """A plan with faults has crashes, partitions, and links that are made again."""
    lines = lines_of(BROKEN)

    assert count(lines, " crash for ") > 0
    assert count(lines, " parted [") > 0
    assert count(lines, " Dialled ") > 5


def test_presences_end():
    """Where devices are away for longer than their word lasts, look-ups find nobody."""
    assert count(lines_of(SHORT), " LookedUp ") > 20


def test_hostiles_take_part():
    """Relays that forge are thrown out, and who asks too much gets less."""
    assert count(lines_of(BESET), " close ", "record_strikes") > 5
    assert count(lines_of(NOSY), " Refused ", "where_flood") > 5


def test_outcomes_count_requests_and_look_ups():
    """The summary of a run says what became of both."""
    outcomes = run_with(None, 1, QUIET).exchanges

    assert set(outcomes) <= {"lookups_early", "lookups_right", "lookups_wrong", "moved", "ok", "probe", "offline"}
    assert outcomes["lookups_right"] > 20
    assert outcomes["probe"] == QUIET.senders


def test_large_world_comes_to_life():
    """Fifty relays and five hundred devices: a tenth of a second after the start the first are on their way."""
    schedule, lines = Schedule(), []
    town = large_town(schedule, random.Random(1), Trace(lines.append))
    town.start()
    schedule.run(100_000)

    assert (town.plan.relays, town.plan.devices) == (50, 500)
    assert count(lines, " Offered ") > 20
