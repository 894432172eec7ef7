"""The simulator finds SDKs with a mistake, and nothing in the one that is right."""

import pytest

from tests.simsdk.bhumi import mutants
from waystation.simsdk.run import run_seed

HOURS = 0.001
QUICK = [
    (mutants.answers_anew, "handled-once", 1),
    (mutants.handles_side_by_side, "handled-once", 2),
    (mutants.never_dials_again, "liveness", 1),
]
SLOW = [
    (mutants.repeats_what_is_in_doubt, "handled-once", 9),
    (mutants.takes_weaker_requests, "asked-for", 3),
    (mutants.takes_invites_without_their_secret, "only-invited", 8),
    (mutants.reads_weaker_answers, "true-answer", 15),
    (mutants.takes_earlier_answers_for_this_one, "true-answer", 8),
    (mutants.keeps_dead_connections, "liveness", 2),
]
SEEDS = range(1, 21)


@pytest.mark.parametrize(
    ("mistake", "invariant", "seed"), [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]
)
def test_mistake_is_found(mistake, invariant, seed, monkeypatch):
    """Each mistake breaks its law in the seed that is known for it, and in none does the right SDK."""
    right = run_seed("bhumi-sdk", seed, HOURS)
    mistake(monkeypatch)
    wrong = run_seed("bhumi-sdk", seed, HOURS)

    assert right.failure is None
    assert wrong.failure is not None
    assert wrong.failure.invariant == invariant


@pytest.mark.slow
def test_right_sdk_breaks_nothing():
    """Whatever the relay does, no law is broken, and every pair works afterwards or is asked for a new invite."""
    results = [run_seed("bhumi-sdk", seed, HOURS) for seed in SEEDS]

    assert [result.failure for result in results] == [None] * len(SEEDS)
    assert sum(result.exchanges.get("answered", 0) for result in results) > len(SEEDS)
    assert sum(result.exchanges.get("uncertain", 0) for result in results) > len(SEEDS)
