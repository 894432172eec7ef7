"""The open world finds relays and devices with a mistake, and nothing in those that are right."""

import pytest

from tests.sim import bhumi_open_mutants as mutants
from tests.sim import build_bhumi_open as build
from tests.sim.build import Garbles

SEEDS = range(1, 5)


@pytest.mark.parametrize(
    ("kind", "law", "plan"),
    [
        (mutants.ServesExpired, "fresh", build.SHORT),
        (mutants.BelievesInTomorrow, "fresh", build.LIED_TO),
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
        (Garbles, "faithful", build.QUIET),
        (mutants.TrustsSenders, "commit-first", build.SLOW),
        (mutants.LosesResults, "one-result", build.QUIET),
        (mutants.AsksAgain, "asks-once", build.SLOW),
        (mutants.ForgetsToAssert, "liveness", build.QUIET),
    ],
)
def test_mistake_is_found_within_a_few_seeds(kind, law, plan):
    """Each mistake breaks its own law, soon, in a world that gives it occasion."""
    assert build.first_failure(kind, SEEDS, plan) == law


@pytest.mark.parametrize("plan", build.WORLDS)
def test_right_relay_passes_where_mistakes_are_found(plan):
    """The same worlds say nothing about relays and devices without a mistake."""
    assert build.run_with(None, 1, plan).failure is None
