"""Laws of protocols.lprp.client_clock."""

import itertools
import random

from waystation.protocols.lprp.client.clock import PacketClock
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS

NOW = 1_760_000_000_000


def test_time_is_the_wall_clock():
    """The first packet carries the time it is."""
    assert PacketClock().next(NOW) == NOW


def test_two_packets_of_one_moment_differ():
    """Within one millisecond the clock counts on by one."""
    clock = PacketClock()

    assert [clock.next(NOW) for _ in range(3)] == [NOW, NOW + 1, NOW + 2]
    assert clock.next(NOW + 10) == NOW + 10


def test_clock_set_back_goes_on_counting():
    """A wall clock that steps back does not take the packets along."""
    clock = PacketClock()
    clock.next(NOW)

    assert clock.next(NOW - 60_000) == NOW + 1


def test_mark_of_an_earlier_start_is_passed():
    """What was kept on disk is lower than whatever comes next."""
    clock = PacketClock(last_ms=NOW + 500)

    assert clock.next(NOW) == NOW + 501
    assert clock.last_ms == NOW + 501


def test_last_time_that_a_host_forgives_is_counted_on_from():
    """One millisecond within the window: the next packet is still taken."""
    assert PacketClock(NOW + CLOCK_WINDOW_MS - 1).next(NOW) == NOW + CLOCK_WINDOW_MS


def test_time_that_no_host_forgives_is_given_up():
    """A last time from a clock that was far wrong would lock the key out; then the wall clock counts."""
    clock = PacketClock(NOW + CLOCK_WINDOW_MS)

    assert [clock.next(NOW), clock.next(NOW)] == [NOW, NOW + 1]


def test_any_clock_near_the_truth_gives_rising_times():
    """Whatever the wall clock does within the window, each time is higher than the last."""
    rng, clock = random.Random(5), PacketClock()
    times = [clock.next(NOW + rng.randrange(CLOCK_WINDOW_MS // 2)) for _ in range(2_000)]

    assert all(later > earlier for earlier, later in itertools.pairwise(times))
