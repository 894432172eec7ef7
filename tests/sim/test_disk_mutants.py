"""Simulations on disks that fail find machines with a mistake and stores that do not sync, and nothing else."""

from dataclasses import replace

import pytest

from tests.sim import disk_mutants as mutants
from tests.sim.bsp import build as bsp
from tests.sim.bsp.mutants import AnswersEarly
from tests.sim.lprp import build as lprp
from tests.sim.lprp.mutants import PromisesEarly
from tests.sim.merk import build as merk
from tests.sim.strata import build as strata
from tests.sim.strata.mutants import OkBeforeCommit
from waystation.sim.disk import DiskHabits
from waystation.sim.disk_faults import DiskPlan

SEEDS = range(1, 7)
REFUSING = DiskPlan(refusals=480.0, refusal_us=2_000_000)
"""Disks that take nothing for a while, again and again, and nodes that live on."""
STUBBORN = replace(REFUSING, refusals=7_200.0)
"""Disks that take nothing most of the time."""
DYING = DiskPlan(crashes=600.0, refusals=1_500.0, refusal_us=1_000_000)
"""The same, more often, and nodes that are killed."""
UNREADABLE = DiskPlan(unreadable=1_000.0, refusal_us=2_000_000)
"""Disks of which no page can be read for a while."""
POWER_CUTS = DiskPlan(crashes=600.0, habits=DiskHabits(power_cuts=1.0))
"""Nodes that lose their power."""
WIRED = replace(bsp.WIRED, faults=bsp.TOWN.faults)

MISTAKES = [
    (strata, mutants.StrataTakesRefusalForCommit, "promise-kept", strata.QUIET, REFUSING),
    (strata, mutants.StrataHearsNothing, "promise-kept", strata.QUIET, REFUSING),
    (strata, mutants.StrataUndoesNothing, "promise-kept", strata.QUIET, REFUSING),
    (strata, mutants.StrataReadsOn, "converged", strata.APART, REFUSING),
    (strata, mutants.StrataAlwaysRefuses, "fair-verdict", strata.QUIET, REFUSING),
    (strata, mutants.StrataEndsUnread, "no-gap", strata.PAGED, UNREADABLE),
    (strata, OkBeforeCommit, "promise-kept", strata.QUIET, REFUSING),
    (strata, OkBeforeCommit, "promise-kept", strata.SLOW_DISK, POWER_CUTS),
    (lprp, mutants.LprpTakesRefusalForCommit, "promise-kept", lprp.QUIET, REFUSING),
    (lprp, mutants.LprpHearsNothing, "liveness", lprp.QUIET, REFUSING),
    (lprp, mutants.LprpLosesRefused, "promise-kept", lprp.FRAGILE, DYING),
    (lprp, PromisesEarly, "promise-kept", lprp.QUIET, REFUSING),
    (merk, mutants.MerkTakesRefusalForCommit, "keeps-mail", merk.MAILED, STUBBORN),
    (bsp, mutants.BspTakesRefusalForCommit, "on-disk-first", WIRED, REFUSING),
    (bsp, mutants.BspHearsNothing, "agreed", WIRED, REFUSING),
    (bsp, mutants.BspLosesRefused, "on-disk-first", WIRED, REFUSING),
    (bsp, AnswersEarly, "on-disk-first", WIRED, REFUSING),
]
"""What is broken, which law it breaks, in which world and on what disks."""

TABLES = [
    (bsp, "bsp_messages", bsp.TOWN),
    (bsp, "bsp_flags", bsp.TOWN),
    (lprp, "lprp_tenants", lprp.QUIET),
    (lprp, "lprp_whitelists", None),
    (lprp, "lprp_packets", lprp.QUIET),
    (lprp, "lprp_done", lprp.QUIET),
    (merk, "merk_peers", merk.TANGLED),
    (strata, "packets", strata.QUIET),
    (strata, "strata_signers", None),
    (strata, "strata_upstreams", strata.APART),
]
"""Every table that the five protocols write to, and a world in which they do."""


@pytest.mark.parametrize(("build", "kind", "law", "plan", "disks"), MISTAKES)
def test_mistake_is_found_within_a_few_seeds(build, kind, law, plan, disks):
    """Who takes a refusal for a commit, waits for ever, forgets, undoes nothing or answers early breaks its own law."""
    assert build.first_failure(kind, SEEDS, plan, 0.02, disks) == law


@pytest.mark.parametrize(("build", "table", "plan"), TABLES)
def test_missing_sync_is_found(build, table, plan):
    """A commit that returns before its changes are synced is found, whichever table it writes to."""
    disks = replace(POWER_CUTS, habits=replace(POWER_CUTS.habits, unsynced=(table,)))

    assert build.first_failure(None, range(1, 13), plan, 0.02, disks) is not None


@pytest.mark.parametrize(
    ("build", "plan", "disks"),
    dict.fromkeys([(build, plan, disks) for build, _, _, plan, disks in MISTAKES])
    | dict.fromkeys([(build, plan, POWER_CUTS) for build, _, plan in TABLES]),
)
def test_right_machines_break_no_law(build, plan, disks):
    """The same worlds on the same disks find nothing in the machines that are ours."""
    assert build.run_with(None, 1, plan, 0.02, disks=disks).failure is None
