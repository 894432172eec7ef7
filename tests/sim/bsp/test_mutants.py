"""The BSP network finds devices with a mistake, and nothing in those that are right."""

from dataclasses import replace

import pytest

from tests.sim.bsp import mutants
from tests.sim.bsp.build import FEW, INTRUDED, LOSSY, RESTLESS, SLOW_DISKS, TOWN, WIRED, first_failure
from waystation.sim.bsp.plan import BspFaults

INTERACTIVE = replace(TOWN, modes=("interactive",) * 3)
BATCH = replace(TOWN, modes=("batch",) * 3)


@pytest.mark.parametrize(
    ("kind", "law", "plan"),
    [
        (mutants.AcksEarly, "on-disk-first", SLOW_DISKS),
        (mutants.SendsEarly, "on-disk-first", SLOW_DISKS),
        (mutants.AcksStrangers, "shared-only", INTRUDED),
        (mutants.TellsEverybody, "shared-only", replace(INTRUDED, modes=("interactive",) * 3)),
        (mutants.TakesAnything, "asked-for", INTRUDED),
        (mutants.RequestsTwice, "asked-for", INTERACTIVE),
        (mutants.AcksTwice, "asked-for", TOWN),
        (mutants.OffersAlways, "mode-kept", BATCH),
        (mutants.SendsAlways, "mode-kept", INTERACTIVE),
        (mutants.AltersBodies, "shared-only", BATCH),
        (mutants.HandsOutAnything, "faithful", TOWN),
        (mutants.DeliversTwice, "causal-order", TOWN),
        (mutants.DeliversBackwards, "causal-order", RESTLESS),
        (mutants.ReadsNoDependencies, "causal-order", LOSSY),
        (mutants.ForgetsAll, "causal-order", RESTLESS),
        (mutants.RemembersAllOffers, "bounded", replace(TOWN, hostiles=("flooder",) * 2)),
        (mutants.ServesGreed, "paced", replace(TOWN, hostiles=("byzantine",) * 2)),
        (mutants.NeverRepeats, "agreed", LOSSY),
        (mutants.NeverWakes, "agreed", replace(LOSSY, probes=False)),
        (mutants.NeverAcks, "owed", TOWN),
        (mutants.IgnoresAcks, "owed", TOWN),
        (mutants.IgnoresKnownOffers, "owed", INTERACTIVE),
        (mutants.IgnoresRepeats, "owed", LOSSY),
        (mutants.SharesNothing, "agreed", FEW),
        (mutants.Talkative, "owed", BATCH),
        (mutants.AnswersEarly, "on-disk-first", WIRED),
        (mutants.DialsOnce, "owed", WIRED),
        (mutants.LosesAcks, "owed", WIRED),
        (mutants.BelievesStrangers, "agreed", replace(WIRED, hostiles=("intruder",) * 3)),
        (mutants.AcksTheUnshared, "shared-only", replace(SLOW_DISKS, faults=BspFaults(quarrels=20_000.0))),
    ],
)
def test_mistake_is_found_within_a_few_seeds(kind, law, plan):
    """Each mistake breaks its own law, soon, in a world that gives it occasion."""
    assert first_failure(kind, range(1, 6), plan) == law
