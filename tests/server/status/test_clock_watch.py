"""Laws of server.status.clock_watch: a step is noticed at once, handed on, logged once, counted, and shown."""

import itertools

import pytest
from structlog.testing import capture_logs

from waystation.core.instant import Instant
from waystation.server.status.clock_watch import LOOK_S, STEP_MS, STILL_S, TROUBLE_S, ClockWatch

SECOND = 1_000_000
HOUR = 3_600 * SECOND
WALL = 1_700_000_000 * SECOND


class Clocks:
    """Both clocks of a machine; ``shift`` is what the wall clock was set by."""

    def __init__(self):
        self.now = Instant(50 * SECOND)
        self.shift = 0
        self.stalls = iter(())

    def monotonic(self):
        return self.now

    def wall(self):
        wall_us = self.now + WALL + self.shift
        self.now = Instant(self.now + next(self.stalls, 0))
        return wall_us


class Part:
    """A part of the node that gets the time of day."""

    def set_wall(self, now, wall_us):
        self.offset = wall_us - now


def watch():
    """Return a watch, its clocks, a part that gets the time, and what was called at steps."""
    clocks, part, steps = Clocks(), Part(), []
    return ClockWatch([part], clocks.monotonic, clocks.wall, lambda: steps.append(part.offset)), clocks, part, steps


@pytest.mark.parametrize("by", [HOUR, -HOUR, 5 * 24 * HOUR, STEP_MS * 1_000])
def test_step_is_handed_on_at_the_next_look(by):
    """Every part has the new time before anybody hears of it; the line says by how much, before and after."""
    clock, clocks, part, steps = watch()
    clocks.shift += by
    with capture_logs() as lines:
        clock.look()
        clock.look()

    assert (part.offset, steps) == (WALL + by, [WALL + by])
    (line,) = lines
    assert (line["event"], line["by_s"], line["shift_s"]) == ("clock.stepped", by / SECOND, by / SECOND)
    assert line["before"] == "2023-11-14T22:14:10.000+00:00"
    assert clock.view() == (1, by / SECOND)


def test_step_is_noticed_when_the_time_is_asked_for():
    """Datagrams are judged by the clock as it is now, not by that of the last look."""
    clock, clocks, part, _ = watch()
    clocks.shift += HOUR

    assert clock.wall_us(clocks.now) == clocks.now + WALL + HOUR
    assert part.offset == WALL + HOUR
    assert clock.view().steps == 1


def test_slow_correction_is_followed_without_a_word():
    """A time service moves the clock by half a millisecond a second: parts follow, nothing is logged."""
    clock, clocks, part, _ = watch()
    with capture_logs() as lines:
        for _ in range(3_600):
            clocks.now += SECOND
            clocks.shift += 500
            clock.look()

    assert part.offset == WALL + 3_600 * 500
    assert (lines, clock.view().steps) == ([], 0)


def test_long_turn_is_no_step():
    """The time of a turn may be old when its datagrams are judged, as after a minute of SIGSTOP."""
    clock, clocks, _, steps = watch()
    began, clocks.now = clocks.now, Instant(clocks.now + 60 * SECOND)

    assert clock.wall_us(began) == clocks.now + WALL
    assert steps == []


def test_process_that_stood_still_says_for_how_long():
    """A stop of two seconds or more is one line; a busy moment is none, and neither is a step of the clock."""
    clock, clocks, _, _ = watch()
    with capture_logs() as lines:
        for still_s in (0, STILL_S - 0.1, STILL_S, 60):
            began, clocks.now = clocks.now, Instant(clocks.now + int((LOOK_S + still_s) * SECOND))
            clocks.shift += HOUR
            clock.note_stop(began)

    assert [(line["event"], line["seconds"]) for line in lines] == [("node.stood_still", each) for each in (2, 60)]


def test_process_that_is_stopped_between_two_readings_sees_no_step():
    """Readings that are far apart are read again."""
    clock, clocks, _, steps = watch()
    clocks.stalls = iter([60 * SECOND])
    clock.look()

    assert (steps, clock.view().steps) == ([], 0)


def test_clock_that_always_stalls_is_taken_as_it_is():
    """The look ends on a machine that is never fast enough."""
    clock, clocks, part, _ = watch()
    clocks.stalls = itertools.repeat(SECOND // 10)
    clock.look()

    assert part.offset == WALL


def test_trouble_lasts_as_long_as_the_shift():
    """A clock that was set is trouble until it is back."""
    clock, clocks, _, _ = watch()
    found = []
    for shift in (0, (TROUBLE_S - 1) * SECOND, HOUR, -HOUR, 0):
        clocks.shift = shift
        clock.look()
        found.append(clock.trouble())

    assert [bool(each) for each in found] == [False, False, True, True, False]
    assert "3600 s ahead of" in found[2][0] and "3600 s behind" in found[3][0]


def test_clock_beyond_any_date_is_shown_as_seconds():
    """A clock may say anything; the log line still comes."""
    clock, clocks, _, _ = watch()
    clocks.shift = 10**18
    with capture_logs() as lines:
        clock.look()

    assert lines[0]["after"].endswith(" s")
