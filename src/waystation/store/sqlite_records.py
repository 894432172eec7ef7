"""Reads the records of the SQLite store and leaves out every row that is not as it was written (NODE-ROT).

``store.sqlite`` answers ``get``, ``get_many`` and ``scan`` with it. A row is checked against its checksum; one from
before layout 3 has none and passes. Where a page of the file itself cannot be read, the keys come from the index and
each row is read by itself, so that only the rows on that page are missing. When the index cannot be read either, the
read is refused.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from waystation.store.checksums import is_key_whole, is_value_whole
from waystation.store.damage import Damage
from waystation.store.sqlite_file import Reading, in_chunks

__all__ = ["SqliteRecordReader"]

_GET: Final = "SELECT key, value, checksum FROM records WHERE tbl = ? AND key = ?"
_GET_MANY: Final = "SELECT key, value, checksum FROM records WHERE tbl = ? AND key IN ("
_SCAN: Final = "SELECT key, value, checksum FROM records WHERE tbl = ? AND key >= ? ORDER BY key LIMIT ?"
_SCAN_KEYS: Final = (  # of the index alone
    "SELECT key FROM records INDEXED BY sqlite_autoindex_records_1 WHERE tbl = ? AND key >= ? ORDER BY key LIMIT ?"
)

_Row = tuple[Any, Any, Any]
"""Key, value, checksum."""


class SqliteRecordReader:
    """Reads of the table ``records``, for the thread that reads.

    Raises:
        HostError: From any of the reads: the disk refused to be read.
    """

    def __init__(self, reading: Reading, damage: Damage) -> None:
        """Read over ``reading``; ``damage`` takes note of what is left out."""
        self._reading = reading
        self._damage = damage

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value kept for ``key``, or None."""
        found = self._good(table, self._one(table, key))
        return found[0][1] if found else None

    def get_many(self, table: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values kept for those of ``keys`` that have one."""
        found: dict[bytes, bytes] = {}
        for chunk in in_chunks(keys):
            statement = f"{_GET_MANY}{','.join('?' * len(chunk))})"
            try:
                rows = self._reading.rows(statement, (table, *chunk), damage_passes=True)
            except sqlite3.Error:
                rows = [row for key in chunk for row in self._one(table, key)]
            found.update(self._good(table, rows))
        return found

    def scan(self, table: str, start: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        """Return the first ``count_max`` pairs from ``start`` on that are whole, fewer when there are no more."""
        found: list[tuple[bytes, bytes]] = []
        while count := count_max - len(found):
            rows = self._next(table, start, count)
            found += self._good(table, rows)
            # Fewer than asked for is the end for whoever turns pages, so damaged rows must not make a page shorter.
            if len(rows) < count or type(rows[-1][0]) is not bytes:
                break
            start = rows[-1][0] + b"\0"
        return found

    def _next(self, table: str, start: bytes, count: int) -> list[_Row]:
        try:
            return self._reading.rows(_SCAN, (table, start, count), damage_passes=True)
        except sqlite3.Error:
            keys = self._reading.rows(_SCAN_KEYS, (table, start, count))
            return [row for (key,) in keys for row in self._one(table, key)]

    def _one(self, table: str, key: bytes) -> list[_Row]:
        try:
            return self._reading.rows(_GET, (table, key), damage_passes=True)
        except sqlite3.Error:
            return [(key, None, None)]  # there is one, but its page cannot be read

    def _good(self, table: str, rows: Sequence[_Row]) -> list[tuple[bytes, bytes]]:
        """Return the pairs of those rows that are whole, and note the others."""
        damage, good = self._damage, []
        for key, value, checksum in rows:
            named = is_key_whole(table, key, checksum)
            if (named and is_value_whole(value, checksum)) or (checksum is None and type(key) is type(value) is bytes):
                good.append((key, value))
                if damage.any:
                    damage.mended(table, key)
            else:
                damage.note(table, bytes(key) if isinstance(key, bytes) else repr(key).encode(), key_is_good=named)
        return good
