"""Laws of server.status.wall_clock: a clock that cannot be right is known without asking another machine."""

import datetime
import os

from waystation.server.home import Home
from waystation.server.status.wall_clock import AHEAD_S_MAX, clock_trouble, is_kept


def at(seconds):
    """Return an aware time."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def test_clock_that_was_set_back_is_noticed(tmp_path):
    """A file of the home from the future shows it; five minutes are allowed."""
    home, now = Home(tmp_path), datetime.datetime.now(datetime.UTC).timestamp()
    home.store_path.write_bytes(b"")
    os.utime(home.store_path, (now + AHEAD_S_MAX - 1, now + AHEAD_S_MAX - 1))
    sound = clock_trouble(home, at(now))
    os.utime(home.store_path, (now + 86_400, now + 86_400))

    assert sound == []
    assert "but a file of the home is from" in clock_trouble(home, at(now))[0]


def test_clock_before_the_software_is_wrong(tmp_path):
    """A board without a battery begins in 1970."""
    assert "but this software is from" in clock_trouble(Home(tmp_path), at(0))[0]


def test_kernel_is_asked_whether_a_service_keeps_the_clock():
    """It says yes or no, or cannot be asked."""
    assert is_kept() in (True, False, None)
