"""The LPRP town finds hosts and clients with a mistake, and nothing in those that are right."""

import pytest

from tests.sim.lprp import build, mutants

SEEDS = range(1, 6)


MISTAKES = [
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
    (mutants.SendsToTheSilent, "earned", build.LONG_GONE),
    (mutants.TakesSilenceForSuccess, "true-outcome", build.UNHEARD),
]
"""What is broken, which law it breaks, and in which world."""


@pytest.mark.parametrize(("kind", "law", "plan"), MISTAKES)
def test_mistake_is_found_within_a_few_seeds(kind, law, plan):
    """Each mistake breaks its own law, soon, in a world that gives it occasion.

    Some need a world in which nobody is received for longer than two minutes.
    """
    hours = 0.06 if plan in (build.LONG_GONE, build.UNHEARD) else None
    assert build.first_failure(kind, SEEDS, plan, hours) == law


@pytest.mark.parametrize("plan", dict.fromkeys([*(plan for *_, plan in MISTAKES), build.SHORT]))
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
