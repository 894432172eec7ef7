"""Laws of store.sqlite_content: a store that was written over is noticed, honest work is not taken for that."""

import os
import sqlite3
from contextlib import closing

import pytest

from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.records import Record
from waystation.store import sqlite_content
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_layout import log_path


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(sqlite_content, "LOOK_S", 0.0)


def put(store, number):
    """Commit one record."""
    store.commit((Record("t", b"%d" % number, b"value"),))


def folded(path):
    """Return an open store whose file has what it was given first, and the bytes of that file before that."""
    store = SqliteStore(path)
    early = path.read_bytes()
    put(store, 1)
    store.fold()
    return store, early


def overwrite(path, data):
    """Put other bytes into a file without moving it."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def other_store(path):
    """Return the bytes of a store with another name and more commits."""
    with closing(SqliteStore(path)) as other:
        for number in range(9):
            put(other, number)
    return path.read_bytes()


@pytest.mark.parametrize("what", ["an older copy", "another store", "no store", "nothing"])
def test_written_over_is_never_acknowledged_into(tmp_path, what):
    """The first write after it is refused, so is every later one, and closing leaves the file and its log alone."""
    path = tmp_path / "store.sqlite"
    store, early = folded(path)
    put(store, 2)
    others = {"an older copy": early, "no store": b"x" * 9_000, "nothing": b""}
    data = others[what] if what in others else other_store(tmp_path / "other.sqlite")
    overwrite(path, data)
    log = log_path(path).read_bytes()
    kinds = []
    for call in (lambda: put(store, 3), store.fold, lambda: put(store, 4)):
        with pytest.raises(StoreFault, match="written over") as refused:
            call()
        kinds.append(refused.value.kind)
    store.close()
    left = path.read_bytes(), log_path(path).read_bytes()
    store._writer.close()  # a node's process ends without this
    store._reader.close()

    assert kinds == [StoreFaultKind.OVERWRITTEN] * 3
    assert left == (data, log)


def test_another_program_that_writes_in_order_is_no_fault(tmp_path):
    """A program that commits, folds the log in, or makes the file anew in SQLite's own way disturbs nobody."""
    path = tmp_path / "store.sqlite"
    store, _ = folded(path)
    with closing(store), closing(sqlite3.connect(path, isolation_level=None)) as other:
        for statement in ("DELETE FROM records", "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"):
            other.execute(statement).fetchall()
            put(store, 2)
            store.fold()

        assert store.get("t", b"2") == b"value"


@pytest.mark.parametrize("part", [0.01, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("first", [True, False])
def test_fold_that_the_disk_ended_in_its_middle_is_no_fault(tmp_path, part, first):
    """Whatever part of the pages is in the file: with the log nothing is lost, and the store goes on (NODE-GONE)."""
    path, whole = tmp_path / "store.sqlite", tmp_path / "whole.sqlite"
    store, _ = folded(path)
    with closing(store):
        for number in range(2, 400):
            put(store, number)
        whole.write_bytes(path.read_bytes())
        log_path(whole).write_bytes(log_path(path).read_bytes())
        with closing(sqlite3.connect(whole)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        new, old = whole.read_bytes(), path.read_bytes()
        cut = max(1, int(part * len(new) / 4_096)) * 4_096
        overwrite(path, new[:cut] + old[cut:] if first else old[:cut] + new[cut:])
        put(store, 400)
        store.fold()
        values = [store.get("t", b"%d" % number) for number in range(1, 401)]

    assert len(new) > 4 * 4_096
    assert values == [b"value"] * 400


def test_same_bytes_again_are_no_fault(tmp_path):
    """A file that is touched, or written over with what it has, is the same store."""
    path = tmp_path / "store.sqlite"
    store, _ = folded(path)
    with closing(store):
        os.utime(path, (1, 1))
        put(store, 2)
        overwrite(path, path.read_bytes())
        put(store, 3)

        assert store.get("t", b"3") == b"value"
