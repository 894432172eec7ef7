"""Laws of server.bursts: one line per burst, and bounded whatever peers invent."""

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.server.bursts import KEYS_MAX, LINES_PER_MINUTE, QUIET_S, Bursts

QUIET = QUIET_S * MICROSECONDS_PER_SECOND


def test_burst_has_one_line():
    """Repetition extends the burst; after the quiet time the next one begins."""
    bursts = Bursts(0)

    assert [bursts.begins("a", now) for now in (0, 1, QUIET - 1, 2 * QUIET - 2, 3 * QUIET - 2)] == [
        True,
        False,
        False,
        False,
        True,
    ]


def test_each_thing_has_its_own_burst():
    """One key that comes all the time hides no other."""
    bursts = Bursts(0)

    assert [bursts.begins(key, 0) for key in ("a", "b", "a")] == [True, True, False]


def test_invented_keys_get_no_more_lines_than_the_rate():
    """A peer that shows a fresh key each time fills no disk."""
    bursts = Bursts(0)

    assert sum(bursts.begins(key, 0) for key in range(10_000)) == LINES_PER_MINUTE


def test_thing_without_a_line_gets_it_later():
    """The rate delays the line of a friend who tries again."""
    bursts = Bursts(0)
    for key in range(LINES_PER_MINUTE):
        bursts.begins(key, 0)

    assert [bursts.begins("friend", now) for now in (0, 60 * MICROSECONDS_PER_SECOND)] == [False, True]


def test_memory_is_bounded():
    """The thing that happened longest ago is forgotten."""
    bursts = Bursts(0)
    step = 2 * MICROSECONDS_PER_SECOND
    for number in range(KEYS_MAX + 1):
        assert bursts.begins(number, number * step)

    assert len(bursts._last) <= KEYS_MAX
