"""The LPRP town finds hosts and clients with a mistake, and nothing in those that are right."""

import pytest

from tests.sim import build_lprp as build
from tests.sim import lprp_mutants as mutants

SEEDS = range(1, 6)


@pytest.mark.parametrize(
    ("kind", "law", "plan"),
    [
        (mutants.RebindsOnRelay, "mail-address", build.MOVING),
        (mutants.MovesByOldPackets, "mail-address", build.MOVING),
        (mutants.StaysBehind, "mail-address", build.MOVING),
        (mutants.ForgetsTimes, "mail-address", build.FRAGILE),
        (mutants.ForgetsWhitelists, "whitelist", build.FRAGILE),
        (mutants.ForgetsMail, "promise-kept", build.FRAGILE),
        (mutants.ShortensLeases, "lease-kept", build.FRAGILE),
        (mutants.ProlongsLeases, "lease-kept", build.FRAGILE),
        (mutants.PromisesEarly, "promise-kept", build.FRAGILE),
        (mutants.LosesLetters, "promise-kept", build.QUIET),
        (mutants.IgnoresConfirmations, "promise-kept", build.FULL),
        (mutants.TrustsEverybody, "earned", build.SPOOFED),
        (mutants.BelievesAnyProof, "earned", build.AIMED),
        (mutants.BelievesRepeats, "earned", build.SPOOFED),
        (mutants.GivesCredit, "earned", build.SPOOFED),
        (mutants.AsksForTooLittle, "worked", build.QUIET),
        (mutants.RefusesGoodWork, "worked", build.QUIET),
        (mutants.LetsStrangersIn, "worked", build.QUIET),
        (mutants.LetsNobodyIn, "worked", build.QUIET),
        (mutants.UpdatesForFree, "worked", build.RESTLESS),
        (mutants.LosesToggles, "whitelist", build.RESTLESS),
        (mutants.AnswersTwice, "answered", build.QUIET),
        (mutants.AnswersElsewhere, "answered", build.MOVING),
        (mutants.AltersMail, "answered", build.QUIET),
        (mutants.RefusesFriends, "fair-refusal", build.QUIET),
        (mutants.KeepsChallenges, "bounded", build.SPOOFED),
        (mutants.TellsAgain, "delivered-once", build.LOSSY),
        (mutants.TakesAnything, "only-sent", build.LIED_TO),
        (mutants.ReadsForeignMail, "only-sent", build.LIED_TO),
        (mutants.BelievesAnybody, "true-outcome", build.LIED_TO),
        (mutants.TellsOutcomesTwice, "true-outcome", build.QUIET),
        (mutants.HopesForTheBest, "whitelist", build.RESTLESS),
        (mutants.ConfirmsTooSoon, "promise-kept", build.RESTLESS),
        (mutants.NeverAsksAgain, "liveness", build.LOSSY),
    ],
)
def test_mistake_is_found_within_a_few_seeds(kind, law, plan):
    """Each mistake breaks its own law, soon, in a world that gives it occasion."""
    assert build.first_failure(kind, SEEDS, plan) == law


@pytest.mark.parametrize(
    ("kind", "law", "plan"),
    [
        (mutants.SendsToTheSilent, "earned", build.LONG_GONE),
        (mutants.TakesSilenceForSuccess, "true-outcome", build.UNHEARD),
    ],
)
def test_mistake_that_shows_after_minutes_is_found(kind, law, plan):
    """Some mistakes need a world in which nobody is heard for longer than two minutes."""
    assert build.first_failure(kind, SEEDS, plan, hours=0.06) == law


@pytest.mark.parametrize(
    "plan",
    [
        build.QUIET,
        build.LOSSY,
        build.FRAGILE,
        build.RESTLESS,
        build.MOVING,
        build.SPOOFED,
        build.LIED_TO,
        build.SHORT,
        build.LONG_GONE,
        build.UNHEARD,
        build.FULL,
    ],
)
def test_host_and_client_without_mistake_break_no_law(plan):
    """The same worlds find nothing in the host and the client that are ours."""
    assert build.run_with(None, 1, plan).failure is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [mutants.ForgetsMail, mutants.PromisesEarly, mutants.BelievesRepeats, mutants.MovesByOldPackets]
)
def test_mistake_is_found_in_drawn_worlds(kind):
    """The mistakes that matter most are found without a world made for them."""
    assert build.first_failure(kind, range(1, 41), hours=0.03) is not None
