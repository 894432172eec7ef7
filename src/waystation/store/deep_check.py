"""Reads every row of a store's file and compares it with its checksum; nothing is written (NODE-ROT).

``waystation check --deep`` and the backup call it: a path goes in, one ``TableReport`` for each table comes out. A node
may use the file meanwhile: each statement reads a part and pins no snapshot for long, but for the one that compares the
indexes with the rows, which takes a second for each hundred megabytes.
"""

import contextlib
import datetime
import sqlite3
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError
from waystation.core.packets import PacketRow
from waystation.store.checksums import PacketCheck, is_key_whole, is_named_whole, is_value_whole, whole_row
from waystation.store.sqlite_file import STORE_EXIT_CODE, is_damage, refused
from waystation.store.sqlite_layout import open_read_only
from waystation.store.sqlite_pages import COLUMNS

__all__ = ["SHOWN_MAX", "TableReport", "check_rows"]

SHOWN_MAX: Final = 20
"""Damaged rows of a table, or faults of the file, that a report names."""

_TEXT_MAX: Final = 128
"""Characters of a name that are shown; what is not printable is escaped."""

_ROWS_MAX: Final = 256  # of one statement: a quarter of a megabyte of small packets
_DOUBTED: Final = " or another: what names the row is damaged too"
_RECORDS: Final = "SELECT rowid, tbl, key, value, checksum FROM records"
_PACKETS: Final = f"SELECT p.seq, {COLUMNS}, p.checksum FROM packets p"  # noqa: S608 - names of columns only
_FAULTS: Final = f"PRAGMA integrity_check({SHOWN_MAX})"
_TOTALS: Final = (
    "SELECT newest_seq >= coalesce((SELECT max(seq) FROM packets), 0)"
    " AND bytes_kept = coalesce((SELECT sum(length(canonical)) FROM packets), 0) FROM packet_state"
)
_HELD: Final = "SELECT bytes_held = coalesce((SELECT sum(length(canonical) * kept) FROM packets), 0) FROM packet_state"
_HAS_HELD: Final = "SELECT count(*) FROM pragma_table_info('packet_state') WHERE name = 'bytes_held'"
_HAS_CHECKSUMS: Final = "SELECT count(*) FROM pragma_table_info('packets') WHERE name = 'checksum'"


class TableReport(NamedTuple):
    """What was found in one table, or in the file as a whole."""

    name: str
    """Name of the table of a record, ``packets``, or ``file``."""
    rows: int
    without_checksum: int
    """Rows from before layout 3; of them a packet was judged by its identifier, and a record not at all."""
    damaged: int
    shown: tuple[str, ...]
    """The first damaged rows, at most ``SHOWN_MAX``, each bounded: a packet's ``seq``, with id, author, type and time
    as the row has them; a record's key in hexadecimal digits. A row whose names are damaged themselves says so."""


class _Count:
    """What is known of one table so far."""

    def __init__(self) -> None:
        self.rows = self.without_checksum = self.damaged = 0
        self.shown: list[str] = []

    def add(self, key: str, *, has_checksum: bool, is_whole: bool) -> None:
        self.rows += 1
        self.without_checksum += not has_checksum
        if not is_whole:
            self.damaged += 1
            if len(self.shown) < SHOWN_MAX:
                self.shown.append(key)

    def report(self, name: str) -> TableReport:
        return TableReport(name, self.rows, self.without_checksum, self.damaged, tuple(self.shown))


def check_rows(path: Path, check: PacketCheck, on_progress: Callable[[int], None]) -> list[TableReport]:
    """Return what was found in each table, in the order of their names, and in the file at the end.

    Args:
        path: The store's file.
        check: Judges packets by their identifiers, besides the checksums.
        on_progress: Called now and then with the number of rows read so far.

    Raises:
        HostError: The file cannot be read at all, or has no checksums yet: it is of a layout before 3.
    """
    try:
        with contextlib.closing(open_read_only(path)) as connection:
            if connection.execute(_HAS_CHECKSUMS).fetchone() == (0,):
                raise HostError(f"{path} has no checksums yet; run: waystation upgrade", exit_code=STORE_EXIT_CODE)
            tables: dict[str, _Count] = {}
            for count, (name, key, has_checksum, is_whole) in enumerate(_judged(connection, check), 1):
                tables.setdefault(name, _Count()).add(key, has_checksum=has_checksum, is_whole=is_whole)
                if count % _ROWS_MAX == 0:
                    on_progress(count)
            return [*(tables[name].report(name) for name in sorted(tables)), _check_whole(connection)]
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise refused(path, "cannot be read", error) from error


_Verdict = tuple[str, str, bool, bool]
"""Table, key to show, whether there is a checksum, whether the row is whole."""


def _judged(connection: sqlite3.Connection, check: PacketCheck) -> Iterator[_Verdict]:
    """Yield a verdict on every row of both tables."""

    def packet(found: tuple[Any, ...]) -> _Verdict:
        seq, *columns, checksum = found
        row = whole_row(tuple(columns), check)
        if row is not None and check(row.canonical):
            return "packets", "", checksum is not None, True
        return "packets", _packet_name(seq, tuple(columns)), checksum is not None, False

    def record(found: tuple[Any, ...]) -> _Verdict:
        rowid, table, key, value, checksum = found
        if type(table) is not str or type(key) is not bytes:
            return "records", f"row {rowid}", checksum is not None, False
        is_named = checksum is None or is_key_whole(table, key, checksum)
        is_whole = is_named and type(value) is bytes and (checksum is None or is_value_whole(value, checksum))
        name = "" if is_whole else f"key {_bounded(key.hex())}{'' if is_named else _DOUBTED}"
        return _bounded(table), name, checksum is not None, is_whole

    def unread(name: str) -> Callable[[int], _Verdict]:
        return lambda rowid: (name, f"row {rowid}, which cannot be read", True, False)

    yield from chain(
        _rows(connection, _RECORDS, "records", "sqlite_autoindex_records_1", record, unread("records")),
        _rows(connection, _PACKETS, "packets", "packets_by_order", packet, unread("packets")),
    )


def _packet_name(seq: object, columns: tuple[Any, ...]) -> str:
    """Return what a person can look for: ``seq`` and what else the damaged row says of its packet."""
    *fields, _held, named = columns
    row = PacketRow._make(fields)
    parts = []
    if type(row.packet_id) is bytes:
        parts.append(f"id {_bounded(row.packet_id.hex())}")
    if type(row.content_type) is str and type(row.author_id) is str:
        parts.append(f"{_bounded(row.content_type)} of {_bounded(row.author_id)}")
    if type(row.timestamp) is int:
        parts.append(_time(row.timestamp))
    doubted = "" if is_named_whole(row, named) else _DOUBTED
    return f"{seq} ({', '.join(parts)}){doubted}"


def _bounded(text: str) -> str:
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text[:_TEXT_MAX])
    return shown if len(text) <= _TEXT_MAX else f"{shown}…"


def _time(seconds: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s"  # an author's clock may say anything


def _rows(
    connection: sqlite3.Connection,
    select: str,
    table: str,
    index: str,
    judge: Callable[[tuple[Any, ...]], _Verdict],
    unread: Callable[[int], _Verdict],
) -> Iterator[_Verdict]:
    """Yield a verdict on each row, in parts; where a part cannot be read, on each of its rows by itself."""
    last = -(1 << 63)
    while True:
        try:
            part = connection.execute(f"{select} WHERE rowid > ? ORDER BY rowid LIMIT ?", (last, _ROWS_MAX)).fetchall()
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            break
        yield from map(judge, part)
        if len(part) < _ROWS_MAX:
            return
        last = part[-1][0]
    names = f"SELECT rowid FROM {table} INDEXED BY {index} WHERE rowid > ? ORDER BY rowid"  # noqa: S608 - as above
    for (rowid,) in connection.execute(names, (last,)).fetchall():
        try:
            yield from map(judge, connection.execute(f"{select} WHERE rowid = ?", (rowid,)).fetchall())
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            yield unread(rowid)


def _check_whole(connection: sqlite3.Connection) -> TableReport:
    """Return the faults of the file: pages, indexes that do not fit their rows, and sums that do not fit either."""
    faults: list[str] = []
    try:
        faults += [text for (text,) in connection.execute(_FAULTS) if text != "ok"]
        # A file of layout 3 is checked as it is.
        sums = [_TOTALS, _HELD] if connection.execute(_HAS_HELD).fetchone() == (1,) else [_TOTALS]
        if not faults and any(connection.execute(each).fetchone() != (1,) for each in sums):
            faults.append("packet_state does not fit the packets")
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        faults.append(str(error))
    return TableReport("file", 0, 0, len(faults), tuple(faults))
