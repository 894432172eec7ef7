"""A power cut that is simulated: what was synced is there, and of what was not some blocks at most."""

import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from soak.shims.power_cut import BLOCK_BYTES, cut_power
from soak.shims.preload import Shims, Word

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path):
    """Return a folder with a file from before."""
    path = tmp_path / "home"
    path.mkdir()
    (path / "old").write_bytes(b"before")
    return path


@pytest.fixture
def shims(tmp_path, home):
    """Return the shims that a cut needs."""
    with Shims(tmp_path / "shims", home, "io_faults", "power_cut") as made:
        yield made


def run(shims, home, program):
    """Run a Python program that finds the home in ``home`` and may call ``opened``."""
    head = f"import os, sqlite3\nhome = '{home}/'\n"
    head += "def opened(name, *flags):\n    return os.open(home + name, os.O_RDWR | sum(flags))\n"
    environment = {**os.environ, **shims.environment}
    subprocess.run([sys.executable, "-c", head + program], env=environment, check=True)


def cut(shims, home, share=0.0):
    """Cut the power."""
    return cut_power(home, shims.synced, random.Random(1), share)


def test_synced_bytes_are_kept_and_others_lost(shims, home):
    """Of two writes the one before the sync is there after a cut; so is the file of before that was written over."""
    run(
        shims,
        home,
        "fd = opened('new', os.O_CREAT)\nos.write(fd, b'kept')\nos.fsync(fd)\nos.write(fd, b'lost')\n"
        "os.pwrite(opened('old'), b'AFTER', 0)",
    )

    assert cut(shims, home) == 2
    assert (home / "new").read_bytes() == b"kept"
    assert (home / "old").read_bytes() == b"before"
    assert list(shims.synced.iterdir()) == []


@pytest.mark.parametrize(
    ("act", "kept"),
    [
        ("os.ftruncate(opened('old'), 2)", b"before"),
        ("os.close(opened('old', os.O_TRUNC))", b"before"),
        ("fd = opened('old')\nos.ftruncate(fd, 2)\nos.fsync(fd)\nos.pwrite(fd, b'x', 4)\nos.fsync(fd)", b"be\0\0x"),
        ("os.unlink(home + 'old')\nos.write(opened('old', os.O_CREAT), b'x')", b""),
        (
            "fd = opened('t', os.O_CREAT)\nos.write(fd, b'new')\nos.fsync(fd)\nos.rename(home + 't', home + 'old')",
            b"new",
        ),
        ("os.write(opened('old', os.O_APPEND), b'!')", b"before"),
        ("fd = opened('old', os.O_APPEND)\nos.write(fd, b'!')\nos.fdatasync(fd)", b"before!"),
    ],
    ids=["truncate", "open", "gap", "unlink", "rename", "append", "append-synced"],
)
def test_every_way_of_changing_a_file_is_seen(shims, home, act, kept):
    """Whatever changes a file needs a sync before it is on the disk; names count as kept."""
    run(shims, home, act)
    cut(shims, home)

    assert (home / "old").read_bytes() == kept


def test_some_blocks_may_survive(shims, home):
    """With a share, blocks that were not synced survive in any order, whole."""
    size = 64 * BLOCK_BYTES
    run(
        shims,
        home,
        f"fd = opened('a', os.O_CREAT)\nos.write(fd, bytes({size}))\nos.fsync(fd)\nos.pwrite(fd, b'x' * {size}, 0)",
    )
    cut(shims, home, share=0.5)
    data = (home / "a").read_bytes()
    blocks = {data[at : at + BLOCK_BYTES] for at in range(0, size, BLOCK_BYTES)}

    assert len(data) == size
    assert blocks == {bytes(BLOCK_BYTES), b"x" * BLOCK_BYTES}


LOCKED = """
import fcntl, subprocess, sys
fd = opened('db', os.O_CREAT)
os.write(fd, b'x')
fcntl.lockf(fd, fcntl.LOCK_EX)
os.pwrite(fd, b'y', 0)
os.fsync(fd)
other = "import fcntl, os; fcntl.lockf(os.open('" + home + "db', os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)"
assert b'BlockingIOError' in subprocess.run([sys.executable, '-c', other], capture_output=True).stderr
"""


def test_locks_of_the_process_stay(shims, home):
    """A file that is locked stays locked when it is written to and synced."""
    run(shims, home, LOCKED)

    assert (home / "db").read_bytes() == b"y"


COMMITS = """
store = sqlite3.connect(home + 'db', isolation_level=None)
store.execute('PRAGMA journal_mode = WAL')
store.execute('PRAGMA synchronous = {synchronous}')
store.execute('CREATE TABLE t (a)')
for number in range(20):
    store.execute('INSERT INTO t VALUES (?)', (number,))
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("synchronous", "forgotten", "kept"), [("FULL", 0, 20), ("OFF", 0, None), ("FULL", 1, None)])
def test_sqlite_keeps_commits_only_with_its_syncs(shims, home, synchronous, forgotten, kept):
    """Commits of a store that syncs are all there; without syncs, or when these are forgotten, they are gone."""
    shims[Word.FSYNC_FORGOTTEN] = forgotten
    with pytest.raises(subprocess.CalledProcessError):
        run(shims, home, COMMITS.format(synchronous=synchronous))
    cut(shims, home)

    assert count(home / "db") == kept


def count(path):
    """Return how many rows a database has; None when it has no table."""
    with closing(sqlite3.connect(path)) as store:
        try:
            return store.execute("SELECT count(*) FROM t").fetchone()[0]
        except sqlite3.OperationalError:
            return None
