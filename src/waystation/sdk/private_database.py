"""Opens and uses a client's SQLite file: mode 0600, WAL mode, with a schema that can be applied repeatedly.

The state of each protocol's client is one such file. A disk that refuses is a ``HostError``; ``change_later`` keeps a
change that may wait until the disk takes writes again.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError

__all__ = ["EXIT_STORE", "WAITING_MAX", "PrivateDatabase", "private_folder"]

EXIT_STORE: Final = 5
WAITING_MAX: Final = 1_000
"""Changes that wait in memory for a disk that refuses."""
_BUSY_TIMEOUT_S: Final = 10.0  # another program of the same user may be writing
_RETRY_S: Final = 0.005
_PRIMARY_CODE: Final = 0xFF  # SQLite's extended error codes add to the bits above
_OTHERS: Final = 0o077


@contextlib.contextmanager
def private_folder(path: Path) -> Iterator[None]:
    """Make a client's folder if absent, for its owner only; inside, an OSError becomes a HostError (exit code 5)."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise HostError(f"cannot use {path}: {error}", exit_code=EXIT_STORE) from error


class PrivateDatabase:
    """One such file: changes in transactions, and a disk that says no as HostError (exit code 5)."""

    def __init__(self, path: Path, schema: str, *, synchronous: str = "FULL") -> None:
        """Open the file, made with its folder if absent.

        Args:
            path: The file; SQLite gives its -wal and -shm files the same mode.
            schema: Statements that make what is missing.
            synchronous: FULL for what must survive a power cut, NORMAL for what may be lost with it.

        Raises:
            HostError: The file or its folder cannot be used, or it is no database.
        """
        self.path = path
        self._waiting: list[Callable[[], object]] = []
        self._is_changing = False
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = _open(path, schema, synchronous)
        except (OSError, sqlite3.Error) as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Release the database."""
        self._database.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make what is ``run`` inside durable together at its end, or none of it; raises HostError.

        What waits (``change_later``) is written before it. Inside another transaction it is a part of that one.
        """
        if self._is_changing:
            yield
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._is_changing = True
            try:
                for change in self._waiting:
                    change()
                yield
                self._database.execute("COMMIT")
            except BaseException:
                # A full disk at times ends the transaction by itself, and at times leaves it open behind COMMIT.
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            finally:
                self._is_changing = False
        except sqlite3.Error as error:
            raise self._refused(error) from error
        self._waiting.clear()

    def change_later(self, change: Callable[[], object]) -> None:
        """Make a change durable that has happened whatever the disk says, at the latest with the next transaction.

        Args:
            change: Runs inside a transaction, maybe more than once until one is durable. It must fit whatever is there
                by then: one that fails keeps the database from all others.

        Raises:
            HostError: The disk refuses. The change waits in memory, behind those of before; it is lost if the program
                ends first, or if ``WAITING_MAX`` wait already.
        """
        try:
            with self.transaction():
                change()
        except HostError as error:
            if len(self._waiting) >= WAITING_MAX:
                raise
            self._waiting.append(change)
            sentence = f"{error}; it is kept in memory and written once the disk takes writes again"
            raise HostError(sentence, exit_code=EXIT_STORE) from error

    def settle(self) -> None:
        """Make durable what waits; raises HostError."""
        if self._waiting:
            with self.transaction():
                pass

    def run(self, statement: str, *values: Any) -> int:
        """Change something inside ``transaction``; return how many rows it was."""
        return self._database.execute(statement, values).rowcount

    def all(self, query: str, *values: Any) -> list[Any]:
        """Return all rows of a query; raises HostError."""
        try:
            return self._database.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._refused(error) from error

    def first(self, query: str, *values: Any) -> Any:
        """Return the first row of a query, or None; raises HostError."""
        rows = self.all(query, *values)
        return rows[0] if rows else None

    def _refused(self, error: Exception) -> HostError:
        return HostError(f"cannot use {self.path}: {error}", exit_code=EXIT_STORE)


def _open(path: Path, schema: str, synchronous: str) -> sqlite3.Connection:
    try:
        # Only a new file may be opened here: closing one that SQLite has open would drop this process's locks on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.stat().st_mode & _OTHERS:
            path.chmod(0o600)
    database = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    try:
        _turn_to_wal(database)
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.executescript(schema)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _turn_to_wal(database: sqlite3.Connection) -> None:
    # SQLite waits for another program's lock everywhere but here: two that open a new file would collide.
    give_up_at = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if time.monotonic() >= give_up_at or error.sqlite_errorcode & _PRIMARY_CODE != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(_RETRY_S)
        else:
            return
