"""Plans of failing disks are drawn apart, and carried out until the faults end."""

from dataclasses import replace

import pytest

from tests.sim.build import fixed_rng
from tests.sim.strata import build as strata
from waystation.core.errors import StoreFault
from waystation.core.instant import Instant
from waystation.core.packets import PacketQuery
from waystation.sim.disk import FaultyStore
from waystation.sim.disk_faults import DiskFaults, DiskPlan, draw_disk_plan
from waystation.sim.run import SCENARIOS, run_seed
from waystation.sim.schedule import Schedule

HOURS = {"bhumi": 0.02, "bhumi-open": 0.01, "bsp": 0.005, "lprp": 0.005, "merk": 0.01, "strata": 0.01}


class Node:
    def __init__(self):
        self.store = FaultyStore()


class Stage:
    """Two nodes whose disks fail."""

    def __init__(self, **plan):
        self.schedule, self.nodes, self.crashes, self.lasts = Schedule(), [Node(), Node()], [], True
        self.faults = DiskFaults(self.schedule, fixed_rng(), DiskPlan(**plan))
        self.faults.begin(self.nodes, lambda: self.lasts, lambda *crash: self.crashes.append(crash))

    def refusing(self, seconds):
        """Return how many disks refuse at the end of each of so many seconds."""
        counts = []
        for _ in range(seconds):
            self.schedule.run(Instant(self.schedule.now + 1_000_000))
            counts.append(sum(node.store.refuses for node in self.nodes))
        return counts


def test_most_plans_lose_no_rows():
    """A loss excuses promises, so most plans have none; none leaves a sync out, and pages fail only where they may."""
    plans = [draw_disk_plan(fixed_rng(seed)) for seed in range(200)]
    reading = [draw_disk_plan(fixed_rng(seed), may_fail_to_read=True) for seed in range(200)]

    assert 10 < sum(each.habits.rot > 0 or each.habits.restores > 0 for each in plans) < 100
    assert not any(each.habits.unsynced or each.unreadable for each in plans)
    assert 50 < sum(each.unreadable > 0 for each in reading) < 180


def test_disks_refuse_for_a_while():
    """Refusals come and go, and nothing refuses once the faults have ended."""
    stage = Stage(refusals=360.0, refusal_us=3_000_000)
    counts = stage.refusing(200)
    stage.lasts = False
    stage.faults.end()

    assert {0, 1} <= set(counts)
    assert stage.refusing(60) == [0] * 60


def test_pages_cannot_be_read_for_a_while():
    """A page of packets fails, and can be read again; what does not go to readers is always there."""
    stage = Stage(unreadable=3_600.0, refusal_us=1_000_000)
    failed = 0
    for _ in range(200):
        stage.refusing(1)
        packets = stage.nodes[0].store.packets
        assert packets.newest_seq() == 0
        try:
            assert packets.entries(PacketQuery()).rows == []
        except StoreFault:
            failed += 1
    stage.faults.end()

    assert 0 < failed < 200
    assert not any(node.store.fails_to_read for node in stage.nodes)


def test_nodes_crash():
    """Each node dies some time, for some time."""
    stage = Stage(crashes=360.0)
    stage.refusing(100)

    assert {node for node, _ in stage.crashes} == {0, 1}
    assert all(down_us > 0 for _, down_us in stage.crashes)


@pytest.mark.parametrize("protocol", SCENARIOS)
@pytest.mark.parametrize("seed", range(1, 5))
def test_drawn_disks_break_no_invariant(protocol, seed):
    """On disks that fail every protocol keeps its laws, and says the same in every run of a seed."""
    result = run_seed(protocol, seed, HOURS[protocol], disks=True)

    assert result.failure is None
    assert result.command.endswith(" --disk")
    if seed == 1:
        assert run_seed(protocol, seed, HOURS[protocol], disks=True) == result


def test_disk_that_only_refuses_is_nothing_to_bhumi():
    """A relay of Bhumi stores nothing: it does the same on a disk that takes nothing, to the byte."""
    lines = [], []
    run_seed("bhumi", 3, 0.02, sink=lines[0].append)
    run_seed("bhumi", 3, 0.02, sink=lines[1].append, disks=DiskPlan(refusals=3_600.0, refusal_us=60_000_000))

    assert [line for line in lines[1] if " disks " not in line] == lines[0]


@pytest.mark.parametrize("habit", ["rot", "restores"])
def test_strata_keeps_all_but_what_a_disk_lost(habit):
    """Relays lose rows, are asked for nothing of them, and give no other answer that is untrue."""
    disks = DiskPlan(crashes=400.0)
    disks = replace(disks, habits=replace(disks.habits, **{habit: 1.0}))
    lines = []
    result = strata.run_with(None, 2, strata.PAIR, 0.02, lines.append, disks)

    assert result.failure is None
    assert any(" DiskLost " in line for line in lines)
