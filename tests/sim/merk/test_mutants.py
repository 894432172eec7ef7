"""The MERK town finds relays and clients with a mistake, and nothing in those that are right."""

import pytest

from tests.sim.merk import build, mutants, mutants_runs

SEEDS = range(1, 5)


@pytest.mark.parametrize(
    ("kind", "law", "plan"),
    [
        (mutants.ForwardsTwice, "delivered-once", build.QUIET),
        (mutants.TakesReplays, "delivered-once", build.BESET),
        (mutants.HandsOnTwice, "delivered-once", build.AGAIN),
        (mutants.TouchesFrames, "own-only", build.QUIET),
        (mutants.MixesUp, "own-only", build.QUIET),
        (mutants.BelievesSenders, "own-only", build.MEDDLED),
        (mutants.TellsEverybody, "own-only", build.QUIET),
        (mutants.Doubts, "own-only", build.QUIET),
        (mutants.StopsAtFirstNo, "path-delivers", build.QUIET),
        (mutants.KeepsAbsences, "path-delivers", build.ROAMING),
        (mutants_runs.DoublesInBunches, "delivered-once", build.BURSTS),
        (mutants.SkipsInBunches, "path-delivers", build.BURSTS),
        (mutants.BelievesOldPlaces, "path-delivers", build.ROAMING),
        (mutants.BelievesAnybody, "forwarding", build.BESET),
        (mutants.BelievesClaims, "claims-draw-nothing", build.TANGLED),
        (mutants.TakesRelayedLogins, "claims-draw-nothing", build.RELAYED),
        (mutants.TakesInventedSenders, "own-only", build.BESET),
        (mutants.ForgetsOutcomes, "one-outcome", build.QUIET),
        (mutants.TellsTwice, "one-outcome", build.QUIET),
        (mutants.TellsNodesTwice, "forwarding", build.BESET),
        (mutants_runs.BundlesForEverybody, "forwarding", build.BESET),
        (mutants.CallsQueuedDelivered, "true-outcome", build.QUIET),
        (mutants.BlamesTime, "true-outcome", build.ROAMING),
        (mutants.HasNoQueue, "true-outcome", build.ROAMING),
        (mutants.ForwardsOn, "forwarding", build.TANGLED),
        (mutants.DialsForClients, "guarded-dials", build.MEDDLED),
        (mutants.DialsAnything, "guarded-dials", build.NAMED),
        (mutants.DialsMuch, "guarded-dials", build.NAMED),
        (mutants.KeepsClients, "bounded", build.QUIET),
        (mutants.KeepsPlaces, "bounded", build.ROAMING),
        (mutants.GivesCredit, "bounded", build.DEAF),
        (mutants.NeverAsks, "liveness", build.QUIET),
        (mutants.NeverRedials, "liveness", build.BROKEN),
        (mutants.WaitsForDeaf, "liveness", build.STILL),
        (mutants.HidesKeys, "liveness", build.QUIET),
        (mutants.LosesOutcomes, "liveness", build.QUIET),
        (mutants.GivesUpWhatItGives, "keeps-mail", build.MAILED),
        (mutants.KeepsInMemory, "keeps-mail", build.MAILED),
        (mutants.IgnoresTaken, "keeps-mail", build.MAILED),
        (mutants.TakesReceiptsOfAnybody, "read-is-taken", build.LIED),
        (mutants.TakesUnboundReceipts, "read-is-taken", build.LIED),
        (mutants.CountsNoticesAsRead, "read-is-taken", build.MAILED),
        (mutants.ReportsReadAgain, "read-is-taken", build.LIED),
        (mutants.SkipsSignatures, "authentic", build.LIED),
        (mutants.CallsEverythingBound, "authentic", build.RESIGNED),
        (mutants.BelievesAdverts, "confidential", build.LIED),
    ],
)
def test_mistake_is_found_within_a_few_seeds(kind, law, plan):
    """Each mistake breaks its own law, soon, in a world that gives it occasion."""
    assert build.first_failure(kind, SEEDS, plan) == law


@pytest.mark.parametrize("plan", build.WORLDS)
def test_right_relay_passes_where_mistakes_are_found(plan):
    """The same worlds say nothing about a relay and clients without a mistake."""
    assert [build.run_with(None, seed, plan).failure for seed in SEEDS] == [None] * len(SEEDS)
