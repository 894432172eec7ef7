"""Laws of core.limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket, surplus


def test_burst_is_all_there_is_at_once():
    """Without time passing exactly ``burst`` tokens are spent."""
    bucket = TokenBucket(rate=10, burst=3, now=Instant(0))

    assert [bucket.take(Instant(0)) for _ in range(5)] == [True, True, True, False, False]


def test_token_comes_back_at_ready_at_and_not_before():
    """The announced instant is exact to the microsecond."""
    bucket = TokenBucket(rate=3, burst=1, now=Instant(0))
    bucket.take(Instant(0))
    ready_at = bucket.ready_at()

    assert ready_at == 333_334
    assert not bucket.take(Instant(ready_at - 1))
    assert bucket.take(ready_at)


def test_ready_at_is_the_last_look_while_tokens_are_left():
    """A bucket that is not empty never asks to wait."""
    bucket = TokenBucket(rate=1, burst=2, now=Instant(40))
    bucket.take(Instant(50))

    assert bucket.ready_at() == 50


def test_ready_tells_what_the_last_look_saw():
    """Looking does not spend, and time counts only once somebody looked."""
    bucket = TokenBucket(rate=1, burst=1, now=Instant(0))
    bucket.take(Instant(0))

    assert not bucket.ready()
    bucket.refill(Instant(MICROSECONDS_PER_SECOND - 1))
    assert not bucket.ready()
    bucket.refill(Instant(MICROSECONDS_PER_SECOND))
    assert bucket.ready()
    assert bucket.ready_at() == MICROSECONDS_PER_SECOND
    assert bucket.take(Instant(MICROSECONDS_PER_SECOND))


def test_rest_does_not_save_up_more_than_the_burst():
    """A quiet year earns one burst."""
    bucket = TokenBucket(rate=1_000, burst=2, now=Instant(0))
    later = Instant(365 * 86_400 * MICROSECONDS_PER_SECOND)

    assert [bucket.take(later) for _ in range(3)] == [True, True, False]


def test_a_refused_take_costs_nothing():
    """Asking too early does not push the next token away."""
    bucket = TokenBucket(rate=1, burst=1, now=Instant(0))
    bucket.take(Instant(0))
    for at in range(0, 1_000_000, 100_000):
        assert not bucket.take(Instant(at))

    assert bucket.take(Instant(MICROSECONDS_PER_SECOND))


@given(
    rate=st.integers(1, 1_000),
    burst=st.integers(1, 50),
    steps=st.lists(st.integers(0, 500_000), min_size=1, max_size=80),
)
def test_never_more_than_rate_and_burst_allow(rate, burst, steps):
    """In any stretch from the start at most burst + rate * time tokens are spent."""
    bucket = TokenBucket(rate, burst, Instant(0))
    now, taken = 0, 0
    for step in steps:
        now += step
        taken += bucket.take(Instant(now))

    assert taken <= burst + rate * now // MICROSECONDS_PER_SECOND


@pytest.mark.parametrize(("count", "count_max", "dropped"), [(3, 4, 0), (4, 4, 0), (5, 4, 1), (6, 4, 2), (99, 4, 2)])
def test_surplus_of_a_table(count, count_max, dropped):
    """One entry makes room for one; after a lower limit two go at a time."""
    assert surplus(count, count_max) == dropped
