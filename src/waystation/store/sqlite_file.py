"""Shared SQLite access for several tables: opens the file, reads rows and translates errors.

The other ``sqlite_*`` modules read and write through it. Statements take many values at once. Python's sqlite3 releases
the interpreter lock at every step of a statement. With ``executemany`` the writer thread waits for the event loop once
per row; one statement with a hundred rows waits once. docs/decisions has the measurements.
"""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from waystation.core.errors import STORE_EXIT_CODE, StoreFault, StoreFaultKind

__all__ = [
    "ROWS_PER_STATEMENT_MAX",
    "STORE_EXIT_CODE",
    "OpenPlace",
    "Reading",
    "connect",
    "in_chunks",
    "is_damage",
    "kind_of",
    "make_private",
    "refused",
]

ROWS_PER_STATEMENT_MAX: Final = 128
"""Rows written or looked up by one statement. SQLite allows 32,766 values in one (since 3.32), a packet has 16."""

_BUSY_MS: Final = 5_000  # a command line may commit to the same file; its group takes milliseconds
_CACHE_KIB: Final = 16_384  # per connection; the packets' ids alone need 45 MB per million, and 2 MB is the default
# 32 MiB: index pages that many groups change are folded into the file once, a sixth of the CPU of a put (measured).
_LOG_PAGES: Final = 8_192
_PRIMARY_CODE: Final = 0xFF  # of an extended result code of SQLite
_STATEMENTS_KEPT: Final = 256  # a page's statement has about a hundred shapes in use, chunks have eight per table

T = TypeVar("T")


class Reading:
    """The connection of the thread that reads."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def rows(self, statement: str, arguments: Sequence[object] = (), *, damage_passes: bool = False) -> list[Any]:
        """Return all rows of a statement.

        Args:
            statement: Reads only.
            arguments: Its values.
            damage_passes: Whether the caller takes ``sqlite3.Error`` for a page of the file that is damaged.

        Raises:
            HostError: The disk refused to be read.
        """
        # All at once: an open cursor would pin a snapshot and keep the write-ahead log from being folded in.
        try:
            return self._connection.execute(statement, arguments).fetchall()
        except sqlite3.Error as error:
            if damage_passes and is_damage(error):
                raise
            raise refused(self._path, "cannot be read", error) from error

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Let several statements see one moment; cursors must not outlive it.

        Raises:
            HostError: The disk refused to be read.
        """
        try:
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                # Some errors end it by themselves, and after others a COMMIT would fail as well.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise refused(self._path, "cannot be read", error) from error


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error says that bytes in the file are not those that were written."""
    if not hasattr(error, "sqlite_errorcode"):  # Python's own: a text that is no UTF-8
        return isinstance(error, sqlite3.OperationalError)
    return error.sqlite_errorcode & _PRIMARY_CODE in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def in_chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut values into few runs whose lengths are powers of two, so that eight statements serve every length."""
    start, size = 0, ROWS_PER_STATEMENT_MAX
    while start < len(values):
        while size > len(values) - start:
            size >>= 1
        yield values[start : start + size]
        start += size


def make_private(path: Path) -> None:
    """Make an empty file for its owner only (mode 0600); one that exists stays as it is."""
    # SQLite gives its log and index files the mode of the database. A file that exists is not even opened: to close it
    # would drop the locks that another connection of this process holds on it.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection in autocommit mode that may be made on one thread and used on another, never on two at once."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS_KEPT
    )
    try:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
    except BaseException:
        connection.close()
        raise
    return connection


class OpenPlace:
    """Whether the files at a store's path are those that are open (NODE-GONE)."""

    def __init__(self, path: Path) -> None:
        """Look at the store at ``path``, which may not be there yet, at its write-ahead log and the log's index."""
        self._path = path
        self._paths = (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm"))
        self._open: tuple[_Identity | None, ...] = (None, None, None)

    def remember(self) -> None:
        """Take the files that are there for those that are open."""
        self._open = tuple(map(_identity, self._paths))

    def check(self) -> None:
        """Notice files that were deleted, moved or replaced.

        Raises:
            StoreFault: One of them is not the one that is open (kind ``GONE``).
        """
        found = tuple(map(_identity, self._paths))
        if found == self._open:
            return
        wrong = [what for what, now, then in zip(_FILES, found, self._open, strict=True) if now != then is not None]
        if not wrong and found[0] is not None:
            self._open = found  # the log and its index begin with the first write
            return
        what = wrong[0] if wrong else _FILES[0]
        raise StoreFault(f"{what} {self._path} was deleted, moved or replaced while it is open", StoreFaultKind.GONE)


_FILES: Final = ("the store", "the write-ahead log of the store", "the index (-shm) of the log of the store")
_Identity = tuple[int, int]


def _identity(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def refused(path: Path, what: str, error: sqlite3.Error | OSError | UnicodeDecodeError) -> StoreFault:
    """Return the error that names the failed operation and its cause."""
    why = error.strerror if isinstance(error, OSError) else error
    kind = kind_of(error)
    if kind is StoreFaultKind.IO:
        kind = _of_disk(path)  # SQLite calls many refusals of a disk an I/O error
    words = f"{_WORDS[kind]} ({why})" if kind in _WORDS else why
    return StoreFault(f"the store {path} {what}: {words}", kind)


def kind_of(error: sqlite3.Error | OSError | UnicodeDecodeError) -> StoreFaultKind:
    """Return what an error of SQLite or of the operating system says about the disk."""
    if isinstance(error, UnicodeDecodeError):
        return StoreFaultKind.DAMAGED
    if isinstance(error, OSError):
        return _OF_ERRNO.get(error.errno or 0, StoreFaultKind.IO)
    code = getattr(error, "sqlite_errorcode", None)  # absent where Python itself refuses, as on a closed connection
    if code is None:
        return StoreFaultKind.OTHER
    return _OF_EXTENDED.get(code) or _OF_PRIMARY.get(code & 0xFF, StoreFaultKind.OTHER)


def _of_disk(path: Path) -> StoreFaultKind:
    """Return why the disk of a file refused, as far as the disk itself shows it."""
    try:
        disk = os.statvfs(path.parent)
    except OSError as error:
        return kind_of(error)
    if disk.f_flag & os.ST_RDONLY:
        return StoreFaultKind.READ_ONLY
    return StoreFaultKind.FULL if disk.f_bavail * disk.f_frsize < _FULL_BYTES else StoreFaultKind.IO


_FULL_BYTES: Final = 65_536  # the index of the log grows by 32 KiB
_OF_PRIMARY: Final = {
    sqlite3.SQLITE_BUSY: StoreFaultKind.BUSY,
    sqlite3.SQLITE_LOCKED: StoreFaultKind.BUSY,
    sqlite3.SQLITE_FULL: StoreFaultKind.FULL,
    sqlite3.SQLITE_IOERR: StoreFaultKind.IO,
    sqlite3.SQLITE_CANTOPEN: StoreFaultKind.IO,
    sqlite3.SQLITE_PROTOCOL: StoreFaultKind.IO,
    sqlite3.SQLITE_READONLY: StoreFaultKind.READ_ONLY,
    sqlite3.SQLITE_PERM: StoreFaultKind.READ_ONLY,
    sqlite3.SQLITE_CORRUPT: StoreFaultKind.DAMAGED,
    sqlite3.SQLITE_NOTADB: StoreFaultKind.DAMAGED,
}
_OF_EXTENDED: Final = {sqlite3.SQLITE_READONLY_DBMOVED: StoreFaultKind.GONE}
_OF_ERRNO: Final = {
    errno.ENOSPC: StoreFaultKind.FULL,
    errno.EDQUOT: StoreFaultKind.FULL,
    errno.EROFS: StoreFaultKind.READ_ONLY,
    errno.EACCES: StoreFaultKind.READ_ONLY,
    errno.EPERM: StoreFaultKind.READ_ONLY,
    errno.ENOENT: StoreFaultKind.GONE,
    errno.ENOTDIR: StoreFaultKind.GONE,
}
_WORDS: Final = {
    StoreFaultKind.FULL: "the disk is full",
    StoreFaultKind.IO: "the disk failed",
    StoreFaultKind.READ_ONLY: "it may not be written",
    StoreFaultKind.GONE: "it was deleted or moved",
}
