"""Reads every row of a store's file and compares it with its checksum; nothing is written (NODE-ROT).

A node may use the file meanwhile: each statement reads a part and pins no snapshot for long, but for the one that
compares the indexes with the rows, which takes a second for each hundred megabytes.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError
from waystation.store.checksums import PacketCheck, is_key_whole, is_value_whole, whole_row
from waystation.store.sqlite_file import STORE_EXIT_CODE, is_damage, refused
from waystation.store.sqlite_layout import open_read_only
from waystation.store.sqlite_pages import COLUMNS

__all__ = ["SHOWN_MAX", "TableReport", "check_rows"]

SHOWN_MAX: Final = 20
"""Damaged rows of a table, or faults of the file, that a report names."""

_ROWS_MAX: Final = 256  # of one statement: a quarter of a megabyte of small packets
_RECORDS: Final = "SELECT rowid, tbl, key, value, checksum FROM records"
_PACKETS: Final = f"SELECT p.seq, {COLUMNS}, p.checksum FROM packets p"  # noqa: S608 - names of columns only
_FAULTS: Final = f"PRAGMA integrity_check({SHOWN_MAX})"
_TOTALS: Final = (
    "SELECT newest_seq >= coalesce((SELECT max(seq) FROM packets), 0)"
    " AND bytes_kept = coalesce((SELECT sum(length(canonical)) FROM packets), 0) FROM packet_state"
)
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
    """The first damaged rows, at most ``SHOWN_MAX``: a packet's ``seq``, a record's key in hexadecimal digits."""


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
        return "packets", str(seq), checksum is not None, row is not None and check(row.canonical)

    def record(found: tuple[Any, ...]) -> _Verdict:
        rowid, table, key, value, checksum = found
        if type(table) is not str or type(key) is not bytes:
            return "records", str(rowid), checksum is not None, False
        is_whole = checksum is None or (is_key_whole(table, key, checksum) and is_value_whole(value, checksum))
        return table, key.hex(), checksum is not None, is_whole and type(value) is bytes

    def unread(name: str) -> Callable[[int], _Verdict]:
        return lambda rowid: (name, str(rowid), True, False)

    yield from chain(
        _rows(connection, _RECORDS, "records", "sqlite_autoindex_records_1", record, unread("records")),
        _rows(connection, _PACKETS, "packets", "packets_by_order", packet, unread("packets")),
    )


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
        if not faults and connection.execute(_TOTALS).fetchone() != (1,):
            faults.append("packet_state does not fit the packets")
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        faults.append(str(error))
    return TableReport("file", 0, 0, len(faults), tuple(faults))
