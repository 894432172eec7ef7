"""Keeps the names of MERK messages that a program has taken in a SQLite file, so that no restart makes a replay new.

``sdk.merk.open`` makes one in the folder of an identity; ``SeenMessages`` says what to keep and what to forget. A write
survives a killed program at once, and a power cut with the next ``sync``: one for all that was taken within
``SYNC_EVERY_S``, since one for each message would hold the event loop for most of a flood. The client has ``sync``
carried out before it says to anybody that it has taken a message, so no power cut makes such a one new.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from waystation.protocols.merk.client.seen_messages import SEEN_COUNT_MAX, SEEN_MS, Seen
from waystation.sdk.private_database import PrivateDatabase, on_loop

__all__ = ["SEEN_FILE", "SYNC_EVERY_S", "SeenDatabase"]

SYNC_EVERY_S: Final = 0.2
"""For so long at most a power cut can lose what was written."""
SEEN_FILE: Final = "merk_seen.sqlite"
STORED_MS: Final = SEEN_MS
"""How long a receipt of what a mailbox keeps is waited for: 14 days, after which the recipient refuses the message."""
STORED_COUNT_MAX: Final = 16_384
"""Messages that are waited for so."""
_FORGET_STORED: Final = (
    "DELETE FROM stored WHERE time_ms < (SELECT time_ms FROM stored ORDER BY time_ms DESC LIMIT 1 OFFSET ? - 1)"
)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS seen (
    sender BLOB NOT NULL, message_id BLOB NOT NULL, time_ms INTEGER NOT NULL, PRIMARY KEY (sender, message_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS seen_by_time ON seen (time_ms);
CREATE TABLE IF NOT EXISTS stored (
    recipient BLOB NOT NULL, message_id BLOB NOT NULL, time_ms INTEGER NOT NULL, PRIMARY KEY (recipient, message_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS stored_by_time ON stored (time_ms);
CREATE TABLE IF NOT EXISTS floors (sender BLOB PRIMARY KEY, time_ms INTEGER NOT NULL) WITHOUT ROWID;
"""


class SeenDatabase:
    """A ``SeenStore`` on disk."""

    def __init__(self, path: Path) -> None:
        """Open the file, made with its folder if absent; raises HostError when it cannot be used."""
        self._database = PrivateDatabase(path, _SCHEMA, synchronous="NORMAL")
        self.attempt: Callable[[Callable[[], object]], None] = _write
        """Carries out a write; the client sets one that survives a disk which refuses."""
        self._is_synced = True
        self._syncing: asyncio.TimerHandle | None = None

    def load(self) -> tuple[list[Seen], dict[bytes, int]]:
        """Return what is kept, the newest ``SEEN_COUNT_MAX`` by ascending time, and the floors."""
        rows = self._database.all(
            "SELECT sender, message_id, time_ms FROM seen ORDER BY time_ms DESC LIMIT ?", SEEN_COUNT_MAX
        )
        floors = dict(self._database.all("SELECT sender, time_ms FROM floors"))
        return [Seen(*row) for row in reversed(rows)], floors

    def remember(self, seen: Seen) -> None:
        """Keep a message that the program has taken."""
        self._write("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", *seen)

    def raise_floor(self, sender: bytes, floor_ms: int) -> None:
        """Drop what a sender said up to ``floor_ms``, and keep that time as its floor; empty bytes: of newcomers."""
        self._write("INSERT OR REPLACE INTO floors VALUES (?, ?)", sender, floor_ms)
        self._write("DELETE FROM seen WHERE sender = ? AND time_ms <= ?", sender, floor_ms)

    def forget(self, sender: bytes) -> None:
        """Drop everything about a sender."""
        self._write("DELETE FROM seen WHERE sender = ?", sender)
        self._write("DELETE FROM floors WHERE sender = ?", sender)

    def expire(self, until_ms: int) -> None:
        """Drop everything of this time and before."""
        self._write("DELETE FROM seen WHERE time_ms <= ?", until_ms)
        self._write("DELETE FROM floors WHERE time_ms <= ?", until_ms)

    def await_read(self, recipient: bytes, message_id: bytes, time_ms: int) -> None:
        """Remember a message of ours that a mailbox keeps, so that its receipt is known after a restart."""
        self._write("INSERT OR REPLACE INTO stored VALUES (?, ?, ?)", recipient, message_id, time_ms)
        self._write("DELETE FROM stored WHERE time_ms <= ?", time_ms - STORED_MS)
        self._write(_FORGET_STORED, STORED_COUNT_MAX)

    def was_read(self, recipient: bytes, message_id: bytes) -> bool:
        """Forget such a message, which has been read; return whether it was remembered."""
        where = "FROM stored WHERE recipient = ? AND message_id = ?"
        is_known = bool(self._database.all(f"SELECT 1 {where}", recipient, message_id))
        if is_known:
            self._write(f"DELETE {where}", recipient, message_id)
        return is_known

    def sync(self) -> None:
        """Have all that was written survive a power cut from now on."""
        self._cancel_sync()
        if not self._is_synced:
            self.attempt(self._sync)

    def settle(self) -> None:
        """Write what the disk has refused; raises HostError."""
        self._database.settle()

    def close(self) -> None:
        """Release the file; SQLite syncs what was committed."""
        self._cancel_sync()
        self._database.close()

    def _cancel_sync(self) -> None:
        if self._syncing is not None:
            self._syncing.cancel()
            self._syncing = None

    def _sync(self) -> None:
        self._database.sync()
        self._is_synced = True

    def _write(self, statement: str, *values: object) -> None:
        self.attempt(lambda: self._database.change_later(lambda: self._database.run(statement, *values)))
        self._is_synced = False
        if self._syncing is None and on_loop():
            self._syncing = asyncio.get_running_loop().call_later(SYNC_EVERY_S, self.sync)


def _write(write: Callable[[], object]) -> None:
    write()
