"""The Strata town finds relays and clients with a mistake, and nothing in those that are right."""

import pytest

from tests.sim.strata import build, mutants

SEEDS = range(1, 5)


MISTAKES = [
    (mutants.SkipsPartB, "no-gap", build.PAGED),
    (mutants.SaysComplete, "no-gap", build.PAGED),
    (mutants.LosesRequests, "no-gap", build.PAGED),
    (mutants.LosesTail, "no-gap", build.HEAVY),
    (mutants.ReadsBackwards, "history-order", build.PAGED),
    (mutants.CursorLags, "no-repeat", build.PAGED),
    (mutants.OkBeforeCommit, "promise-kept", build.SLOW_DISK),
    (mutants.BelievesSignatures, "only-signed", build.TAMPERED),
    (mutants.IgnoresWitness, "received-at", build.PAIR),
    (mutants.KeepsItsTime, "received-at", build.PAIR),
    (mutants.SkipsReplicated, "converged", build.APART),
    (mutants.GivesCredit, "credit", build.HEAVY),
    (mutants.DropsForKeyEvents, "promise-kept", build.MINTED),
    (mutants.KeepsSessions, "credit", build.PAGED),
    (mutants.WaitsForSilent, "liveness", build.HEAVY),
    (mutants.RefusesGood, "fair-verdict", build.QUIET),
    (mutants.TakesSilenceForSuccess, "promise-kept", build.HASTY),
    (mutants.LosesEvents, "no-gap", build.PAGED),
    (mutants.BeginsWithNews, "no-gap", build.PAGED),
]
"""What is broken, which law it breaks, and in which world."""


@pytest.mark.parametrize(("kind", "law", "plan"), MISTAKES)
def test_mistake_is_found_within_a_few_seeds(kind, law, plan):
    """Each mistake breaks its own law, soon, in a world that gives it occasion."""
    assert build.first_failure(kind, SEEDS, plan) == law


@pytest.mark.parametrize("plan", dict.fromkeys(plan for *_, plan in MISTAKES))
def test_relay_without_mistake_breaks_no_law(plan):
    """The same worlds find nothing in the relay and the client that are ours."""
    assert build.run_with(None, 1, plan).failure is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [mutants.SkipsPartB, mutants.LosesTail, mutants.OkBeforeCommit, mutants.BelievesSignatures]
)
def test_mistake_is_found_in_drawn_worlds(kind):
    """The mistakes that matter most are found without a world made for them."""
    assert build.first_failure(kind, range(1, 21)) is not None
