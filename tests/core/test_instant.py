"""Laws of core.instant."""

from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND, Instant, after_ms


def test_after_ms_adds_milliseconds_in_microseconds():
    """An instant counts microseconds, and a duration is named in milliseconds."""
    assert after_ms(Instant(7), 30_000) == 30_000_007


def test_after_ms_of_nothing_is_now():
    """No time later is the same instant."""
    assert after_ms(Instant(5), 0) == 5


def test_units_agree():
    """A second has a thousand milliseconds."""
    assert MICROSECONDS_PER_SECOND == 1_000 * MICROSECONDS_PER_MS
