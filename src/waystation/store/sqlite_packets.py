"""Packet table of the SQLite store: its writer for commits, and its reader.

``store.sqlite`` has both: the writer takes changes inside its transaction, the reader answers ``core.packets`` queries.
``seq`` is the row id, so rows are stored in order of arrival. Authors and types are indexed by a 48-bit number computed
from their text (``sqlite_pages.search_key``). This makes the indexes a fifth as large and needs no table of names.
Totals, such as the newest ``seq`` and the stored bytes, are kept in one row of ``packet_state``. ``Totals`` has them in
memory for the reader.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from waystation.core.packets import (
    DropPackets,
    Found,
    HidePackets,
    LowerWitness,
    PacketChange,
    PacketEntry,
    PacketPage,
    PacketQuery,
    PacketRow,
    PutPacket,
)
from waystation.store.checksums import PacketCheck, packet_checksum, whole_entries, whole_row, whole_rows, with_changed
from waystation.store.damage import Damage
from waystation.store.id_filter import IdFilter
from waystation.store.sqlite_file import Reading, in_chunks, is_damage
from waystation.store.sqlite_pages import (
    COLUMNS,
    ENTRY_COLUMNS,
    Orders,
    one_of_page_statement,
    orders_of,
    page_statement,
    places_statement,
    search_key,
    window_end_statement,
)

__all__ = [
    "FORGOTTEN_CLEANED_MAX",
    "PACKETS_TABLE",
    "SqlitePacketReader",
    "SqlitePacketWriter",
    "Totals",
    "packet_key",
]

PACKETS_TABLE: Final = "packets"
"""Name under which damaged packets are counted."""

FORGOTTEN_CLEANED_MAX: Final = 256
"""Dropped ids whose time is over that one commit removes; some 300 µs."""

_INSERT_COLUMNS: Final = (*PacketRow._fields, "author_key", "type_key", "checksum")
_INSERT: Final = f"INSERT INTO packets ({', '.join(_INSERT_COLUMNS)}) VALUES "  # noqa: S608 - field names only
_INSERT_ROW: Final = f"({', '.join('?' * len(_INSERT_COLUMNS))})"
_STORED_ROWS: Final = f"SELECT {COLUMNS} FROM packets p WHERE p.packet_id IN "  # noqa: S608 - field names only
_FORGOTTEN_IDS: Final = "SELECT packet_id, until FROM forgotten WHERE packet_id IN "
_MARKED_ROWS: Final = f"SELECT {COLUMNS} FROM packets p WHERE p.mark <> x'' AND p.mark IN "  # noqa: S608
_FREE_MARK: Final = "UPDATE packets SET mark = x'' WHERE seq = ?"
_DELETE_ONE: Final = "DELETE FROM packets WHERE seq = ? RETURNING length(canonical), length(canonical) * kept"
_STORED_BYTES: Final = (
    "SELECT packet_id, length(canonical), length(canonical) * kept, seq FROM packets WHERE packet_id IN "
)
_DELETE: Final = "DELETE FROM packets WHERE packet_id IN "
_REMEMBER: Final = "INSERT OR REPLACE INTO forgotten VALUES "
_HIDE: Final = f"UPDATE packets SET {with_changed('hidden', '?1')} WHERE packet_id IN "  # noqa: S608 - no values
_LOWER: Final = f"UPDATE packets SET {with_changed('received_at', '?1')} WHERE packet_id = ?2 AND received_at > ?1"  # noqa: S608
_CLEAN: Final = (
    "DELETE FROM forgotten WHERE packet_id IN (SELECT packet_id FROM forgotten WHERE until < ? ORDER BY until LIMIT ?)"
)
_TOTALS: Final = ("newest_seq", "newest_stored_at", "bytes_kept", "bytes_held", "early_s_max", "late_s_max")
_GET_TOTALS: Final = f"SELECT {', '.join(_TOTALS)} FROM packet_state"  # noqa: S608 - constant names
_SET_TOTALS: Final = f"UPDATE packet_state SET {', '.join(f'{name} = ?' for name in _TOTALS)}"  # noqa: S608
_OLDEST_MEMORY: Final = "SELECT min(until) FROM forgotten"

_PACKET: Final = f"SELECT {COLUMNS} FROM packets p WHERE p.packet_id = ?"  # noqa: S608 - field names only
_HIDDEN: Final = "SELECT 1 FROM packets WHERE packet_id = ? AND hidden = 1"
_FORGOTTEN: Final = "SELECT 1 FROM forgotten WHERE packet_id = ? AND until >= ?"
_MARKED: Final = f"SELECT {COLUMNS} FROM packets p WHERE p.mark <> x'' AND p.mark = ?"  # noqa: S608
_EPOCH: Final = "SELECT epoch FROM packet_state"
_HAS_DROPPABLE: Final = (
    "SELECT 1 FROM packets INDEXED BY packets_by_author WHERE author_key = ? AND kept = 0 AND author_id = ? LIMIT 1"
)
_EXPIRED: Final = (
    "SELECT packet_id, length(canonical) FROM packets INDEXED BY packets_by_expiry"
    " WHERE kept = 0 AND expires_at < ? ORDER BY expires_at, seq LIMIT ?"
)
_OLD: Final = (
    "SELECT packet_id, length(canonical) FROM packets INDEXED BY packets_by_age"
    " WHERE kept = 0 AND stored_at < ? AND (expires_at IS NULL OR expires_at >= ?) ORDER BY stored_at, seq LIMIT ?"
)

_AUTHOR_KEYS_CACHED: Final = 65_536  # 10 MB when full; a key costs 1 µs to make
_FOR_EVER: Final = 1 << 63

# Rows fetched at once: enough that Python's share is small, and few enough that packets of the greatest size, which a
# page has no room for, are not fetched by the hundred.
_FETCHED_FIRST: Final = 8
_FETCHED_MAX: Final = 128


class Totals(NamedTuple):
    """What is known of the table without looking at it."""

    newest_seq: int
    newest_stored_at: int
    """Greatest ``stored_at`` ever committed: the clock by which dropped ids are forgotten."""
    bytes_kept: int
    bytes_held: int
    """Part of ``bytes_kept``: of packets that retention never drops."""
    early_s_max: int
    """By how many seconds ``timestamp`` was ever ahead of ``order_at``; never falls."""
    late_s_max: int
    """By how many it was ever behind."""


class SqlitePacketWriter:
    """Carries out packet changes inside transactions that ``SqliteStore.commit`` opens and ends, on one thread."""

    def __init__(
        self, connection: sqlite3.Connection, damage: Damage, check: PacketCheck, *, ids_in_memory: bool
    ) -> None:
        """Read the state of the file.

        Args:
            connection: With the packet tables.
            damage: Takes note of damaged rows that a put replaces.
            check: Judges rows without a checksum.
            ids_in_memory: Whether to keep an ``IdFilter`` over all known ids. Cost: a second per million packets now.
        """
        self._connection = connection
        self._damage = damage
        self._check = check
        self._key = lru_cache(_AUTHOR_KEYS_CACHED)(search_key)
        self._handlers: dict[type, Callable[[Any], None]] = {
            PutPacket: self._put,
            LowerWitness: self._lower,
            HidePackets: self._hide,
            DropPackets: self._drop,
        }
        self.totals = self._now = Totals(*self._rows(_GET_TOTALS)[0])
        """As of the last commit; read by any thread."""
        self._oldest_memory: int | None = self._rows(_OLDEST_MEMORY)[0][0]
        self._removed: list[int] = []
        self.ids = IdFilter() if ids_in_memory else None
        """Every id this table knows, if wanted; asked by any thread."""
        self._learn_ids(0)

    def write(self, changes: Sequence[PacketChange]) -> None:
        """Carry out changes in order; ``publish`` updates the reader after the transaction, unless that fails."""
        self._removed.clear()
        self._now = Totals(*self._rows(_GET_TOTALS)[0])
        if self._now != self.totals:  # another process has written to the file
            self._learn_ids(self.totals.newest_seq)
            self._oldest_memory = self._rows(_OLDEST_MEMORY)[0][0]
        for kind, run in groupby(changes, type):
            self._handlers[kind](list(run))
        self._clean()
        self._connection.execute(_SET_TOTALS, self._now)

    def publish(self) -> None:
        """Let readers see the totals of the transaction that has just been committed."""
        self.totals = self._now
        for seq in self._removed if self._damage.any else ():
            self._damage.mended(PACKETS_TABLE, packet_key(seq))

    def _learn_ids(self, seq_after: int) -> None:
        if self.ids is not None:
            for (packet_id,) in self._connection.execute("SELECT packet_id FROM packets WHERE seq > ?", (seq_after,)):
                self.ids.add(packet_id)
            for (packet_id,) in self._connection.execute("SELECT packet_id FROM forgotten"):
                self.ids.add(packet_id)

    def _put(self, puts: list[PutPacket]) -> None:
        fresh = self._fresh(puts)
        if fresh and fresh[0].seq <= self._now.newest_seq:
            raise sqlite3.IntegrityError(f"seq {fresh[0].seq} is not above {self._now.newest_seq}")
        for chunk in in_chunks(fresh):
            values: list[object] = []
            for row in chunk:
                values += row
                author_key, type_key = self._key(row.author_id), self._key(row.content_type)
                values += (author_key, type_key, packet_checksum(row, author_key, type_key))
            self._connection.execute(_INSERT + ",".join([_INSERT_ROW] * len(chunk)), values)
        if fresh:
            # Before the commit, so that no other thread can see a stored packet the filter does not hold yet.
            if self.ids is not None:
                for row in fresh:
                    self.ids.add(row.packet_id)
            self._now = Totals(
                max(self._now.newest_seq, fresh[-1].seq),
                max(self._now.newest_stored_at, *map(attrgetter("stored_at"), fresh), 0),
                self._now.bytes_kept + sum(len(row.canonical) for row in fresh),
                self._now.bytes_held + sum(len(row.canonical) for row in fresh if row.kept),
                max(self._now.early_s_max, *(row.timestamp - row.order_at for row in fresh)),
                max(self._now.late_s_max, *(row.order_at - row.timestamp for row in fresh)),
            )

    def _fresh(self, puts: list[PutPacket]) -> list[PacketRow]:
        """Return the rows whose ids and marks are new, also among themselves."""
        ids = self.ids
        known_until = self._known_until([p.row.packet_id for p in puts if ids is None or ids.may_hold(p.row.packet_id)])
        taken = self._taken_marks([put.row.mark for put in puts if put.row.mark])
        clock = self._now.newest_stored_at
        fresh = []
        for (row,) in puts:
            if known_until.get(row.packet_id, -1) >= max(clock, row.stored_at) or row.mark in taken:
                continue
            known_until[row.packet_id] = _FOR_EVER
            if row.mark:
                taken.add(row.mark)
            clock = max(clock, row.stored_at)
            fresh.append(row)
        return fresh

    def _known_until(self, packet_ids: list[bytes]) -> dict[bytes, int]:
        known: dict[bytes, int] = dict(self._in(_FORGOTTEN_IDS, packet_ids))
        for found in self._in(_STORED_ROWS, packet_ids):
            row = PacketRow._make(found[: len(PacketRow._fields)])
            # NODE-ROT: whoever sends a damaged packet again mends it, so its row makes room.
            if whole_row(found, self._check) is None:
                self._remove_damaged(row)
            else:
                known[row.packet_id] = _FOR_EVER
        return known

    def _taken_marks(self, marks: list[bytes]) -> set[bytes]:
        """Return those of ``marks`` that a packet bears; a damaged row bears none any more."""
        taken = set()
        for found in self._in(_MARKED_ROWS, marks):
            row = PacketRow._make(found[: len(PacketRow._fields)])
            if whole_row(found, self._check) is None:
                self._damage.note(PACKETS_TABLE, packet_key(row.seq), key_is_good=False)
                self._connection.execute(_FREE_MARK, (row.seq,))
            else:
                taken.add(row.mark)
        return taken

    def _remove_damaged(self, row: PacketRow) -> None:
        # Noted first: it may be that nobody has read it yet.
        self._damage.note(PACKETS_TABLE, packet_key(row.seq), key_is_good=False)
        for size_bytes, held_bytes in self._rows(_DELETE_ONE, (row.seq,)):
            self._freed(size_bytes, held_bytes)
        self._removed.append(row.seq)

    def _freed(self, size_bytes: int | None, held_bytes: int | None) -> None:
        now = self._now
        self._now = now._replace(
            bytes_kept=now.bytes_kept - (size_bytes or 0), bytes_held=now.bytes_held - (held_bytes or 0)
        )

    def _lower(self, changes: list[LowerWitness]) -> None:
        for packet_id, received_at in changes:
            self._connection.execute(_LOWER, (received_at, packet_id))

    def _hide(self, changes: list[HidePackets]) -> None:
        for packet_ids, hidden in changes:
            self._in(_HIDE, packet_ids, hidden)

    def _drop(self, changes: list[DropPackets]) -> None:
        for packet_ids, remember_until in changes:
            stored = self._in(_STORED_BYTES, list(dict.fromkeys(packet_ids)))
            for chunk in in_chunks(stored):
                values = [value for packet_id, *_ in chunk for value in (packet_id, remember_until)]
                self._connection.execute(_REMEMBER + ",".join(["(?, ?)"] * len(chunk)), values)
            if stored:
                self._in(_DELETE, [packet_id for packet_id, *_ in stored])
                for _, size_bytes, held_bytes, seq in stored:
                    self._removed.append(seq)
                    self._freed(size_bytes, held_bytes)
                if self._oldest_memory is None or remember_until < self._oldest_memory:
                    self._oldest_memory = remember_until

    def _clean(self) -> None:
        """Remove a few ids whose time is over; they count as unknown since then, so no caller waits for it."""
        if self._oldest_memory is not None and self._oldest_memory < self._now.newest_stored_at:
            self._connection.execute(_CLEAN, (self._now.newest_stored_at, FORGOTTEN_CLEANED_MAX))
            self._oldest_memory = self._rows(_OLDEST_MEMORY)[0][0]

    def _in(self, statement: str, values: Sequence[bytes], *first: object) -> list[Any]:
        """Run a statement that ends in IN over all values, few statements for many."""
        found: list[Any] = []
        for chunk in in_chunks(values):
            found += self._rows(f"{statement}({','.join('?' * len(chunk))})", (*first, *chunk))
        return found

    def _rows(self, statement: str, arguments: Iterable[object] = ()) -> list[Any]:
        return self._connection.execute(statement, tuple(arguments)).fetchall()


_Whole = Callable[[Sequence[tuple[Any, ...]], PacketCheck], list[Found]]


class SqlitePacketReader:
    """Implements ``core.packets.PacketReader`` for the thread that reads.

    Where the writer keeps ids in memory, a packet that another process has put is unknown here until this process
    commits a packet change. Everything else is read from the file.

    Raises:
        HostError: From any of the reads: the disk refused to be read.
    """

    def __init__(self, reading: Reading, writer: SqlitePacketWriter, damage: Damage, check: PacketCheck) -> None:
        """Read what ``writer`` writes.

        Args:
            reading: The connection.
            writer: Has the totals, and the ids in memory.
            damage: Takes note of damaged rows; they are left out of every answer (NODE-ROT).
            check: Judges rows without a checksum.
        """
        self._reading = reading
        self._writer = writer
        self._damage = damage
        self._check = check
        ((self._epoch,),) = reading.rows(_EPOCH)

    def page(self, query: PacketQuery) -> PacketPage[PacketRow]:
        """Return the next packets of a query.

        Cost: at most ``sqlite_pages.ROWS_LOOKED_AT_MAX`` packets are looked at.
        """
        return self._page(query, COLUMNS, whole_rows)

    def entries(self, query: PacketQuery) -> PacketPage[PacketEntry]:
        """Return the same page with less of each packet; half the columns take two thirds of the time."""
        return self._page(query, ENTRY_COLUMNS, whole_entries)

    def _page(self, query: PacketQuery, columns: str, whole: _Whole[Found]) -> PacketPage[Found]:
        assert query.rows_max >= 1
        assert not (query.by_seq and query.descending)
        with self._reading.snapshot() as connection:
            try:
                rows, is_cut = self._take(connection, query, columns, whole)
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
                rows, is_cut = self._take_singly(connection, query, columns, whole)
            if is_cut:
                last = rows[-1]
                return PacketPage(rows, (0 if query.by_seq else last.order_at, last.seq))
            ends = connection.execute(*window_end_statement(query, self._orders(query))).fetchall()
            return PacketPage(rows, ends[0] if ends else None)

    def _take(
        self, connection: sqlite3.Connection, query: PacketQuery, columns: str, whole: _Whole[Found]
    ) -> tuple[list[Found], bool]:
        """Return rows and whether the page was full before the window ended."""
        rows: list[Found] = []
        room_bytes, count = query.bytes_max, _FETCHED_FIRST
        cursor = connection.execute(*page_statement(query, columns, self._orders(query)))
        try:
            # One row more than the page takes, so that its end is known.
            while fetched := cursor.fetchmany(min(count, query.rows_max + 1 - len(rows))):
                good = self._good(fetched, whole)
                rows += good
                sizes = [len(row.canonical) for row in good]
                room_bytes -= sum(sizes)
                if room_bytes <= 0 or len(rows) > query.rows_max:
                    return _cut(rows, query), True
                count = min(_FETCHED_MAX, room_bytes // max(*sizes, 1, 1) + 1)
            return rows, False
        finally:
            cursor.close()

    def _take_singly(
        self, connection: sqlite3.Connection, query: PacketQuery, columns: str, whole: _Whole[Found]
    ) -> tuple[list[Found], bool]:
        """Return the same as ``_take`` from a range where a page of the file cannot be read (NODE-ROT).

        Each packet is read by itself, so that one that cannot be read is left out alone. Places come from the indexes;
        when those cannot be read either, nothing can.
        """
        rows: list[Found] = []
        room_bytes = query.bytes_max
        for (seq,) in connection.execute(*places_statement(query, self._orders(query))).fetchall():
            try:
                fetched = connection.execute(*one_of_page_statement(query, seq, columns)).fetchall()
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
                self._damage.note(PACKETS_TABLE, packet_key(seq), key_is_good=False)
                continue
            good = self._good(fetched, whole)
            rows += good
            room_bytes -= sum(len(row.canonical) for row in good)
            if room_bytes <= 0 or len(rows) > query.rows_max:
                return _cut(rows, query), True
        return rows, False

    def _orders(self, query: PacketQuery) -> Orders:
        totals = self._writer.totals
        return orders_of(query, totals.early_s_max, totals.late_s_max)

    def _good(self, fetched: Sequence[tuple[Any, ...]], whole: _Whole[Found]) -> list[Found]:
        """Return the rows that are whole, and note the others."""
        good = whole(fetched, self._check)
        if len(good) < len(fetched):
            whole_seqs = {row.seq for row in good}
            for found in fetched:
                if found[0] not in whole_seqs:
                    self._damage.note(PACKETS_TABLE, packet_key(found[0]), key_is_good=False)
        return good

    def _one(self, statement: str, value: bytes) -> PacketRow | None:
        """Return the packet that a statement finds, None where there is none or it is damaged."""
        try:
            rows = self._good(self._reading.rows(statement, (value,), damage_passes=True), whole_rows)
        except sqlite3.Error:  # its page cannot be read, so neither can its number
            self._damage.note(PACKETS_TABLE, value, key_is_good=False)
            return None
        return rows[0] if rows else None

    def packet(self, packet_id: bytes) -> PacketRow | None:
        """Return the stored packet, hidden or not, or None, also for one that is damaged."""
        if self._is_surely_unknown(packet_id):
            return None
        return self._one(_PACKET, packet_id)

    def hidden(self, packet_id: bytes) -> bool:
        """Return whether the packet is stored but hidden."""
        return not self._is_surely_unknown(packet_id) and bool(self._reading.rows(_HIDDEN, (packet_id,)))

    def known(self, packet_id: bytes) -> bool:
        """Return whether the packet is stored and whole, or was within the memory for dropped ones."""
        if self._is_surely_unknown(packet_id):
            return False
        clock = self._writer.totals.newest_stored_at
        return self._one(_PACKET, packet_id) is not None or bool(self._reading.rows(_FORGOTTEN, (packet_id, clock)))

    def marked(self, mark: bytes) -> bytes | None:
        """Return the id of the packet that bears ``mark``, or None."""
        row = self._one(_MARKED, mark)
        return row.packet_id if row is not None else None

    def newest_seq(self) -> int:
        """Return the greatest ``seq`` ever committed, 0 for none."""
        return self._writer.totals.newest_seq

    def epoch(self) -> bytes:
        """Return the 8 random bytes that name this file."""
        return bytes(self._epoch)

    def bytes_kept(self) -> int:
        """Return the sum of canonical bytes stored."""
        return self._writer.totals.bytes_kept

    def bytes_held(self) -> int:
        """Return the sum of canonical bytes of packets that retention never drops."""
        return self._writer.totals.bytes_held

    def has_droppable(self, author_id: str) -> bool:
        """Return whether an author has a packet that retention may drop. Cost: O(its packets that it may not)."""
        return bool(self._reading.rows(_HAS_DROPPABLE, (search_key(author_id), author_id)))

    def droppable(self, stored_before: int, expired_before: int, rows_max: int) -> Sequence[tuple[bytes, int]]:
        """Return id and canonical bytes of packets retention may drop: expired ones first, then the oldest."""
        expired = self._reading.rows(_EXPIRED, (expired_before, rows_max))
        return [*expired, *self._reading.rows(_OLD, (stored_before, expired_before, rows_max - len(expired)))]

    def _is_surely_unknown(self, packet_id: bytes) -> bool:
        ids = self._writer.ids
        return ids is not None and not ids.may_hold(packet_id)


def packet_key(seq: int) -> bytes:
    """Return the key under which a damaged packet is noted."""
    return b"%d" % seq


def _cut(rows: list[Found], query: PacketQuery) -> list[Found]:
    """Return as many rows as a page may hold; there are too many, or too many bytes."""
    kept_bytes = 0
    for count, row in enumerate(rows[: query.rows_max], 1):
        kept_bytes += len(row.canonical)
        if kept_bytes >= query.bytes_max:
            return rows[:count]
    return rows[: query.rows_max]
