"""Deliveries and connections."""

from collections import Counter

from tests.sim.workload.build import plan_of, played
from waystation.journal.events import DeliveryAccepted, DeliveryFinished, PeerIdentified, PeerLeft
from waystation.sim.workload.deliveries import BHUMI, LPRP, MERK, UNFINISHED, Connections, Deliveries
from waystation.sim.workload.plan import DAY_US
from waystation.sim.workload.stage import Stage
from waystation.sim.workload.truth import Truth


def test_every_attempt_is_counted_once():
    """What truth counts is what was attempted, for each habit."""
    plan = plan_of(nodes=2)
    for habit in (BHUMI, LPRP):
        stage, _ = played(plan, Deliveries(plan, habit, 50, 20))
        stage.close()
        assert sum(n for n, _ in stage.truth.deliveries.values()) == 50 * 2 * plan.slots


def test_gathered_attempts_count_as_many_as_they_stand_for():
    """MERK tells several attempts in one event without a latency."""
    plan = plan_of(nodes=1)
    stage, (events,) = played(plan, Deliveries(plan, MERK, 50, 20))

    assert sum(event.tries for event in events) == sum(n for n, _ in stage.truth.deliveries.values())
    assert max(event.tries for event in events) > 1
    assert {event.latency_us for event in events} == {None}


def test_finished_attempts_were_accepted_before():
    """Acceptance and outcome of one attempt are as far apart as the latency says."""
    plan = plan_of(nodes=1)
    _, (events,) = played(plan, Deliveries(plan, BHUMI, 80, 20))
    accepted = {event.attempt_ref: event for event in events if type(event) is DeliveryAccepted}
    finished = [event for event in events if type(event) is DeliveryFinished]

    assert len({event.attempt_ref for event in finished}) == len(finished)
    for event in finished:
        if event.attempt_ref in accepted:
            assert event.ts_us - event.latency_us == accepted[event.attempt_ref].ts_us
            assert event.peer_ref == accepted[event.attempt_ref].peer_ref


def test_a_kill_leaves_attempts_unfinished():
    """What a killed node had begun has no outcome, and truth says so."""
    plan = plan_of(nodes=1)
    stage, topic = Stage(plan, Truth([plan.nodes[0].node_id])), Deliveries(plan, LPRP, 300, 20)
    stage.advance()
    topic.play(stage)
    begun = sum(type(event) is DeliveryAccepted for event in stage.out[0])
    ended = sum(type(event) is DeliveryFinished and event.latency_us is not None for event in stage.out[0])
    stage.kill(0)

    unfinished = sum(n for (_, _, outcome), (n, _) in stage.truth.deliveries.items() if outcome == UNFINISHED)
    assert unfinished == begun - ended > 0


def test_references_are_those_of_the_week():
    """Recipients have other references in the second week."""
    plan = plan_of(nodes=1, days=9)
    _, (events,) = played(plan, Deliveries(plan, MERK, 50, 20))
    weeks = [
        {event.peer_ref for event in events if (event.ts_us - plan.start_us) // (7 * DAY_US) == week} for week in (0, 1)
    ]

    assert all(weeks) and not weeks[0] & weeks[1]


def test_connections_end_as_who_they_were():
    """Who left had come, by the same connection, and truth counts both."""
    plan = plan_of(nodes=1)
    stage, (events,) = played(plan, Connections(plan, "bhumi", 30, [b"a" * 32, b"b" * 32]))
    opened = {event.conn_ref: event for event in events if type(event) is PeerIdentified}
    left = [event for event in events if type(event) is PeerLeft]

    assert len(opened) == 30 * plan.slots
    assert all(opened[event.conn_ref].ts_us < event.ts_us for event in left)
    counted = Counter(bhumi_opened=len(opened), bhumi_closed=len(left))
    assert stage.truth.connections[plan.nodes[0].node_id] == counted
