"""The Bhumi town finds relays with a mistake, and nothing in the relay that is right."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.sim import build
from waystation.sim.run import run_seed

SEEDS = range(6)
REASONS = {
    "ack_strikes",
    "bad_signature",
    "carried_duplicate",
    "end_inside_frame",
    "frame_timeout",
    "idle_timeout",
    "other_identity",
    "oversize",
    "replaced",
    "too_many_joiners",
    "unsolicited_ack",
    "write_timeout",
}


@pytest.mark.parametrize(
    ("relay", "law"),
    [
        (build.KeepsCommits, "delivered-once"),
        (build.SwapsResults, "one-result"),
        (build.LosesResults, "one-result"),
        (build.TrustsAnybody, "commit-first"),
        (build.Garbles, "faithful"),
        (build.ForgetsAnswers, "answers-survive"),
        (build.NamesSenders, "sender-hidden"),
        (build.NeverOk, "liveness"),
        (build.HoardsAnswers, "bounded-memory"),
    ],
)
def test_broken_relay_is_found_within_a_few_seeds(relay, law):
    """Each mistake breaks its own law, soon."""
    assert build.first_failure(relay, SEEDS) == law


def test_half_open_connection_that_nobody_reaps_is_found():
    """A relay without timers keeps what was cut, and the empty town shows it."""
    failure = build.run_with(build.SetsNoTimers, 4, 0.2).failure

    assert failure.invariant == "bounded-memory"
    assert "connections" in failure.detail


def test_exception_in_the_relay_is_a_finding():
    """A relay that keeps closed bindings fails on its own tables; the run reports it with its place."""
    failure = build.run_with(build.KeepsBindings, 0).failure

    assert failure.invariant == "crash"
    assert "connections.py" in failure.detail


@pytest.mark.parametrize("seed", range(1_000, 1_024))
def test_no_law_is_broken(seed):
    """A few simulated minutes with faults, whatever the seed draws."""
    result = run_seed("bhumi", seed, 0.05)

    assert result.failure is None
    assert sum(result.exchanges.values()) > 0


def test_many_kinds_of_outcomes_happen():
    """One seed reaches every outcome that a sender can get; otherwise the seeds prove little."""
    outcomes = set(run_seed("bhumi", 2, 0.1).exchanges)

    assert outcomes >= {"ok", "offline", "bad_preimage", "timeout", "gone", "lost", "probe"}


def test_defences_are_reached():
    """A few seeds meet refusals of every kind that the hostile peers and bad habits are for."""
    lines = []
    for seed in (518, 505, 512, 513):
        run_seed("bhumi", seed, 0.05, sink=lines.append)
    reasons = {line.split()[5] for line in lines if " Refused " in line}

    assert reasons >= REASONS


def test_plan_is_the_first_thing_in_the_trace():
    """Whoever reads a trace sees what the seed drew."""
    lines = []

    run_seed("bhumi", 5, 0.01, sink=lines.append)

    assert sum(" plan devices=" in line for line in lines[:5]) == 1


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_thousand_seeds_of_one_hour():
    """1 000 seeds, one simulated hour each, with faults: nothing is violated."""
    one_hour = partial(run_seed, "bhumi", hours=1.0)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        failures = [result.command for result in pool.map(one_hour, range(1_000)) if result.failure]

    assert failures == []
