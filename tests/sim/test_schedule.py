"""The virtual clock."""

import pytest

from waystation.core.instant import Instant
from waystation.sim.schedule import LivelockError, Schedule


def test_events_happen_in_time_order_then_in_planning_order():
    """Earlier instants come first, and of one instant what was planned first."""
    schedule, happened = Schedule(), []
    for name, at in (("late", 20), ("first", 10), ("second", 10)):
        schedule.at(Instant(at), lambda name=name: happened.append((schedule.now, name)))

    schedule.run(Instant(100))

    assert happened == [(10, "first"), (10, "second"), (20, "late")]
    assert schedule.now == 100


def test_what_lies_beyond_the_end_waits():
    """``run`` performs what falls on its end and nothing later."""
    schedule, happened = Schedule(), []
    schedule.at(Instant(10), lambda: happened.append(10))
    schedule.at(Instant(11), lambda: happened.append(11))

    schedule.run(Instant(10))

    assert happened == [10]
    assert len(schedule) == 1


def test_cancelled_event_does_not_happen():
    """A cancelled number is forgotten, and cancelling twice is fine."""
    schedule, happened = Schedule(), []
    number = schedule.after(5, lambda: happened.append(5))

    schedule.cancel(number)
    schedule.cancel(number)
    schedule.run(Instant(10))

    assert happened == []
    assert len(schedule) == 0


def test_an_instant_that_has_passed_means_now():
    """Time never goes back."""
    schedule, happened = Schedule(), []
    schedule.run(Instant(50))

    schedule.at(Instant(1), lambda: happened.append(schedule.now))
    schedule.run(Instant(60))

    assert happened == [50]


def test_events_that_feed_themselves_are_a_livelock():
    """Time that cannot go on is reported instead of hanging."""
    schedule = Schedule()

    def again():
        schedule.after(0, again)

    again()

    with pytest.raises(LivelockError):
        schedule.run(Instant(1))
