"""The Bhumi town finds relays with a mistake, and nothing in the relay that is right."""

import pytest

from tests.sim import build
from waystation.sim.run import run_seed

SEEDS = range(6)


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


def test_exception_in_the_relay_is_a_finding():
    """A relay that keeps closed bindings fails on its own tables; the run reports it with its place."""
    failure = build.run_with(build.KeepsBindings, 0).failure

    assert failure.invariant == "crash"
    assert "relay.py" in failure.detail


@pytest.mark.parametrize("seed", range(1_000, 1_024))
def test_no_law_is_broken(seed):
    """A few simulated minutes with faults, whatever the seed draws."""
    result = run_seed("bhumi", seed, 0.05)

    assert result.failure is None
    assert sum(result.exchanges.values()) > 0


def test_many_kinds_of_outcomes_happen():
    """A few seeds together reach every outcome that a sender can get; otherwise they prove little."""
    outcomes = set()
    for seed in (2, 4):
        outcomes |= set(run_seed("bhumi", seed, 0.05).exchanges)

    assert outcomes >= {"ok", "offline", "bad_preimage", "timeout", "gone", "lost", "probe"}


def test_plan_is_the_first_thing_in_the_trace():
    """Whoever reads a trace sees what the seed drew."""
    lines = []

    run_seed("bhumi", 5, 0.01, sink=lines.append)

    assert sum(" plan devices=" in line for line in lines[:5]) == 1


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_thousand_seeds_of_one_hour():
    """1 000 seeds, one simulated hour each, with faults: nothing is violated."""
    failures = [result.command for seed in range(1_000) if (result := run_seed("bhumi", seed, 1.0)).failure]

    assert failures == []
