"""Damages files of stores: one bit in one column through SQLite, or one bit anywhere in the file."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from waystation.core.records import Record
from waystation.store.memory import MemoryStore

PAGE_BYTES = 4_096  # SQLite's default


def flip_value(value: Any, bit: int) -> Any:
    """Return a value of a column with one bit changed; NULL becomes a number, and empty bytes one byte."""
    if value is None:
        return 1 << bit
    if isinstance(value, int):
        return value ^ 1 << bit
    data = bytearray(value.encode() if isinstance(value, str) else value) or bytearray(1)
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    return data.decode("latin-1") if isinstance(value, str) else bytes(data)


def flip_column(path: Path, table: str, rowid: int, column: str, bit: int = 4) -> None:
    """Change one bit of one column of a closed store, as a disk would: nothing else of the row follows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        [(value,)] = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,)).fetchall()
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (flip_value(value, bit), rowid))


def flip_in_file(path: Path, content: bytes, bit: int = 0) -> None:
    """Change one bit of ``content``, which stands in the file of a closed store exactly once."""
    data = bytearray(path.read_bytes())
    assert data.count(content) == 1
    data[data.index(content) + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def flip_byte(path: Path, offset: int, bit: int) -> None:
    """Change one bit of a closed store at an offset."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def spoil_page_of(path: Path, content: bytes) -> None:
    """Overwrite with zeros the head of the page of the file that has ``content``."""
    data = path.read_bytes()
    at = data.index(content) // PAGE_BYTES * PAGE_BYTES
    path.write_bytes(data[:at] + bytes(8) + data[at + 8 :])


def columns_of(path: Path, table: str) -> list[str]:
    """Return the names of a table's columns."""
    with closing(sqlite3.connect(path)) as connection:
        return [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]


def lose(store: MemoryStore, table: str, key: bytes, *, key_is_good: bool = True) -> None:
    """Have a store in memory answer as the one on disk does for a damaged row: absent, and told to who asks."""
    store.commit([Record(table, key, None)])
    store.damage.note(table, key, key_is_good=key_is_good)
