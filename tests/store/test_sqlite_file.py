"""Laws of store.sqlite_file."""

import errno
import os
import sqlite3
import stat
from types import SimpleNamespace

import pytest

from waystation.core.errors import HostError, StoreFaultKind
from waystation.store.sqlite_file import (
    ROWS_PER_STATEMENT_MAX,
    Reading,
    connect,
    in_chunks,
    kind_of,
    make_private,
    refused,
)


@pytest.fixture
def path(tmp_path):
    """A file with one table of one row."""
    file = tmp_path / "file.sqlite"
    connection = connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.close()
    return file


@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 64, 127, 128, 129, 300, 1_000])
def test_chunks_are_powers_of_two_and_keep_the_order(count):
    """Eight lengths serve every number of values, the remainder takes at most seven statements."""
    chunks = list(in_chunks(range(count)))

    assert [value for chunk in chunks for value in chunk] == list(range(count))
    assert {len(chunk) for chunk in chunks} <= {1 << power for power in range(8)}
    assert len(chunks) <= count // ROWS_PER_STATEMENT_MAX + 7


def test_private_file_is_made_once(tmp_path):
    """A new file is for its owner only, one that exists keeps mode and content."""
    make_private(tmp_path / "new")
    (tmp_path / "old").write_bytes(b"x")
    (tmp_path / "old").chmod(0o644)
    make_private(tmp_path / "old")

    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o644
    assert (tmp_path / "old").read_bytes() == b"x"


def test_snapshot_shows_one_moment(path):
    """What is committed during a snapshot is seen after it."""
    writer, reader = connect(path), connect(path)
    reading = Reading(reader, path)
    with reading.snapshot() as connection:
        before = connection.execute("SELECT count(*) FROM t").fetchall()
        writer.execute("INSERT INTO t VALUES (2)")
        during = connection.execute("SELECT count(*) FROM t").fetchall()

    assert (before, during, reading.rows("SELECT count(*) FROM t")) == ([(1,)], [(1,)], [(2,)])
    reader.close()
    writer.close()


def test_refused_reads_are_sentences_and_end_the_snapshot(path):
    """A statement that fails is a HostError with the store's exit code, and the connection is free again."""
    connection = connect(path)
    reading = Reading(connection, path)

    with pytest.raises(HostError, match="cannot be read: no such table") as caught:
        reading.rows("SELECT * FROM absent")
    with pytest.raises(HostError, match="cannot be read: no such table"), reading.snapshot() as snapshot:
        snapshot.execute("SELECT * FROM absent")
    assert caught.value.exit_code == 5
    assert not connection.in_transaction
    connection.close()


class Refused(sqlite3.OperationalError):
    """An error with a code of SQLite's."""

    def __init__(self, code):
        super().__init__("what SQLite says")
        self.sqlite_errorcode = code


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Refused(sqlite3.SQLITE_BUSY), StoreFaultKind.BUSY),
        (Refused(sqlite3.SQLITE_BUSY_SNAPSHOT), StoreFaultKind.BUSY),
        (Refused(sqlite3.SQLITE_FULL), StoreFaultKind.FULL),
        (Refused(sqlite3.SQLITE_IOERR_FSYNC), StoreFaultKind.IO),
        (Refused(sqlite3.SQLITE_CANTOPEN), StoreFaultKind.IO),
        (Refused(sqlite3.SQLITE_READONLY), StoreFaultKind.READ_ONLY),
        (Refused(sqlite3.SQLITE_READONLY_DBMOVED), StoreFaultKind.GONE),
        (Refused(sqlite3.SQLITE_CORRUPT), StoreFaultKind.DAMAGED),
        (Refused(sqlite3.SQLITE_CONSTRAINT), StoreFaultKind.OTHER),
        (sqlite3.ProgrammingError("Cannot operate on a closed database."), StoreFaultKind.OTHER),
        (OSError(errno.ENOSPC, "no space"), StoreFaultKind.FULL),
        (OSError(errno.EROFS, "read-only"), StoreFaultKind.READ_ONLY),
        (OSError(errno.ENOENT, "no such file"), StoreFaultKind.GONE),
        (OSError(errno.EIO, "input/output error"), StoreFaultKind.IO),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), StoreFaultKind.DAMAGED),
    ],
    ids=str,
)
def test_every_error_has_a_kind(error, kind):
    """Codes of SQLite, extended ones too, and of the operating system are told apart."""
    assert kind_of(error) is kind


@pytest.mark.parametrize(
    ("disk", "kind", "words"),
    [
        ({"f_flag": 0, "f_bavail": 4}, StoreFaultKind.FULL, "the disk is full"),
        ({"f_flag": os.ST_RDONLY, "f_bavail": 4}, StoreFaultKind.READ_ONLY, "it may not be written"),
        ({"f_flag": 0, "f_bavail": 1 << 20}, StoreFaultKind.IO, "the disk failed"),
    ],
)
def test_what_sqlite_calls_an_io_error_is_told_in_the_words_of_the_disk(tmp_path, monkeypatch, disk, kind, words):
    """An operator has to make room, or to mount it anew: "disk I/O error" says neither."""
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_frsize=4_096, **disk))
    fault = refused(tmp_path / "store.sqlite", "cannot be opened", Refused(sqlite3.SQLITE_IOERR_SHMSIZE))

    assert fault.kind is kind
    assert words in str(fault) and fault.exit_code == 5
