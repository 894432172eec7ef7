"""The shims that make disk and clock of a process go wrong: each word does what it says, and nothing when it is 0."""

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from soak.shims.preload import Shims, Word
from tests.server.build import until

pytestmark = pytest.mark.slow

HOUR_US = 3_600_000_000


@pytest.fixture
def home(tmp_path):
    """Return the folder whose files are touched."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def shims(tmp_path, home):
    """Return the shims of disk and clock, with every word at 0."""
    with Shims(tmp_path / "shims", home, "io_faults", "clock") as made:
        yield made


def run(shims, program):
    """Return what a Python program prints under the shims, which may call ``attempt``."""
    head = (
        "import os, shutil, sys, time\n"
        "def attempt(call, *arguments):\n"
        "    try:\n        call(*arguments)\n        print('ok')\n"
        "    except OSError as error:\n        print(error.errno)\n"
        "def opened(name):\n    return os.open(name, os.O_RDWR | os.O_CREAT)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + program],
        env={**os.environ, **shims.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_nothing_goes_wrong_before_a_word_is_set(shims, home):
    """With all words at 0 a process reads, writes and syncs as ever."""
    program = f"fd = opened('{home}/a')\nfor _ in range(3): attempt(os.write, fd, b'x'); attempt(os.fsync, fd)"

    assert run(shims, program) == ["ok"] * 6
    assert shims[Word.INJECTED] == 0


def test_syncs_fail_as_often_as_is_said(shims, home):
    """The next two syncs of a file of the home say EIO, the third does not; other files are not touched."""
    shims[Word.FSYNC_FAILS] = 2
    program = (
        f"fd, other = opened('{home}/a'), opened('{home}-other')\n"
        "attempt(os.fsync, other)\nfor _ in range(3): attempt(os.fdatasync, fd)"
    )

    assert run(shims, program) == ["ok", str(errno.EIO), str(errno.EIO), "ok"]
    assert shims[Word.INJECTED] == 2


def test_one_write_in_some_fails(shims, home):
    """Each third write says EIO, whichever call it is."""
    shims[Word.WRITE_ONE_IN], shims[Word.WRITE_ERRNO] = 3, errno.EIO
    program = (
        f"fd = opened('{home}/a')\nfor _ in range(3): attempt(os.write, fd, b'x'); attempt(os.pwrite, fd, b'x', 9)"
    )

    assert run(shims, program) == ["ok", "ok", str(errno.EIO)] * 2


def test_reads_fail(shims, home):
    """A read of a file of the home says EIO."""
    shims[Word.READ_ERRNO] = errno.EIO

    assert run(shims, f"fd = opened('{home}/a')\nattempt(os.read, fd, 1)") == [str(errno.EIO)]


def test_full_disk_says_so(shims, home):
    """Writes say ENOSPC, and no space is free."""
    shims[Word.FULL] = 1
    program = f"attempt(os.write, opened('{home}/a'), b'x')\nprint(shutil.disk_usage('{home}').free)"

    assert run(shims, program) == [str(errno.ENOSPC), "0"]


def test_hung_writes_return_when_the_word_is_taken_back(shims, home):
    """Writes and syncs of files of the home wait for the word to be 0, others do not."""
    shims[Word.HUNG] = 1
    program = f"fd, other = opened('{home}/a'), opened('{home}-other')\n"
    program += "attempt(os.write, other, b'x')\nattempt(os.write, fd, b'x')"
    with ThreadPoolExecutor(1) as runner:
        running = runner.submit(run, shims, program)
        until(lambda: shims[Word.INJECTED], "the write")
        is_done = running.done()
        shims[Word.HUNG] = 0

        assert (is_done, running.result()) == (False, ["ok", "ok"])


def test_syncs_are_slow_or_forgotten(shims, home):
    """A sync takes longer by what is said, and one that is forgotten says that it was done."""
    shims[Word.FSYNC_DELAY_MS], shims[Word.FSYNC_FORGOTTEN] = 50, 1
    program = (
        f"fd, began = opened('{home}/a'), time.monotonic()\n"
        "attempt(os.fsync, fd)\nprint(time.monotonic() - began > 0.05)"
    )

    assert run(shims, program) == ["ok", "True"]
    assert shims[Word.INJECTED] == 1


@pytest.mark.parametrize("step_us", [HOUR_US, -HOUR_US, -1, 999_999])
def test_clock_steps_and_the_monotonic_one_does_not(shims, step_us):
    """The time of day is off by the step; the monotonic clock is that of the machine."""
    shims[Word.CLOCK_STEP_US] = step_us
    wall, monotonic = map(float, run(shims, "print(time.time(), time.monotonic())"))

    assert wall - time.time() == pytest.approx(step_us / 1e6, abs=10)
    assert monotonic == pytest.approx(time.monotonic(), abs=10)
