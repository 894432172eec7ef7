"""One SQLite file in WAL mode with synchronous=FULL: what ``commit`` has returned for survives a power cut.

Two connections: one that only ``commit`` uses, so that it may run on a thread of its own, and one that only reads, on
the event loop's thread. In WAL mode neither waits for the other. What a commit costs is mostly the disk's sync, so the
caller forms groups.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError
from waystation.core.records import Record

__all__ = ["SCHEMA_VERSION", "SqliteStore"]

SCHEMA_VERSION: Final = 1
"""Version of the layout, kept in the file's ``user_version``."""

_APPLICATION_ID: Final = 0x57415953  # "WAYS", so that file(1) and we can tell the file from any other database
_BUSY_MS: Final = 5_000  # a command line may commit to the same file; its group takes milliseconds
_STORE_EXIT_CODE: Final = 5

# With row ids, because random keys over 900-byte values then commit 2.3 times as fast (35 000 rows a second against
# 15 500 in groups of a hundred, measured): values are appended, and only the small index is written all over the place.
_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS records"
    " (tbl TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tbl, key))"
)
_PUT: Final = "INSERT INTO records VALUES (?, ?, ?) ON CONFLICT (tbl, key) DO UPDATE SET value = excluded.value"
_REMOVE: Final = "DELETE FROM records WHERE tbl = ? AND key = ?"
_GET: Final = "SELECT value FROM records WHERE tbl = ? AND key = ?"
_SCAN: Final = "SELECT key, value FROM records WHERE tbl = ? AND key >= ? ORDER BY key LIMIT ?"


class SqliteStore:
    """Implements ``core.records.Store`` in the file ``path``, made if absent, then for its owner only (mode 0600).

    Safe for one thread that commits and one that reads.

    Raises:
        HostError: The file cannot be opened, is damaged, foreign, or of a newer version (exit code 5).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            _make_private(path)
            self._writer = _connect(path)
        except (sqlite3.Error, OSError) as error:
            raise _refused(path, "cannot be opened", error) from error
        try:
            _prepare(self._writer, path)
            self._reader = _connect(path)
            self._reader.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            self._writer.close()
            raise _refused(path, "cannot be opened", error) from error
        except HostError:
            self._writer.close()
            raise

    def commit(self, records: Sequence[Record]) -> None:
        """Write all records in one transaction; on return they are on the disk.

        Raises:
            HostError: The disk refused; nothing of the group was kept.
        """
        last = {(record.table, record.key): record.value for record in records}
        puts = [(*place, value) for place, value in last.items() if value is not None]
        removals = [place for place, value in last.items() if value is None]
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.executemany(_PUT, puts)
            self._writer.executemany(_REMOVE, removals)
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise _refused(self._path, "did not take a write", error) from error

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value kept for ``key``, or None.

        Raises:
            HostError: The disk refused to be read.
        """
        rows = self._read(_GET, (table, key))
        return rows[0][0] if rows else None

    def scan(self, table: str, start: bytes = b"", count_max: int = 1_000) -> Iterator[tuple[bytes, bytes]]:
        """Yield at most ``count_max`` pairs in key order, as they stood at the call, from ``start`` on.

        Raises:
            HostError: The disk refused to be read.
        """
        return iter(self._read(_SCAN, (table, start, count_max)))

    def close(self) -> None:
        """Fold the write-ahead log into the file and release both connections."""
        self._reader.close()
        self._writer.close()

    def _read(self, statement: str, arguments: tuple[object, ...]) -> list[Any]:
        # All rows at once: an open cursor would pin a snapshot and keep the write-ahead log from being folded in.
        try:
            return self._reader.execute(statement, arguments).fetchall()
        except sqlite3.Error as error:
            raise _refused(self._path, "cannot be read", error) from error

    def _roll_back(self) -> None:
        # SQLite has rolled back by itself after some errors, such as a full disk.
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")


def _make_private(path: Path) -> None:
    # SQLite gives its log and index files the mode of the database. A file that exists is not even opened: to close it
    # would drop the locks that another connection of this process holds on it.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _connect(path: Path) -> sqlite3.Connection:
    # Made on one thread and used on another, but never on two at once.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != _APPLICATION_ID:
        raise HostError(f"{path} is a database, but not a waystation store", exit_code=_STORE_EXIT_CODE)
    if version > SCHEMA_VERSION:
        raise HostError(
            f"the store {path} was written by a newer waystation (layout {version}, this one knows {SCHEMA_VERSION})",
            exit_code=_STORE_EXIT_CODE,
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise HostError(f"the store {path} is damaged: {verdict}", exit_code=_STORE_EXIT_CODE)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if not tables:
        _create(connection)


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_CREATE)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _refused(path: Path, what: str, error: sqlite3.Error | OSError) -> HostError:
    why = error.strerror if isinstance(error, OSError) else error
    return HostError(f"the store {path} {what}: {why}", exit_code=_STORE_EXIT_CODE)
