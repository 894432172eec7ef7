"""Store in one SQLite file (WAL mode, synchronous=FULL): a record survives a power cut once ``commit`` has returned.

It uses two connections. ``commit`` has one and may run on its own thread; reads use the other on the event loop's
thread. In WAL mode neither blocks the other. Most of the cost of a commit is the disk sync, so callers group changes.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError
from waystation.core.packets import PacketChange
from waystation.core.records import Change, Record
from waystation.store.sqlite_file import STORE_EXIT_CODE, Reading, connect, in_chunks, make_private, refused
from waystation.store.sqlite_packets import PACKETS_SCHEMA, SqlitePacketReader, SqlitePacketWriter

__all__ = ["SCHEMA_VERSION", "SqliteStore", "check_file"]

SCHEMA_VERSION: Final = 2
"""Version of the layout, kept in the file's ``user_version``. 1: records. 2: packets beside them."""

_APPLICATION_ID: Final = 0x57415953  # "WAYS", so that file(1) and this module recognise the file

# With row ids, because random keys over 900-byte values then commit 2.3 times as fast (35 000 rows a second against
# 15 500 in groups of a hundred, measured): values are appended, and only the small index is written at random.
_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS records"
    " (tbl TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tbl, key))"
)
_PUT: Final = "INSERT INTO records VALUES "
_PUT_ROW: Final = "(?, ?, ?)"
_PUT_OVER: Final = " ON CONFLICT (tbl, key) DO UPDATE SET value = excluded.value"
_REMOVE: Final = "DELETE FROM records WHERE tbl = ? AND key = ?"
_GET: Final = "SELECT value FROM records WHERE tbl = ? AND key = ?"
_GET_MANY: Final = "SELECT key, value FROM records WHERE tbl = ? AND key IN ("
_SCAN: Final = "SELECT key, value FROM records WHERE tbl = ? AND key >= ? ORDER BY key LIMIT ?"


class SqliteStore:
    """Implements ``core.records.Store`` in the file ``path``, made if absent, then for its owner only (mode 0600).

    Safe for one thread that commits and one that reads.

    Raises:
        HostError: The file cannot be opened, is damaged, foreign, or of a newer version (exit code 5).
    """

    def __init__(self, path: Path, *, ids_in_memory: bool = False) -> None:
        """Open the file, and bring one of an older layout to this one.

        Args:
            path: The file; its folder exists.
            ids_in_memory: Answer "unknown" to most questions for packets from 8 MiB of memory. For the one process
                that puts packets; it then learns of another's packets at its own next packet change only. Cost: a
                second per million packets now.
        """
        self._path = path
        try:
            with contextlib.ExitStack() as opened:
                make_private(path)
                self._writer = opened.enter_context(contextlib.closing(connect(path)))
                _prepare(self._writer, path)
                self._reader = opened.enter_context(contextlib.closing(connect(path)))
                self._reader.execute("PRAGMA query_only = ON")
                self._reading = Reading(self._reader, path)
                self._packet_writer = SqlitePacketWriter(self._writer, ids_in_memory=ids_in_memory)
                self._packets = SqlitePacketReader(self._reading, self._packet_writer)
                opened.pop_all()  # from here on it is close() that closes them
        except (sqlite3.Error, OSError) as error:
            raise refused(path, "cannot be opened", error) from error

    @property
    def packets(self) -> SqlitePacketReader:
        """The packet table, for the thread that reads."""
        return self._packets

    def commit(self, changes: Sequence[Change]) -> None:
        """Write all changes in one transaction; on return they are on the disk.

        Raises:
            HostError: The disk refused, or a packet's ``seq`` is taken; nothing of the group was kept.
        """
        # Records and packets never touch the same rows, so each kind has an order of its own.
        last: dict[tuple[str, bytes], bytes | None] = {}
        packet_changes: list[PacketChange] = []
        for change in changes:
            if isinstance(change, Record):
                last[change.table, change.key] = change.value
            else:
                packet_changes.append(change)
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            self._write_records(last)
            if packet_changes:
                self._packet_writer.write(packet_changes)
            self._writer.execute("COMMIT")
            if packet_changes:
                self._packet_writer.publish()
        except sqlite3.Error as error:
            raise refused(self._path, "did not take a write", error) from error
        finally:
            self._roll_back()

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value kept for ``key``, or None.

        Raises:
            HostError: The disk refused to be read.
        """
        rows = self._reading.rows(_GET, (table, key))
        return rows[0][0] if rows else None

    def get_many(self, table: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values kept for those of ``keys`` that have one.

        Raises:
            HostError: The disk refused to be read.
        """
        found: dict[bytes, bytes] = {}
        for chunk in in_chunks(keys):
            found.update(self._reading.rows(_GET_MANY + ",".join("?" * len(chunk)) + ")", (table, *chunk)))
        return found

    def scan(self, table: str, start: bytes = b"", count_max: int = 1_000) -> Iterator[tuple[bytes, bytes]]:
        """Yield at most ``count_max`` pairs in key order, as they were at the call, from ``start`` on.

        Raises:
            HostError: The disk refused to be read.
        """
        return iter(self._reading.rows(_SCAN, (table, start, count_max)))

    def close(self) -> None:
        """Fold the write-ahead log into the file and release both connections."""
        self._reader.close()
        self._writer.close()

    def _write_records(self, last: dict[tuple[str, bytes], bytes | None]) -> None:
        puts = [(*place, value) for place, value in last.items() if value is not None]
        for chunk in in_chunks(puts):
            values = [value for put in chunk for value in put]
            self._writer.execute(_PUT + ",".join([_PUT_ROW] * len(chunk)) + _PUT_OVER, values)
        removals = [place for place, value in last.items() if value is None]
        if removals:
            self._writer.executemany(_REMOVE, removals)

    def _roll_back(self) -> None:
        # Nothing is left to do after a commit, or after an error that made SQLite roll back, such as a full disk.
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")


def check_file(path: Path) -> None:
    """Look whether a file is whole and of a layout that this version knows; nothing is written, nor beside it.

    Raises:
        HostError: It is damaged, of a newer version, or no store at all (exit code 5).
    """
    try:
        with contextlib.closing(_read_only(path)) as connection:
            _check_layout(connection, path)
    except sqlite3.Error as error:
        raise refused(path, "cannot be opened", error) from error


def _read_only(path: Path) -> sqlite3.Connection:
    """Return a connection that writes nothing, also on a disk that takes no file beside the store."""
    place = path.resolve().as_uri()
    connection = sqlite3.connect(f"{place}?mode=ro", uri=True)
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        connection = sqlite3.connect(f"{place}?mode=ro&immutable=1", uri=True)
    return connection


def _check_layout(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the layout of a file that is whole; nothing is written.

    Raises:
        HostError: It is damaged, of a newer version, or no store at all (exit code 5).
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != _APPLICATION_ID:
        raise HostError(f"{path} is a database, but not a waystation store", exit_code=STORE_EXIT_CODE)
    if version > SCHEMA_VERSION:
        raise HostError(
            f"the store {path} was written by a newer waystation (layout {version}, this one knows {SCHEMA_VERSION})",
            exit_code=STORE_EXIT_CODE,
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise HostError(f"the store {path} is damaged: {verdict}", exit_code=STORE_EXIT_CODE)
    return int(version)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version = _check_layout(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if version < SCHEMA_VERSION:
        _upgrade(connection)


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring a file of any older layout, also an empty one, to this one; nothing is lost if it is cut short."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in (_CREATE, *PACKETS_SCHEMA):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")
