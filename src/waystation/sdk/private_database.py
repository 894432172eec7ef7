"""Opens and uses a client's SQLite file: mode 0600, WAL mode, with a schema that can be applied repeatedly.

The state of each protocol's client is one such file. A disk that refuses is a ``HostError``; ``change_later`` keeps a
change that may wait until the disk takes writes again.

Another program of the same user may be writing, so a transaction waits for its lock: up to 10 s, but in a thread that
runs an event loop ``ON_LOOP_S`` alone, since everything else there would wait too. What may wait for longer there
awaits ``unlocked`` before, and the loop goes on.
"""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError
from waystation.sdk.errors import LockedError

__all__ = ["EXIT_STORE", "ON_LOOP_S", "WAITING_MAX", "PrivateDatabase", "on_loop", "private_folder"]

EXIT_STORE: Final = 5
WAITING_MAX: Final = 1_000
"""Changes that wait in memory for a disk that refuses."""
ON_LOOP_S: Final = 0.005
"""For so long a transaction waits for another program's lock where an event loop waits for it."""
_BUSY_TIMEOUT_S: Final = 10.0  # another program of the same user may be writing
_RETRY_S: Final = 0.005
_SETTLE_S: Final = (0.05, 1.0)  # until what was refused is tried again, and the most that it grows to
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
            synchronous: FULL for what must survive a power cut, NORMAL for what may be lost with it before ``sync``.

        Raises:
            HostError: The file or its folder cannot be used, or it is no database.
        """
        self.path = path
        self._waiting: list[Callable[[], object]] = []
        self._is_changing = False
        self._wait_s = _BUSY_TIMEOUT_S
        self._settling: asyncio.TimerHandle | None = None
        self._is_closed = False
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = _open(path, schema, synchronous)
        except (OSError, sqlite3.Error) as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Release the database; what waits is written if the disk takes it now."""
        self._is_closed = True
        if self._settling is not None:
            self._settling.cancel()
        with contextlib.suppress(HostError):  # its ``change_later`` has said that it may be lost with the program
            self.settle()
        self._database.close()

    async def unlocked(self) -> None:
        """Return once no other program holds the lock, after 10 s at most; a transaction that begins now gets it."""
        give_up_at = time.monotonic() + _BUSY_TIMEOUT_S
        while time.monotonic() < give_up_at:
            try:
                self._wait_for_lock(0.0)
                self._database.execute("BEGIN IMMEDIATE")
                self._database.execute("ROLLBACK")
            except sqlite3.Error as error:
                if not _is_busy(error):
                    return  # the transaction says why
            else:
                return
            await asyncio.sleep(_RETRY_S)

    @contextlib.contextmanager
    def transaction(self, *, opens: bool = False) -> Iterator[None]:
        """Make what is ``run`` inside durable together at its end, or none of it; raises HostError.

        What waits (``change_later``) is written before it. Inside another transaction it is a part of that one.

        Args:
            opens: Whether it is a part of opening a new file, which has no second try: another program's lock is waited
                for on an event loop too.
        """
        if self._is_changing:
            yield
            return
        try:
            self._wait_for_lock(_BUSY_TIMEOUT_S if opens else _lock_wait_s())
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
            self._settle_later(_SETTLE_S[0])
            sentence = f"{error}; it is kept in memory and written once the disk takes writes again"
            raise type(error)(sentence, exit_code=EXIT_STORE) from error

    def sync(self) -> None:
        """Have what was committed with ``synchronous="NORMAL"`` survive a power cut from now on; raises HostError."""
        try:
            # SQLite syncs its -wal file before it copies from it, and the file itself behind that.
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            raise self._refused(error) from error

    def settle(self) -> None:
        """Make durable what waits; raises HostError."""
        if self._waiting:
            with self.transaction():
                pass

    def _settle_later(self, wait_s: float) -> None:
        """Have an event loop write what waits; without one the next transaction does."""
        if self._settling is None and not self._is_closed and on_loop():
            self._settling = asyncio.get_running_loop().call_later(wait_s, self._settle_again, wait_s)

    def _settle_again(self, waited_s: float) -> None:
        self._settling = None
        try:
            self.settle()
        except HostError:
            self._settle_later(min(2 * waited_s, _SETTLE_S[1]))

    def _wait_for_lock(self, wait_s: float) -> None:
        """Have what follows wait so long for another program's lock."""
        if wait_s != self._wait_s:
            self._database.execute(f"PRAGMA busy_timeout = {int(wait_s * 1_000)}")
            self._wait_s = wait_s

    def run(self, statement: str, *values: Any) -> int:
        """Change something inside ``transaction``; return how many rows it was."""
        return self._database.execute(statement, values).rowcount

    def all(self, query: str, *values: Any) -> list[Any]:
        """Return all rows of a query; raises HostError."""
        try:
            self._wait_for_lock(_lock_wait_s())
            return self._database.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._refused(error) from error

    def first(self, query: str, *values: Any) -> Any:
        """Return the first row of a query, or None; raises HostError."""
        rows = self.all(query, *values)
        return rows[0] if rows else None

    def _refused(self, error: Exception) -> HostError:
        kind = LockedError if isinstance(error, sqlite3.Error) and _is_busy(error) else HostError
        return kind(f"cannot use {self.path}: {error}", exit_code=EXIT_STORE)


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
            if time.monotonic() >= give_up_at or not _is_busy(error):
                raise
            time.sleep(_RETRY_S)
        else:
            return


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE == sqlite3.SQLITE_BUSY


def _lock_wait_s() -> float:
    return ON_LOOP_S if on_loop() else _BUSY_TIMEOUT_S


def on_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
