"""Laws of store.sqlite."""

import os
import shutil
import sqlite3
import stat
import threading
from contextlib import closing

import pytest

from waystation.core.errors import HostError, StoreFault, StoreFaultKind
from waystation.core.records import Record
from waystation.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path):
    """Where the file goes."""
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path):
    """A fresh store, closed after the test."""
    opened = SqliteStore(path)
    yield opened
    opened.close()


def _change(path, statement):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


def test_committed_records_are_there_after_reopening(path):
    """What was committed outlives the process's objects."""
    first = SqliteStore(path)
    first.commit([Record("a", b"k", b"v"), Record("b", b"k", b"w")])
    first.close()
    second = SqliteStore(path)

    assert (second.get("a", b"k"), second.get("b", b"k")) == (b"v", b"w")
    second.close()


def test_committed_records_are_there_when_nobody_closed(path, store):
    """Another process sees a group as soon as ``commit`` returned."""
    store.commit([Record("a", b"k", b"v")])
    other = SqliteStore(path)

    assert other.get("a", b"k") == b"v"
    other.close()


def test_writer_uses_wal_and_syncs_every_commit(store):
    """The two settings that durability rests on."""
    assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)


def test_reader_cannot_write(store):
    """The loop's connection is for reading only."""
    with pytest.raises(sqlite3.OperationalError):
        store._reader.execute("DELETE FROM records")


def test_group_is_written_whole_or_not_at_all(path, store):
    """A record that the disk refuses takes its whole group with it, and the next group is taken again."""
    _change(
        path, "CREATE TRIGGER no BEFORE INSERT ON records WHEN new.key = x'62' BEGIN SELECT RAISE(ABORT, 'full'); END"
    )

    with pytest.raises(HostError, match="did not take a write: full") as caught:
        store.commit([Record("a", b"a", b"1"), Record("a", b"b", b"2")])
    assert caught.value.exit_code == 5
    assert store.get("a", b"a") is None
    store.commit([Record("a", b"c", b"3")])
    assert store.get("a", b"c") == b"3"


def test_full_disk_refuses_the_group_and_keeps_the_store_usable(store):
    """When the file may not grow, the group is refused in a plain sentence and earlier records stay readable."""
    store.commit([Record("a", b"k", b"v")])
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(HostError, match="full") as caught:
        store.commit([Record("a", b"big", bytes(1_000_000))])
    assert caught.value.exit_code == 5
    assert store.get("a", b"k") == b"v"


def test_unreadable_disk_is_a_sentence(path, store):
    """A read that the disk refuses is a HostError too."""
    _change(path, "DROP TABLE records")

    with pytest.raises(HostError, match="cannot be read") as caught:
        store.get("a", b"k")
    assert caught.value.exit_code == 5


def test_later_record_of_a_group_wins(store):
    """Records of one group are written in order."""
    store.commit([Record("a", b"k", b"1"), Record("a", b"k", None), Record("a", b"k", b"2"), Record("a", b"l", b"3")])
    store.commit([Record("a", b"l", b"4"), Record("a", b"l", None)])

    assert list(store.scan("a")) == [(b"k", b"2")]


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 300])
def test_many_values_are_those_of_single_reads(store, count):
    """In statements of any length; keys of other tables and keys that nobody keeps are left out."""
    keys = [b"k%d" % number for number in range(count)]
    store.commit([Record("things", key, key * 2) for key in keys] + [Record("others", b"strange", b"x")])

    found = store.get_many("things", [b"strange", *keys, b"unknown"])

    assert found == {key: store.get("things", key) for key in keys}


def test_one_thread_commits_while_another_reads(store):
    """A reader sees whole groups only, whatever the writer does meanwhile."""
    torn = []

    def write():
        for n in range(30):
            store.commit([Record("a", bytes([key]), bytes([n])) for key in range(8)])

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        values = {value for _, value in store.scan("a")}
        torn += [values] if len(values) > 1 else []
    writer.join()

    assert torn == []
    assert [value for _, value in store.scan("a")] == [bytes([29])] * 8


def test_each_commit_is_one_generation(path, store):
    """The generation counts what was committed, also a group without changes, and goes on after reopening."""
    before = store.state()
    store.commit([Record("a", b"k", b"v"), Record("a", b"l", b"v")])
    store.commit([])
    after = store.state()
    store.close()
    with closing(SqliteStore(path)) as again:
        assert again.state() == after

    assert after == (before.store_id, before.generation + 2)


def test_refused_group_is_no_generation(path, store):
    """What was not kept does not count."""
    _change(path, "CREATE TRIGGER no BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'full'); END")
    before = store.state()

    with pytest.raises(HostError):
        store.commit([Record("a", b"a", b"1")])
    assert store.state() == before


def test_folding_makes_the_file_young_but_never_as_young_as_it_says(path, store, tmp_path):
    """A copy of the file alone has what was committed before; its generation is below the one ``fold`` returned."""
    copy = tmp_path / "copy.sqlite"
    store.commit([Record("a", b"k", b"v")])
    reached = store.fold()
    shutil.copyfile(path, copy)
    with closing(SqliteStore(copy)) as alone:
        kept, found = alone.get("a", b"k"), alone.state()

    assert kept == b"v"
    assert found.store_id == reached.store_id
    assert found.generation < reached.generation == store.state().generation


def test_folding_twice_writes_once(path, store):
    """An idle node's disk sleeps."""
    store.commit([Record("a", b"k", b"v")])
    first = store.fold()
    log = path.with_name("store.sqlite-wal").read_bytes()

    assert store.fold() == first
    assert path.with_name("store.sqlite-wal").read_bytes() == log


def test_folding_waits_for_no_reader(path, store):
    """A reader in the middle of its page sees its moment to the end, and folding goes on without it."""
    store.commit([Record("a", b"k", b"v")])
    with store._reading.snapshot() as connection:
        before = connection.execute("SELECT count(*) FROM records").fetchone()
        store.commit([Record("a", b"l", b"v")])
        store.fold()
        after = connection.execute("SELECT count(*) FROM records").fetchone()

    assert before == after == (1,)
    assert store.get("a", b"l") == b"v"


def test_unfinished_scan_does_not_pin_the_log(store):
    """A scan that nobody reads to its end leaves the write-ahead log free to be folded in."""
    store.commit([Record("a", bytes([n]), b"v") for n in range(4)])
    scan = store.scan("a")
    next(scan)
    store.commit([Record("a", b"z", b"v")])
    busy, _, _ = store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    assert busy == 0
    assert len(list(scan)) == 3


def test_damaged_file_is_refused(path):
    """A page that was overwritten is found when the store is opened."""
    store = SqliteStore(path)
    store.commit([Record("a", n.to_bytes(2, "big"), bytes(100)) for n in range(500)])
    store.close()
    data = bytearray(path.read_bytes())
    data[8192:12288] = b"\xff" * 4096
    path.write_bytes(data)

    with pytest.raises(HostError, match=r"damaged|malformed") as caught:
        SqliteStore(path)
    assert caught.value.exit_code == 5


def test_missing_folder_is_refused(tmp_path):
    """A path that cannot be is a plain sentence, not a traceback."""
    with pytest.raises(HostError, match="cannot be opened"):
        SqliteStore(tmp_path / "nowhere" / "store.sqlite")


def test_two_processes_may_make_the_store_at_once(path, store):
    """Opening a store that has just been made by somebody else is no error."""
    second = SqliteStore(path)
    second.commit([Record("a", b"k", b"v")])

    assert store.get("a", b"k") == b"v"
    second.close()


def test_files_are_for_the_owner_only(path):
    """A store that is made has mode 0600 from its first byte on, its log and index too, whatever the umask."""
    before = os.umask(0)
    store = SqliteStore(path)
    store.commit([Record("a", b"k", b"v")])
    os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    store.close()

    assert modes == {"store.sqlite": 0o600, "store.sqlite-wal": 0o600, "store.sqlite-shm": 0o600}


def put(key):
    return [Record("t", key, b"v")]


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced", "folder moved", "log deleted", "log replaced"])
def test_file_that_is_not_at_its_path_takes_nothing(path, store, how):
    """What would be acknowledged could not be found after a restart (NODE-GONE); nothing of the group is written."""
    store.commit(put(b"before"))
    place = path.with_name(path.name + "-wal") if how.startswith("log") else path
    if how == "folder moved":
        path.parent.rename(path.parent.with_name("away"))
    elif how in ("moved", "replaced", "log replaced"):
        place.rename(place.with_name("away"))
    else:
        place.unlink()
    if "replaced" in how:
        place.write_bytes(b"")
    with pytest.raises(StoreFault, match="was deleted, moved or replaced") as caught:
        store.commit(put(b"after"))

    assert caught.value.kind is StoreFaultKind.GONE
    assert store.get("t", b"after") is None and store.get("t", b"before") == b"v"
    if how == "folder moved":
        path.parent.with_name("away").rename(path.parent)


def test_file_that_is_back_at_its_path_takes_writes_again(path, store):
    """A folder that was moved by mistake and back is the same store."""
    store.commit(put(b"before"))
    path.parent.rename(path.parent.with_name("away"))
    with pytest.raises(StoreFault):
        store.commit(put(b"meanwhile"))
    path.parent.with_name("away").rename(path.parent)
    store.commit(put(b"after"))

    assert [key for key, _ in store.scan("t")] == [b"after", b"before"]


def test_group_under_which_the_file_was_moved_is_not_acknowledged(path, store, monkeypatch):
    """The place is looked at behind the COMMIT as well."""
    store.commit(put(b"before"))
    transact = store._transact
    monkeypatch.setattr(store, "_transact", lambda *changes: (transact(*changes), path.rename(path.with_name("away"))))

    with pytest.raises(StoreFault) as caught:
        store.commit(put(b"after"))
    assert caught.value.kind is StoreFaultKind.GONE


def test_log_of_another_file_is_refused_and_kept(tmp_path):
    """A refusal folds nothing in: with the file that the log belongs to, everything is there again."""
    path, log = tmp_path / "store.sqlite", tmp_path / "store.sqlite-wal"
    with closing(SqliteStore(path)) as store:
        store.commit([Record("things", b"%d" % number, bytes(900)) for number in range(400)])
        store.fold()
        store.commit([Record("things", b"%d" % number, bytes(900)) for number in range(400, 420)])
        right, kept = path.read_bytes(), log.read_bytes()
    path.write_bytes(right[:8192] + bytes(len(right) - 8192))
    log.write_bytes(kept)

    with pytest.raises(HostError, match="damaged"):
        SqliteStore(path)

    assert log.read_bytes() == kept
    path.write_bytes(right)
    with closing(SqliteStore(path)) as store:
        assert len(list(store.scan("things"))) == 420
