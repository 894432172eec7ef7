"""Scenarios go through their phases, trace what is observed, and show it to the invariants."""

import random

from tests.sim.merk.build import QUIET
from waystation.core.instant import Instant
from waystation.sim.merk import observations as seen
from waystation.sim.merk.scenario import MerkScenario
from waystation.sim.observations import Sized
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace


class Watching(MerkScenario):
    """A scenario that keeps what it observes and leaves frames out of its trace."""

    untraced = (seen.Sent,)
    sizes_every_us = 1_000_000

    def __init__(self):
        self.schedule, self.lines, self.observed = Schedule(), [], []
        super().__init__(self.schedule, random.Random(1), Trace(self.lines.append), plan=QUIET)
        self._watch = self

    def observe(self, observation, _now):
        self.observed.append(observation)

    def run(self, seconds):
        self.schedule.run(Instant(self.schedule.now + int(seconds * 1_000_000)))


def test_first_line_is_the_plan():
    """A trace says what happens in it."""
    assert Watching().lines[-1].endswith(f" plan {QUIET.describe()}")


def test_everything_observed_is_judged_and_traced():
    """Invariants see every observation; the trace leaves out what it has as bytes."""
    scenario = Watching()
    scenario.start()
    scenario.run(5)
    kinds = {type(each).__name__ for each in scenario.observed}
    traced = {line.split()[1] for line in scenario.lines}

    assert {"Sent", "Arrived", "Sized"} <= kinds
    assert kinds - traced == {"Sent"}


def test_sizes_are_measured_until_every_actor_leaves():
    """Each node is measured in turn, and once more when it must be empty."""
    scenario = Watching()
    scenario.start()
    scenario.run(2.5)
    measured = sum(isinstance(each, Sized) for each in scenario.observed)
    scenario.quiesce()
    scenario.run(10)
    empty_us = scenario.leave()
    before = len(scenario.observed)
    scenario.run(empty_us / 1_000_000)
    scenario.finish()
    last = [each for each in scenario.observed[before:] if isinstance(each, Sized)]

    assert measured == 3 * QUIET.nodes
    assert [(each.node, each.settled) for each in last] == [(node, True) for node in range(QUIET.nodes)]


def test_outcomes_of_all_clients_are_summed_up():
    """The summary is sorted by name."""
    scenario = Watching()
    scenario.start()
    scenario.run(20)

    assert list(scenario.outcomes()) == sorted(scenario.outcomes())
    assert scenario.outcomes()["taken"] > 10
