"""Bhumi scenarios repeat themselves exactly, find nothing in correct relays, and do what their plans demand."""

import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from tests.sim.bhumi.build import BESET, BOUND, BROKEN, NOSY, QUIET, SHORT, SKEWED, SLOW, run_with
from waystation.sim.bhumi.scenario import large_scenario
from waystation.sim.run import run_seed
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace

CORE_SEEDS = (501, 503, 528)
CORE_REASONS = {
    "ack_strikes",
    "bad_signature",
    "carried_duplicate",
    "end_inside_frame",
    "frame_timeout",
    "idle_timeout",
    "other_identity",
    "oversize",
    "replaced",
    "unsolicited_ack",
    "write_timeout",
}
"""Refusals that the core protocol's adversaries and misbehaving clients are for."""


def lines_of(plan, hours=0.02):
    """Return the trace of a run that breaks no invariant."""
    lines = []
    result = run_with(None, 1, plan, hours, lines.append)
    assert result.failure is None
    return lines


def count(lines, *words):
    """Return how many lines hold all these words."""
    return sum(all(word in line for word in words) for line in lines)


@pytest.mark.parametrize("topology", ["line", "ring", "star", "random"])
def test_every_topology_lets_look_ups_be_right(topology):
    """Twelve relays that know a neighbour or two: at least 95 of 100 look-ups name the right relay first."""
    found = run_with(None, 1, replace(QUIET, relays=12, topology=topology, device=QUIET.device)).exchanges

    assert found["lookups_right"] >= 40
    assert found.get("lookups_wrong", 0) <= 0.05 * found["lookups_right"]


def test_clocks_that_differ_by_two_minutes_do_no_harm():
    """Nor does a relay that advertises no address."""
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
    """Where devices are away for longer than their presence lasts, look-ups find none."""
    assert count(lines_of(SHORT), " LookedUp ") > 20


def test_hostiles_take_part():
    """Relays that forge are disconnected, and a client that asks too much gets less."""
    assert count(lines_of(BESET), " close ", "record_strikes") > 5
    assert count(lines_of(NOSY), " Refused ", "where_flood") > 5


def test_outcomes_count_requests_and_look_ups():
    """The summary of a run counts both."""
    outcomes = run_with(None, 1, QUIET).exchanges

    assert set(outcomes) <= {"lookups_early", "lookups_right", "lookups_wrong", "moved", "ok", "probe", "offline"}
    assert outcomes["lookups_right"] > 20
    assert outcomes["probe"] == QUIET.senders


def test_large_scenario_comes_to_life():
    """Fifty relays and five hundred devices: a tenth of a second after the start the first are on their way."""
    schedule, lines = Schedule(), []
    scenario = large_scenario(schedule, random.Random(1), Trace(lines.append))
    scenario.start()
    schedule.run(100_000)

    assert (scenario.plan.relays, scenario.plan.devices) == (50, 500)
    assert count(lines, " Offered ") > 20


@pytest.mark.parametrize("seed", range(1_000, 1_012))
def test_relay_without_gossip_breaks_no_invariant(seed):
    """A few simulated minutes with faults, whatever the seed draws."""
    result = run_seed("bhumi", seed, 0.05)

    assert result.failure is None
    assert result.exchanges["probe"] > 0


def test_core_runs_have_every_outcome_and_refusal():
    """A few seeds reach every outcome that a sender can get, and every defence; otherwise the seeds prove little."""
    lines, outcomes = [], set()
    for seed in CORE_SEEDS:
        outcomes |= set(run_seed("bhumi", seed, 0.05, sink=lines.append).exchanges)

    assert outcomes >= {"ok", "offline", "bad_preimage", "timeout", "gone", "lost", "probe"}
    assert {line.split()[5] for line in lines if " Refused " in line} >= CORE_REASONS


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_thousand_core_seeds_of_one_hour():
    """1 000 seeds, one simulated hour each, with faults: nothing is violated."""
    one_hour = partial(run_seed, "bhumi", hours=1.0)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        failures = [result.command for result in pool.map(one_hour, range(1_000)) if result.failure]

    assert failures == []
