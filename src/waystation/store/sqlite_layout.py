"""Layout of the SQLite store's file: its version, its tables, and the steps from each version to the next.

``store.sqlite`` calls ``prepare`` when it opens a file; the home's checks read version and state without writing.

====== ==================================================================================================
1      ``records``
2      ``packets`` and what belongs to them
3      ``store_state``: who the store is and how far it has come; ``checksum`` of records and packets
4      ``packet_state`` knows the space of key events and how far clocks differ; an index of bootstrap snapshots
====== ==================================================================================================

A new file goes through the same steps as an old one, so both end with the same tables. ``user_version`` of the file is
the version; it changes in the transaction that makes the tables, so a file that was cut short is of the old version.
"""

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError, StoreFaultKind
from waystation.core.records import STORE_ID_BYTES, StoreState
from waystation.store.sqlite_file import STORE_EXIT_CODE, kind_of, refused
from waystation.store.sqlite_packets_schema import PACKETS_SCHEMA, PACKETS_SCHEMA_4

__all__ = [
    "GET_STATE",
    "SCHEMA_VERSION",
    "check_file",
    "index_path",
    "log_path",
    "look_at_file",
    "look_at_file_alone",
    "open_read_only",
    "prepare",
]

SCHEMA_VERSION: Final = 4
"""Version of the layout that this module writes."""

BUSY_S: Final = 5.0
"""How long a look at a file waits for another program's lock."""

_STATE_SINCE: Final = 3  # the first version with store_state

GET_STATE: Final = "SELECT store_id, generation FROM store_state"

_APPLICATION_ID: Final = 0x57415953  # "WAYS", so that file(1) and this module recognise the file

# With row ids, because random keys over 900-byte values then commit 2.3 times as fast (35 000 rows a second against
# 15 500 in groups of a hundred, measured): values are appended, and only the small index is written at random.
_RECORDS: Final = (
    "CREATE TABLE IF NOT EXISTS records"
    " (tbl TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tbl, key))"
)
# A table of its own: a commit of records alone then leaves the packets' page as it is.
_STATE: Final = (
    "CREATE TABLE store_state"
    " (one INTEGER PRIMARY KEY CHECK (one = 1), store_id BLOB NOT NULL, generation INTEGER NOT NULL)"
)
_STEPS: Final[dict[int, tuple[str, ...]]] = {
    1: (_RECORDS,),
    2: PACKETS_SCHEMA,
    3: (
        _STATE,
        f"INSERT INTO store_state VALUES (1, randomblob({STORE_ID_BYTES}), 0)",  # noqa: S608 - a number
        "ALTER TABLE records ADD COLUMN checksum INTEGER",
        "ALTER TABLE packets ADD COLUMN checksum INTEGER",
    ),
    4: PACKETS_SCHEMA_4,
}
"""Statements that bring a file to each version from the one before."""


def prepare(connection: sqlite3.Connection, path: Path, *, is_checked: bool = False) -> None:
    """Set a writing connection up, and bring a file of any older layout, also an empty one, to this one.

    Args:
        connection: Has read nothing yet.
        path: Its file.
        is_checked: Whether ``check_file`` has found the file whole already.

    Raises:
        HostError: The file is damaged, of a newer version, or no store at all (exit code 5).
    """
    version = _version_of(connection, path) if is_checked else _check_layout(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if version < SCHEMA_VERSION:
        _upgrade(connection)


def check_file(path: Path) -> int:
    """Return the version of the layout of a file that is whole; nothing is written, nor beside it.

    Raises:
        HostError: It is damaged, of a newer version, or no store at all (exit code 5).
    """
    try:
        with contextlib.closing(open_read_only(path)) as connection:
            return _check_layout(connection, path)
    except sqlite3.Error as error:
        raise refused(path, "cannot be opened", error) from error


def look_at_file(path: Path) -> StoreState | None:
    """Return who a store is and how far it has come; nothing is written. None below layout 3, also for an empty file.

    Raises:
        HostError: It is of a newer version, or no store at all (exit code 5).
    """
    try:
        with contextlib.closing(open_read_only(path)) as connection:
            if _version_of(connection, path) < _STATE_SINCE:
                return None
            return StoreState._make(connection.execute(GET_STATE).fetchone())
    except sqlite3.Error as error:
        raise refused(path, "cannot be opened", error) from error


def look_at_file_alone(path: Path) -> StoreState | None:
    """Return who a store is and how far its file has come without the log; None where that alone cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as alone:
            found = alone.execute(GET_STATE).fetchone()
    except sqlite3.Error:  # of an older layout, or a node writes to it at this moment
        return None
    return StoreState._make(found) if found is not None else None


def open_read_only(path: Path) -> sqlite3.Connection:
    """Return a connection that writes nothing, also on a disk that takes no file beside the store."""
    place = path.resolve().as_uri()
    if not log_path(path).exists():
        # At rest the file is all there is. Opened in the usual way, SQLite would leave an empty log and index beside.
        return sqlite3.connect(f"{place}?mode=ro&immutable=1", uri=True)
    connection = sqlite3.connect(f"{place}?mode=ro", uri=True, timeout=BUSY_S)
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if kind_of(error) is StoreFaultKind.BUSY:
            raise  # the file without the log that somebody has locked would look like an older store
        connection = sqlite3.connect(f"{place}?mode=ro&immutable=1", uri=True)
    return connection


def log_path(path: Path) -> Path:
    """Return where a store that is in use, or was not closed in order, has its write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def index_path(path: Path) -> Path:
    """Return where the index of that log is, which all processes that have the store open share."""
    return path.with_name(f"{path.name}-shm")


def _version_of(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the layout, 0 for an empty file.

    Raises:
        HostError: It is newer than ours, or the file is no store at all (exit code 5).
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
    return int(version)


def _check_layout(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the layout of a file that is whole; else as ``_version_of``."""
    version = _version_of(connection, path)
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise HostError(f"the store {path} is damaged: {verdict}", exit_code=STORE_EXIT_CODE)
    return version


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring a file of any older layout to this one; nothing is lost if it is cut short."""
    connection.execute("BEGIN IMMEDIATE")
    # Read again now that nobody else can write: another process may have done it meanwhile.
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for step in range(version + 1, SCHEMA_VERSION + 1):
        for statement in _STEPS[step]:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")
    # So that a copy of this one file is a store from now on, with what it held before.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
