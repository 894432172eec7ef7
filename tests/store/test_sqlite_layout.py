"""Laws of store.sqlite_layout: versions of the file, and homes that builds of older versions left behind."""

import shutil
import sqlite3
import threading
from contextlib import closing

import pytest

from tests.store.build import kept_home
from waystation.core.errors import HostError
from waystation.core.packets import PacketQuery
from waystation.core.records import STORE_ID_BYTES, Record
from waystation.store import sqlite_layout
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_layout import SCHEMA_VERSION, check_file, look_at_file


def _tables(path):
    """Return the columns of each table of a file, and the names of its indexes."""
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT type, name FROM sqlite_master ORDER BY name").fetchall()
        columns = {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for kind, name in names}
        return names, columns, connection.execute("PRAGMA user_version").fetchone()


@pytest.mark.parametrize(("layout", "packets_count"), [(1, 0), (2, 6), (3, 6)])
def test_home_of_an_older_build_keeps_everything(tmp_path, layout, packets_count):
    """The store that an older build left is brought to this layout; bans and packets are as they were."""
    path = kept_home(layout, tmp_path) / "store.sqlite"
    assert check_file(path) == layout
    with closing(SqliteStore(path)) as store:
        bans = [key for key, _ in store.scan("bans")]
        rows = store.packets.page(PacketQuery()).rows
        state = store.state()

    assert bans == [b"address:192.0.2.9"]
    assert len(rows) == packets_count
    assert len(state.store_id) == STORE_ID_BYTES
    assert check_file(path) == SCHEMA_VERSION


@pytest.mark.parametrize("layout", [1, 2, 3])
def test_upgraded_file_is_as_a_new_one(tmp_path, layout):
    """A file that came from an older layout has the tables, columns and indexes of one that was made today."""
    old, new = kept_home(layout, tmp_path) / "store.sqlite", tmp_path / "new.sqlite"
    SqliteStore(old).close()
    SqliteStore(new).close()

    assert _tables(old) == _tables(new)


@pytest.mark.parametrize("layout", [1, 2, 3])
def test_upgrade_that_is_cut_short_leaves_the_old_layout(tmp_path, layout, monkeypatch):
    """When a statement of an upgrade fails, the file is of the old layout and whole, and the next try succeeds."""
    path = kept_home(layout, tmp_path) / "store.sqlite"
    with monkeypatch.context() as patched:
        patched.setitem(sqlite_layout._STEPS, 4, ("CREATE TABLE more (x)", "INSERT INTO nowhere VALUES (1)"))
        with pytest.raises(HostError, match="cannot be opened: no such table: nowhere"):
            SqliteStore(path)
    cut = check_file(path)
    SqliteStore(path).close()

    assert (cut, check_file(path)) == (layout, SCHEMA_VERSION)


def test_two_openings_of_an_old_file_upgrade_it_once(tmp_path):
    """Several that open an old file at the same moment all succeed."""
    path = kept_home(2, tmp_path) / "store.sqlite"
    start = threading.Barrier(4)
    ids = []

    def open_it():
        start.wait()
        with closing(SqliteStore(path)) as store:
            ids.append(store.state().store_id)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(ids) == 4
    assert len(set(ids)) == 1


def test_new_file_is_a_store_by_itself(tmp_path):
    """The file of a store that is in use has its tables without the log beside it, as soon as it is made."""
    path, copy = tmp_path / "store.sqlite", tmp_path / "copy.sqlite"
    with closing(SqliteStore(path)) as store:
        shutil.copyfile(path, copy)
        expected = store.state()

    assert look_at_file(copy) == expected


def test_looking_writes_nothing(tmp_path):
    """Who a store is is read beside a node that uses it and from a file at rest; no file appears or changes."""
    path = tmp_path / "store.sqlite"
    with closing(SqliteStore(path)) as store:
        store.commit([Record("a", b"k", b"v")])
        assert look_at_file(path) == store.state()
    before = path.read_bytes()

    assert look_at_file(path).generation == 1
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["store.sqlite"]


def test_older_layout_and_empty_file_have_no_state(tmp_path):
    """What has no id yet is None, not an error."""
    (tmp_path / "empty").write_bytes(b"")

    assert look_at_file(tmp_path / "empty") is None
    assert look_at_file(kept_home(2, tmp_path) / "store.sqlite") is None


def test_newer_layout_is_refused(tmp_path):
    """A store of a later version is left alone, whoever asks."""
    path = tmp_path / "store.sqlite"
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    for ask in (SqliteStore, check_file, look_at_file):
        with pytest.raises(HostError, match="written by a newer waystation") as caught:
            ask(path)
        assert caught.value.exit_code == 5


def test_foreign_database_is_refused_and_left_alone(tmp_path):
    """Somebody else's database gets no table of ours."""
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    for ask in (SqliteStore, check_file, look_at_file):
        with pytest.raises(HostError, match="not a waystation store"):
            ask(path)
    assert path.read_bytes() == before


def test_file_that_is_no_database_is_refused(tmp_path):
    """Junk in the place of the store is named as such."""
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"junk" * 1_000)
    for ask in (SqliteStore, check_file, look_at_file):
        with pytest.raises(HostError, match="not a database") as caught:
            ask(path)
        assert caught.value.exit_code == 5
