"""Laws of sim.chance."""

import random

from waystation.core.instant import Instant
from waystation.sim.chance import HOUR_US, Recurring, fork, spread
from waystation.sim.schedule import Schedule


def test_what_one_draws_disturbs_nobody_else():
    """A generator that was forked off leaves its origin where it was, however much it is used."""
    one, other = random.Random(7), random.Random(7)
    busy, _ = fork(one), fork(other)
    for _ in range(50):
        busy.random()

    assert one.random() == other.random()
    assert busy.random() != one.random()


def test_spread_has_its_mean():
    """The mean of many draws is near the one asked for."""
    rng = random.Random(7)

    mean = sum(spread(rng, 1_000_000) for _ in range(4_000)) / 4_000

    assert 900_000 < mean < 1_100_000


def test_action_recurs_as_often_as_it_should_until_the_phase_ends():
    """The rate is kept on average, and nothing happens after the phase."""
    schedule, happened = Schedule(), []
    recurring = Recurring(schedule, random.Random(7), lambda: schedule.now < 2 * HOUR_US)
    recurring.often(300.0, lambda: happened.append(schedule.now))
    schedule.run(Instant(4 * HOUR_US))

    assert 500 < len(happened) < 700
    assert max(happened) < 2 * HOUR_US
    assert len(schedule) == 0


def test_action_that_never_comes_draws_nothing():
    """A rate of zero leaves the generator alone."""
    rng, schedule = random.Random(7), Schedule()
    Recurring(schedule, rng, lambda: True).often(0.0, lambda: None)

    assert len(schedule) == 0
    assert rng.random() == random.Random(7).random()


def test_whatever_lasts_lasts_a_microsecond_at_least():
    """A draw of zero would last no time."""
    recurring = Recurring(Schedule(), random.Random(7), lambda: True)

    assert min(recurring.duration(1) for _ in range(200)) == 1
