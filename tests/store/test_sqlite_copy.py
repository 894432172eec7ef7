"""Laws of store.sqlite_copy."""

import shutil
import sqlite3
import stat
import threading
from contextlib import closing

import pytest

from tests.store.build import kept_home, packet_row
from waystation.core.errors import HostError, StoreFault, StoreFaultKind
from waystation.core.packets import PutPacket
from waystation.core.records import Record
from waystation.store import sqlite_layout
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_copy import copy_store, renew_store
from waystation.store.sqlite_layout import check_file, look_at_file


def _quiet(_done, _total):
    """Take progress."""


def test_copy_has_what_was_committed_before(tmp_path):
    """A copy of a store in use has every commit that returned before the call, in one private file."""
    seen = []
    with closing(SqliteStore(tmp_path / "store.sqlite")) as store:
        store.commit([Record("a", b"%d" % n, bytes(900)) for n in range(2_000)])
        state = copy_store(tmp_path / "store.sqlite", tmp_path / "copy", lambda *at: seen.append(at))
        assert state == store.state()
    with closing(SqliteStore(tmp_path / "copy")) as copy:
        count = len(list(copy.scan("a", count_max=5_000)))

    assert count == 2_000
    assert seen[-1][0] == seen[-1][1] > 0
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    assert not list(tmp_path.glob("copy-*"))


def test_copy_of_a_busy_store_ends_and_is_one_moment(tmp_path):
    """While groups of eight are committed without a pause, the copy ends, and holds whole groups only."""
    path, stop = tmp_path / "store.sqlite", threading.Event()
    with closing(SqliteStore(path)) as store:
        store.commit([Record("filler", n.to_bytes(4, "big"), bytes(4_000)) for n in range(5_000)])

        def write():
            number = 0
            while not stop.is_set():
                store.commit([Record("a", bytes([key]), number.to_bytes(4, "big")) for key in range(8)])
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            copy_store(path, tmp_path / "copy", _quiet)
        finally:
            stop.set()
            writer.join()
    with closing(SqliteStore(tmp_path / "copy")) as copy:
        values = {value for _, value in copy.scan("a")}

    assert len(values) <= 1


def test_copying_leaves_a_store_at_rest_as_it_is(tmp_path):
    """No byte of the source changes, and no file appears beside it."""
    home = kept_home(2, tmp_path)
    before = (home / "store.sqlite").read_bytes(), sorted(home.iterdir())

    assert copy_store(home / "store.sqlite", tmp_path / "copy", _quiet) is None
    assert check_file(tmp_path / "copy") == 2
    assert ((home / "store.sqlite").read_bytes(), sorted(home.iterdir())) == before


def test_damaged_source_is_found(tmp_path):
    """A copy of a damaged store is no backup, and says so."""
    path = tmp_path / "store.sqlite"
    with closing(SqliteStore(path)) as store:
        store.commit([Record("a", n.to_bytes(2, "big"), bytes(100)) for n in range(500)])
    data = bytearray(path.read_bytes())
    data[-8_192:-4_096] = b"\xff" * 4_096
    path.write_bytes(data)

    with pytest.raises(HostError, match=r"damaged|malformed") as caught:
        copy_store(path, tmp_path / "copy", _quiet)
    assert caught.value.exit_code == 5


def test_source_that_is_no_store_is_refused(tmp_path):
    """A database of others is not taken for ours."""
    with closing(sqlite3.connect(tmp_path / "theirs")) as theirs:
        theirs.execute("CREATE TABLE theirs (x)")

    with pytest.raises(HostError, match="not a waystation store"):
        copy_store(tmp_path / "theirs", tmp_path / "copy", _quiet)


def test_renewed_store_is_another_one_with_the_same_content(tmp_path):
    """Id and epoch are new, packets, records and generation as they were."""
    path = tmp_path / "store.sqlite"
    with closing(SqliteStore(path)) as store:
        store.commit([PutPacket(packet_row(1)), Record("a", b"k", b"v")])
        before, epoch = store.state(), store.packets.epoch()

    state = renew_store(path)

    with closing(SqliteStore(path)) as again:
        assert again.packets.epoch() != epoch
        assert (again.get("a", b"k"), again.packets.newest_seq()) == (b"v", 1)
    assert state.store_id != before.store_id
    assert state.generation == before.generation


@pytest.mark.parametrize("layout", [1, 2])
def test_store_of_an_older_layout_can_be_renewed(tmp_path, layout):
    """What has no id yet gets one when it is brought to layout 3."""
    path = kept_home(layout, tmp_path) / "store.sqlite"

    assert renew_store(path) is None
    with closing(SqliteStore(path)) as store:
        assert look_at_file(path) == store.state()


def test_copy_of_a_store_that_begins_to_be_used_has_what_is_committed(tmp_path):
    """A node that starts on the store while it is copied writes into the file; the copy is still of one moment."""
    path, started = tmp_path / "store.sqlite", []
    with closing(SqliteStore(path)) as store:
        store.commit([Record("a", n.to_bytes(4, "big"), bytes(4_000)) for n in range(8_000)])

    def start(_done, _total):
        if not started:
            started.append(SqliteStore(path))
            started[0].commit([Record("a", n.to_bytes(4, "big"), b"\1" * 4_000) for n in range(8_000)])
            started[0].fold()

    try:
        copy_store(path, tmp_path / "copy", start)
    finally:
        started[0].close()
    with closing(SqliteStore(tmp_path / "copy")) as copy:
        found = {value[0] for _, value in copy.scan("a", count_max=9_000)}
        assert len(found) == 1
        assert not copy.damage.any


def test_log_that_another_program_locks_is_not_left_out(tmp_path, monkeypatch):
    """The file without its log would look like an older store; a lock is said to be one (kind ``BUSY``)."""
    monkeypatch.setattr(sqlite_layout, "BUSY_S", 0.01)
    path = tmp_path / "store.sqlite"
    with closing(SqliteStore(path)) as store:
        store.commit([Record("a", b"k", b"v")])
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"store.sqlite{suffix}", tmp_path / f"other.sqlite{suffix}")
    with closing(sqlite3.connect(tmp_path / "other.sqlite", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreFault) as raised:
            look_at_file(tmp_path / "other.sqlite")
        other.execute("ROLLBACK")

    assert raised.value.kind is StoreFaultKind.BUSY
