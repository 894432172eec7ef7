"""The simulator finds relays and devices with a mistake, and nothing in those that are right."""

import pytest

from tests.sim.bhumi import build, core_mutants, mutants

SEEDS = range(1, 5)
CORE_SEEDS = range(6)


@pytest.mark.parametrize(
    ("kind", "invariant", "plan"),
    [
        (mutants.ServesExpired, "fresh", build.SHORT),
        (mutants.BelievesInTomorrow, "fresh", build.DECEIVED),
        (mutants.SkipsSignatures, "only-signed", build.BESET),
        (mutants.ProlongsPresences, "only-signed", build.QUIET),
        (mutants.MintsPresences, "only-signed", build.QUIET),
        (mutants.TakesForeignWord, "own-word", build.CARRIED),
        (mutants.AnswersBackwards, "newest", build.QUIET),
        (mutants.KeepsTheFirst, "newest", build.QUIET),
        (mutants.AnswersTheOldest, "newest", build.QUIET),
        (mutants.KeepsEveryPlace, "newest", build.ROVED),
        (mutants.AnswersFloods, "prompt", build.NOSY),
        (mutants.AnswersTwice, "prompt", build.QUIET),
        (mutants.AnswersSome, "prompt", build.QUIET),
        (mutants.AnswersTheLastOne, "prompt", build.NOSY),
        (mutants.EchoesGossip, "no-echo", build.QUIET),
        (mutants.SpeaksUnasked, "negotiated", build.NOSY),
        (mutants.ServesStrangers, "negotiated", build.NOSY),
        (mutants.TellsNonsense, "negotiated", build.QUIET),
        (mutants.TellsPrivatePlaces, "guarded-dials", build.NAMED),
        (mutants.DialsUnguarded, "guarded-dials", build.QUIET),
        (mutants.KeepsPresences, "bounded", build.QUIET),
        (mutants.KeepsContacts, "bounded", build.QUIET),
        (mutants.NeverGossips, "liveness", build.QUIET),
        (mutants.KeepsToItself, "liveness", build.QUIET),
        (mutants.RepeatsRequests, "delivered-once", build.QUIET),
        (core_mutants.Garbles, "faithful", build.QUIET),
        (mutants.TrustsSenders, "commit-first", build.SLOW),
        (mutants.LosesResults, "one-result", build.QUIET),
        (mutants.AsksAgain, "asks-once", build.SLOW),
        (mutants.ForgetsToAssert, "liveness", build.QUIET),
    ],
)
def test_mistake_is_found_within_a_few_seeds(kind, invariant, plan):
    """Each mistake breaks its own invariant, soon, in a plan that gives it occasion."""
    assert build.first_failure(kind, SEEDS, plan) == invariant


@pytest.mark.parametrize("plan", build.PLANS)
def test_right_relay_passes_where_mistakes_are_found(plan):
    """The same plans find nothing in relays and devices without a mistake."""
    assert build.run_with(None, 1, plan).failure is None


@pytest.mark.parametrize(
    ("relay", "invariant"),
    [
        (core_mutants.KeepsCommits, "delivered-once"),
        (core_mutants.SwapsResults, "one-result"),
        (core_mutants.LosesResults, "one-result"),
        (core_mutants.TrustsAnybody, "commit-first"),
        (core_mutants.Garbles, "faithful"),
        (core_mutants.ForgetsAnswers, "answers-survive"),
        (core_mutants.NamesSenders, "sender-hidden"),
        (core_mutants.NeverOk, "liveness"),
        (core_mutants.HoardsAnswers, "bounded"),
    ],
)
def test_mistake_in_the_core_protocol_is_found_within_a_few_seeds(relay, invariant):
    """Each mistake of a relay without gossip breaks its own invariant, soon, whatever the seed draws."""
    found = (build.CORE.run_with(relay, seed).failure for seed in CORE_SEEDS)

    assert invariant in (failure.invariant for failure in found if failure)


@pytest.mark.parametrize(
    ("relay", "invariant", "detail"),
    [
        (core_mutants.SetsNoTimers, "bounded", "connections"),
        (core_mutants.KeepsBindings, "crash", "connections.py"),
    ],
)
def test_finding_tells_what_happened(relay, invariant, detail):
    """A connection that is never reaped shows when every client has left; an exception comes with its place."""
    found = [build.CORE.run_with(relay, seed, hours=0.2).failure for seed in CORE_SEEDS]

    assert any(failure.invariant == invariant and detail in failure.detail for failure in found if failure)
