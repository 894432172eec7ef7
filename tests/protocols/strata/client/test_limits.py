import random

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.strata.client.limits import RETRY_AFTER_MAX_S, limited_until


def test_wait_is_as_told_and_up_to_a_quarter_longer():
    """A thousand waits lie within the range and use it."""
    rng = random.Random(1)
    waits = [limited_until(rng, 8, Instant(0))[1] / MICROSECONDS_PER_SECOND for _ in range(1_000)]

    assert 8 <= min(waits) < 8.1
    assert 9.9 < max(waits) <= 10


def test_nonsense_is_bounded():
    """Nothing said is one second; for ever is an hour."""
    rng = random.Random(1)

    assert limited_until(rng, None, Instant(0))[0] == 1
    assert limited_until(rng, 0, Instant(0))[0] == 1
    assert limited_until(rng, 2**53 - 1, Instant(0))[0] == RETRY_AFTER_MAX_S
