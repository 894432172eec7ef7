"""The stage: what waits for a later slot, and what a kill takes."""

from tests.sim.workload.build import plan_of
from waystation.journal.events import AnonymousCounted
from waystation.sim.workload.plan import DAY_US
from waystation.sim.workload.stage import Stage
from waystation.sim.workload.truth import Truth


def staged(*scenarios):
    plan = plan_of(*scenarios, nodes=2)
    stage = Stage(plan, Truth(node.node_id for node in plan.nodes))
    stage.advance()
    return stage


def at(ts_us):
    return AnonymousCounted(ts_us, "bhumi", 0, 0)


def test_later_events_wait_for_their_slot():
    """An event appears in the slot of its time, and is done then."""
    stage, done = staged(), []
    today, tomorrow = at(stage.begin_us), at(stage.begin_us + DAY_US)
    stage.later(0, today, lambda: done.append("today"))
    stage.later(0, tomorrow, lambda: done.append("tomorrow"))

    assert (stage.out[0], done) == ([today], ["today"])
    stage.advance()
    assert (stage.out[0], done) == ([tomorrow], ["today", "tomorrow"])


def test_a_kill_takes_what_can_be_lost_of_that_node():
    """Only the killed node loses, and only what says that it can be lost."""
    stage, lost = staged(), []
    for node in range(2):
        stage.later(node, at(stage.end_us), None, lambda node=node: lost.append(node))
    stage.later(0, at(stage.end_us + 1))
    stage.kill(0)
    stage.advance()

    assert lost == [0]
    assert [event.ts_us - stage.begin_us for event in stage.out[0]] == [1]
    assert len(stage.out[1]) == 1


def test_the_end_loses_the_rest():
    """What nobody will record any more is told."""
    stage, lost = staged(), []
    stage.later(0, at(stage.end_us), None, lambda: lost.append(1))
    stage.close()

    assert lost == [1]


def test_hours_are_those_of_the_nodes_clock():
    """A clock seven minutes ahead is in the next hour seven minutes early."""
    stage = staged("clock_skew")
    late_us = stage.begin_us + 3_599_000_000

    assert stage.hour(1, late_us) - stage.hour(0, late_us) == 3_600
