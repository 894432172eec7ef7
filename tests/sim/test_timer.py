"""Laws of sim.timer."""

from waystation.core.instant import Instant
from waystation.sim.schedule import Schedule
from waystation.sim.timer import Timer


def timer():
    """Return a clock, a timer on it, and when it rang."""
    schedule, rang = Schedule(), []
    return schedule, Timer(schedule, lambda: rang.append(schedule.now)), rang


def test_the_earliest_instant_counts():
    """Later ones and none change nothing, and it rings once."""
    schedule, one, rang = timer()
    for at in (Instant(20), Instant(10), Instant(30), None):
        one.ring_by(at)
    schedule.run(Instant(100))

    assert rang == [10]


def test_it_can_be_set_again_once_it_has_rung():
    """Ringing unsets it."""
    schedule, one, rang = timer()
    one.ring_by(Instant(10))
    schedule.run(Instant(15))
    one.ring_by(Instant(20))
    schedule.run(Instant(100))

    assert rang == [10, 20]


def test_a_cancelled_timer_is_silent():
    """Cancelling twice is fine, and setting it again works."""
    schedule, one, rang = timer()
    one.ring_by(Instant(10))
    one.cancel()
    one.cancel()
    schedule.run(Instant(50))
    one.ring_by(Instant(60))
    schedule.run(Instant(100))

    assert rang == [60]
