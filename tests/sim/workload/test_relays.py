"""Relays: what nodes see of them, and what must become of each."""

from collections import Counter, defaultdict

import pytest

from tests.sim.workload.build import plan_of, played
from waystation.rules.relay_state import Incident
from waystation.sim.workload.plan import HOUR_US
from waystation.sim.workload.relays import Relays


def seen(*scenarios, **size):
    plan = plan_of(*scenarios, **size)
    topic = Relays(plan)
    _, events = played(plan, topic)
    by_relay = defaultdict(list)
    for out in events:
        for event in out:
            by_relay[event.relay_id].append(event)
    return topic.describe(plan), by_relay


def seen_bad(habit):
    """Return what is told and what was seen of the one relay with a bad habit."""
    told, by_relay = seen(habit)
    (bad,) = [relay for relay, said in told.items() if said["habit"] == habit]
    return told[bad], by_relay[bad]


def test_honest_relays_are_good_throughout():
    """Without scenarios every relay is good, and nodes watch each other besides."""
    told, by_relay = seen()

    assert len(told) == 3 + 4
    assert by_relay.keys() == told.keys()
    assert all(relay["active_at_end"] and relay["never_blacklisted"] for relay in told.values())


@pytest.mark.parametrize("habit", ["slow_relay", "flapping_relay", "tampering_relay", "dead_relay"])
def test_each_bad_habit_has_one_relay(habit):
    """A scenario adds one relay that shows its habit, and changes no other."""
    told, by_relay = seen(habit)
    honest, without = seen()
    (bad,) = told.keys() - honest.keys()

    assert told[bad]["habit"] == habit
    assert all(by_relay[relay] == without[relay] for relay in honest)


def test_the_slow_relay_takes_seconds():
    """Its answers are slow from the first moment on, and it is never to be active."""
    said, events = seen_bad("slow_relay")

    assert min(event.latency_us for event in events if event.latency_us) >= 2_500_000
    assert said["active_at_end"] is False and said["never_blacklisted"]


def test_the_tampering_relay_violates_as_often_as_said():
    """Every attack is a handful of violations, none of them before the truth's moment."""
    said, events = seen_bad("tampering_relay")
    violations = [event for event in events if event.probe == "validity"]

    assert {event.reason for event in violations} == {Incident.BAD_SIGNATURE.value}
    assert min(event.ts_us for event in violations) == said["blacklisted_by_us"] - HOUR_US
    assert len(violations) % 5 == 0


def test_the_dead_relay_answers_no_more():
    """After its death nothing succeeds."""
    said, events = seen_bad("dead_relay")
    died_us = said["timeline"][-1]["from_us"]
    outcomes = Counter((event.ts_us >= died_us, event.outcome) for event in events)

    assert not outcomes[True, "ok"] and outcomes[True, "failed"] > outcomes[False, "failed"]


def test_the_flapping_relay_never_fails_three_times_running():
    """It comes back each time before anybody has a reason to leave it."""
    said, events = seen_bad("flapping_relay")
    running = worst = 0
    for event in sorted(events):
        running = running + 1 if event.outcome == "failed" else 0
        worst = max(worst, running)

    assert 2 <= worst <= 3
    assert said["transitions_max"] == 6
