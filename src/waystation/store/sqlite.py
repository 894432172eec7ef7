"""Store in one SQLite file (WAL mode, synchronous=FULL): a record survives a power cut once ``commit`` has returned.

It implements ``core.records.Store`` for the server, BSP devices and commands. It uses two connections. ``commit`` has
one and may run on its own thread; reads use the other on the event loop's thread. In WAL mode neither blocks the other.
Most of the cost of a commit is the disk sync, so callers group changes.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from waystation.core.packets import PacketChange
from waystation.core.records import Change, DamagedRow, Record, StoreState
from waystation.store.checksums import PacketCheck, record_checksum
from waystation.store.damage import Damage
from waystation.store.sqlite_content import FileContent
from waystation.store.sqlite_file import OpenPlace, Reading, connect, in_chunks, make_private, refused
from waystation.store.sqlite_layout import GET_STATE, check_file, log_path, prepare
from waystation.store.sqlite_packets import SqlitePacketReader, SqlitePacketWriter
from waystation.store.sqlite_records import SqliteRecordReader

__all__ = ["SqliteStore"]

_PUT: Final = "INSERT INTO records (tbl, key, value, checksum) VALUES "
_PUT_ROW: Final = "(?, ?, ?, ?)"
_PUT_OVER: Final = " ON CONFLICT (tbl, key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum"
_GROW: Final = "UPDATE store_state SET generation = generation + 1"
_REMOVE: Final = "DELETE FROM records WHERE tbl = ? AND key = ?"


class SqliteStore:
    """Implements ``core.records.Store`` in the file ``path``, made if absent, then for its owner only (mode 0600).

    Safe for one thread that commits and one that reads. A row that is not as it was written is left out of every read
    and noted in ``damage`` (NODE-ROT).

    Raises:
        HostError: The file cannot be opened, is damaged, foreign, or of a newer version (exit code 5).
    """

    def __init__(
        self, path: Path, *, ids_in_memory: bool = False, check: PacketCheck = lambda _canonical: True
    ) -> None:
        """Open the file, and bring one of an older layout to this one.

        Args:
            path: The file; its folder exists.
            ids_in_memory: Answer "unknown" to most questions for packets from 8 MiB of memory. For the one process
                that puts packets; it then learns of another's packets at its own next packet change only. Cost: a
                second per million packets now.
            check: Judges packets from before layout 3, which have no checksum; without one they pass.
        """
        self._path = path
        self._place = OpenPlace(path)
        self._content = FileContent(path)
        self.damage = Damage()
        """The damaged rows that were met."""
        self._folded = -1  # the generation that ``fold`` returned last
        try:
            with contextlib.ExitStack() as opened:
                make_private(path)
                # A connection that writes folds the log into the file when it closes. So a log that does not belong to
                # this file is found before: a refusal leaves both as they are.
                has_log = log_path(path).exists()
                if has_log:
                    check_file(path)
                self._writer = opened.enter_context(contextlib.closing(connect(path)))
                prepare(self._writer, path, is_checked=has_log)
                self._reader = opened.enter_context(contextlib.closing(connect(path)))
                self._reader.execute("PRAGMA query_only = ON")
                self._reading = Reading(self._reader, path)
                self._records = SqliteRecordReader(self._reading, self.damage)
                writer = SqlitePacketWriter(self._writer, self.damage, check, ids_in_memory=ids_in_memory)
                self._packet_writer = writer
                self._packets = SqlitePacketReader(self._reading, writer, self.damage, check)
                self._place.remember()
                self._content.remember()
                opened.pop_all()  # from here on it is close() that closes them
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last when names of tables are damaged
            raise refused(path, "cannot be opened", error) from error

    @property
    def packets(self) -> SqlitePacketReader:
        """The packet table, for the thread that reads."""
        return self._packets

    def commit(self, changes: Sequence[Change]) -> None:
        """Write all changes in one transaction; on return they are on the disk, and the generation is one higher.

        Raises:
            StoreFault: The disk refused, or a packet's ``seq`` is taken; nothing of the group was kept. Or the file was
                moved or written over: who opens it later may then find the group.
        """
        self._check_file()
        # Records and packets never touch the same rows, so each kind has an order of its own.
        last: dict[tuple[str, bytes], bytes | None] = {}
        packet_changes: list[PacketChange] = []
        for change in changes:
            if isinstance(change, Record):
                last[change.table, change.key] = change.value
            else:
                packet_changes.append(change)
        try:
            try:
                self._transact(last, packet_changes)
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_CORRUPT_INDEX:
                    raise
                # NODE-ROT: a damaged row no longer fits its entries in the indexes, so it could never be removed.
                self._roll_back()
                self._writer.execute("REINDEX")
                self._transact(last, packet_changes)
        except sqlite3.Error as error:
            raise refused(self._path, "did not take a write", error) from error
        finally:
            self._roll_back()
        # NODE-GONE: a file that is not at its path any more is no promise: nobody finds it after a restart.
        self._place.check()
        if self.damage.any:
            for table, key in last:
                self.damage.mended(table, key)

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value kept for ``key``, or None.

        Raises:
            HostError: The disk refused to be read.
        """
        return self._records.get(table, key)

    def get_many(self, table: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values kept for those of ``keys`` that have one.

        Raises:
            HostError: The disk refused to be read.
        """
        return self._records.get_many(table, keys)

    def scan(self, table: str, start: bytes = b"", count_max: int = 1_000) -> Iterator[tuple[bytes, bytes]]:
        """Yield at most ``count_max`` pairs in key order, as they were at the call, from ``start`` on.

        Raises:
            HostError: The disk refused to be read.
        """
        return iter(self._records.scan(table, start, count_max))

    def damaged(self, table: str) -> Sequence[DamagedRow]:
        """Return the damaged rows of a table that were met since the file was opened, and are not mended."""
        return self.damage.rows(table)

    def state(self) -> StoreState:
        """Return who the store is and how far it has come, as of the last commit of any process.

        Raises:
            HostError: The disk refused to be read.
        """
        return StoreState._make(self._reading.rows(GET_STATE)[0])

    def fold(self) -> StoreState:
        """Write what stands in the write-ahead log into the file, and one empty group behind it into the log.

        For the thread that commits (NODE-FOLD). The file without its log is older than the state that is returned, so
        whoever remembers that notices when the log is lost. Nothing is written when nothing was committed since the
        last time.

        Raises:
            HostError: The disk refused; nothing is lost.
        """
        self._check_file()
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
        """Fold the write-ahead log into the file and release both connections.

        A file that was written over stays open and is left as it is, with its log: both are needed to see what can be
        saved. The process must then end without another word to SQLite (``os._exit``).
        """
        if self._content.fault is not None:
            return
        self._reader.close()
        self._writer.close()

    def _check_file(self) -> None:
        """Raise StoreFault unless the files at the path are those that are open, and what was written to them."""
        self._place.check()
        self._content.check()

    def _written_state(self) -> StoreState:
        return StoreState._make(self._writer.execute(GET_STATE).fetchone())

    def _transact(self, last: dict[tuple[str, bytes], bytes | None], packet_changes: list[PacketChange]) -> None:
        self._writer.execute("BEGIN IMMEDIATE")
        self._write_records(last)
        if packet_changes:
            self._packet_writer.write(packet_changes)
        self._writer.execute(_GROW)
        self._writer.execute("COMMIT")
        if packet_changes:
            self._packet_writer.publish()

    def _write_records(self, last: dict[tuple[str, bytes], bytes | None]) -> None:
        puts = [(*place, value, record_checksum(*place, value)) for place, value in last.items() if value is not None]
        for chunk in in_chunks(puts):
            values = [value for put in chunk for value in put]
            self._writer.execute(_PUT + ",".join([_PUT_ROW] * len(chunk)) + _PUT_OVER, values)
        removals = [place for place, value in last.items() if value is None]
        if removals:
            self._writer.executemany(_REMOVE, removals)

    def _roll_back(self) -> None:
        # Nothing is left to do after a commit, or after an error that made SQLite roll back, such as a full disk.
        if self._writer.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # the disk that refused the group may refuse this too
                self._writer.execute("ROLLBACK")
