"""Laws of server.failures.repeats: one line per minute and failure, with a count, and bounded."""

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.server.failures.repeats import KEYS_MAX, REPEAT_S, Repeats


def test_repeats_are_counted_until_the_next_line():
    """A failure has a line per period; what came between is its count, and the count begins again."""
    repeats = Repeats()
    period = REPEAT_S * MICROSECONDS_PER_SECOND

    assert [repeats.take("a", now) for now in (0, 1, 2, period, 2 * period)] == [0, None, None, 2, 0]


def test_repeats_are_bounded():
    """The failure whose line is oldest is forgotten for a new one."""
    repeats = Repeats()
    for number in range(KEYS_MAX + 1):
        assert repeats.take(number, number) == 0

    assert len(repeats._said) <= KEYS_MAX
