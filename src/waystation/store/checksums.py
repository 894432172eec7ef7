"""Checksums of the rows of the SQLite store: written with every put, compared at every read (NODE-ROT).

A checksum is one integer of 64 bits in the row. Its upper half is over what names the row, its lower half over what the
row holds, so that a reader knows which of the two to believe, and compares no more than it reads.

- A record: CRC-32 of table and key; CRC-32 of the value.
- A packet: CRC-32 of its texts and identifiers; CRC-32 of the bytes that are served, plus a weighted sum of the numbers.
  SQLite computes the sum while it reads the row, so a page need not fetch columns that it does not use.

CRC-32 and the sum find every change of up to 32 neighbouring bits in one column, and miss other damage once in 2**32.
They are no protection against a person who writes to the file. A row from before layout 3 has NULL.
"""

from collections.abc import Callable
from typing import Any, Final
from zlib import crc32

from waystation.core.packets import PacketEntry, PacketRow

__all__ = [
    "HELD_LEFT",
    "NAMED",
    "PacketCheck",
    "is_key_whole",
    "is_value_whole",
    "packet_checksum",
    "record_checksum",
    "whole_entry",
    "whole_row",
    "with_changed",
]

PacketCheck = Callable[[bytes], bool]
"""Whether a packet's bytes have the identifier that they name: for rows that have no checksum."""

_LOW: Final = (1 << 32) - 1
_HALF: Final = 1 << 31
"""The upper half is kept as a signed number, since an integer of SQLite is signed."""
_NUMBER_MAX: Final = 1 << 53
"""Sums of numbers up to this are exact in SQLite; a packet's own numbers are JSON integers, which are not larger."""

_WEIGHTS: Final = {
    "seq": 3,
    "hidden": 5,
    "kept": 7,
    "order_at": 11,
    "expires_at": 13,
    "timestamp": 17,
    "author_key": 19,
    "type_key": 23,
    "received_at": 29,
    "stored_at": 31,
}
"""Odd, so that no changed bit vanishes, and each another, so that two exchanged columns do not."""

_NEVER: Final = -1  # what counts for ``expires_at`` where there is none


def _term(column: str, weight: int) -> str:
    return f"coalesce(p.{column}, {_NEVER}) * {weight}" if column == "expires_at" else f"p.{column} * {weight}"


HELD_LEFT: Final = f"((p.checksum & {_LOW}) - ({' + '.join(map(_term, _WEIGHTS, _WEIGHTS.values()))})) & {_LOW}"
"""Of table ``packets p``: the CRC-32 that the served bytes must have. NULL without a checksum."""

NAMED: Final = "p.checksum >> 32"
"""Of table ``packets p``: the CRC-32 of texts and identifiers, less 2**31. NULL without a checksum."""


def record_checksum(table: str, key: bytes, value: bytes) -> int:
    """Return the checksum of a record."""
    return (crc32(key, crc32(table.encode())) - _HALF << 32) + crc32(value)


def is_key_whole(table: str, key: bytes, checksum: object) -> bool:
    """Return whether table and key are those that were written; a checksum that is no integer vouches for nothing."""
    return type(checksum) is int and checksum >> 32 == crc32(key, crc32(table.encode())) - _HALF


def is_value_whole(value: object, checksum: int) -> bool:
    """Return whether a value is the one that was written."""
    return type(value) is bytes and checksum & _LOW == crc32(value)


def packet_checksum(row: PacketRow, author_key: int, type_key: int) -> int | None:
    """Return the checksum of a packet that is not hidden; None where a number is too large for the sum."""
    numbers = {**row._asdict(), "hidden": 0, "author_key": author_key, "type_key": type_key}
    if row.expires_at is None:
        numbers["expires_at"] = _NEVER
    if any(not -_NUMBER_MAX <= numbers[column] <= _NUMBER_MAX for column in _WEIGHTS):
        return None
    total = sum(numbers[column] * weight for column, weight in _WEIGHTS.items())
    return (_crc_of_texts(row) - _HALF << 32) + (crc32(row.downgrade + row.canonical) + total & _LOW)


def with_changed(column: str, value: str) -> str:
    """Return the SQL that sets a number of a packet and keeps its checksum true; one that was not true stays so.

    Args:
        column: Name of the number.
        value: SQL of its new value.
    """
    low = f"(checksum & {_LOW})"
    moved = f"(({low} + {_WEIGHTS[column]} * ({value} - {column})) & {_LOW})"
    return f"{column} = {value}, checksum = checksum - {low} + {moved}"


def whole_row(found: tuple[Any, ...], check: PacketCheck) -> PacketRow | None:
    """Return a packet, or None for a damaged row.

    Args:
        found: The columns of ``PacketRow``, ``HELD_LEFT`` and ``NAMED``.
        check: For a row without a checksum.
    """
    *columns, held, named = found
    row = PacketRow._make(columns)
    try:
        if held is None:
            is_whole = check(row.canonical)
        else:
            is_whole = crc32(row.downgrade + row.canonical) == held and _crc_of_texts(row) - _HALF == named
    except (TypeError, AttributeError):  # a column of another type: its header is damaged
        return None
    return row if is_whole else None


def whole_entry(found: tuple[Any, ...], check: PacketCheck) -> PacketEntry | None:
    """Return as much of a packet as a reader gets, or None for a damaged row.

    Args:
        found: The columns of ``PacketEntry`` and ``HELD_LEFT``.
        check: For a row without a checksum.
    """
    *columns, held = found
    entry = PacketEntry._make(columns)
    try:
        is_whole = check(entry.canonical) if held is None else crc32(entry.downgrade + entry.canonical) == held
    except (TypeError, AttributeError):
        return None
    return entry if is_whole else None


def _crc_of_texts(row: PacketRow) -> int:
    texts = "\0".join((row.author_id, row.content_type, row.source)).encode()
    return crc32(texts, crc32(row.mark, crc32(row.packet_id)))
