"""Store in one SQLite file (WAL mode, synchronous=FULL): a record survives a power cut once ``commit`` has returned.

It uses two connections. ``commit`` has one and may run on its own thread; reads use the other on the event loop's
thread. In WAL mode neither blocks the other. Most of the cost of a commit is the disk sync, so callers group changes.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from waystation.core.packets import PacketChange
from waystation.core.records import Change, Record, StoreState
from waystation.store.sqlite_file import Reading, connect, in_chunks, make_private, refused
from waystation.store.sqlite_layout import GET_STATE, prepare
from waystation.store.sqlite_packets import SqlitePacketReader, SqlitePacketWriter

__all__ = ["SqliteStore"]

_PUT: Final = "INSERT INTO records (tbl, key, value) VALUES "
_PUT_ROW: Final = "(?, ?, ?)"
_PUT_OVER: Final = " ON CONFLICT (tbl, key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum"
_GROW: Final = "UPDATE store_state SET generation = generation + 1"
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
        self._folded = -1  # the generation that ``fold`` returned last
        try:
            with contextlib.ExitStack() as opened:
                make_private(path)
                self._writer = opened.enter_context(contextlib.closing(connect(path)))
                prepare(self._writer, path)
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
        """Write all changes in one transaction; on return they are on the disk, and the generation is one higher.

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
            self._writer.execute(_GROW)
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

    def state(self) -> StoreState:
        """Return who the store is and how far it has come, as of the last commit of any process.

        Raises:
            HostError: The disk refused to be read.
        """
        return StoreState._make(self._reading.rows(GET_STATE)[0])

    def fold(self) -> StoreState:
        """Write what stands in the write-ahead log into the file, and one empty group behind it into the log.

        For the thread that commits. The file without its log is older than the state that is returned, so whoever
        remembers that notices when the log is lost. Nothing is written when nothing was committed since the last time.

        Raises:
            HostError: The disk refused; nothing is lost.
        """
        try:
            state = self._written_state()
            if state.generation != self._folded:
                # Passive waits for nobody: what a reader still needs stays in the log alone until the next time.
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                self.commit(())
                state = self._written_state()
                self._folded = state.generation
        except sqlite3.Error as error:
            raise refused(self._path, "could not fold its log in", error) from error
        return state

    def close(self) -> None:
        """Fold the write-ahead log into the file and release both connections."""
        self._reader.close()
        self._writer.close()

    def _written_state(self) -> StoreState:
        return StoreState._make(self._writer.execute(GET_STATE).fetchone())

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
