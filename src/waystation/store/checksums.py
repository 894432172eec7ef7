"""Checksums of the rows of the SQLite store: written with every put, compared at every read (NODE-ROT).

``store.sqlite`` and its readers call it, and ``deep_check`` for a whole file. A checksum is one integer of 64 bits in
the row. Its upper half is over what names the row, its lower half over what the row holds, so that a reader knows which
of the two to believe, and compares no more than it reads.

- A record: CRC-32 of table and key; CRC-32 of the value.
- A packet: CRC-32 of its texts and identifiers; CRC-32 of the bytes that are served. Each has a weighted sum of numbers
  added, which SQLite computes while it reads the row: columns that a page does not use need not be fetched for it.

CRC-32 finds every change of up to 32 neighbouring bits, a sum every changed bit, and both miss other damage once in
2**32. They are no protection against a person who writes to the file. A row from before layout 3 has NULL.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import mul
from typing import Any, Final
from zlib import crc32

from waystation.core.packets import PacketEntry, PacketRow

__all__ = [
    "HELD_LEFT",
    "NAMED_LEFT",
    "PacketCheck",
    "is_key_whole",
    "is_named_whole",
    "is_value_whole",
    "packet_checksum",
    "record_checksum",
    "whole_entries",
    "whole_entry",
    "whole_row",
    "whole_rows",
    "with_changed",
]

PacketCheck = Callable[[bytes], bool]
"""Whether a packet's bytes have the identifier that they name: for rows that have no checksum."""

_LOW: Final = (1 << 32) - 1
_HALF: Final = 1 << 31
"""The upper half is kept as a signed number, since an integer of SQLite is signed."""
_NUMBER_MAX: Final = 1 << 53
"""Sums of numbers up to this are exact in SQLite; a packet's own numbers are JSON integers, which are not larger."""

_SERVED: Final = {"seq": 3, "hidden": 5, "order_at": 7, "expires_at": 11, "timestamp": 13, "received_at": 17}
"""Weights of the numbers by which a packet is found and served, in the lower half. Odd, so that no changed bit
vanishes, and each another, so that two exchanged columns do not."""
_OTHERS: Final = {"kept": 3, "author_key": 5, "type_key": 7, "stored_at": 11}
"""Weights of the other numbers, in the upper half."""

_SHOWN: Final = 0  # ``hidden`` of a new packet
_NEVER: Final = -1  # what counts for ``expires_at`` where there is none


def _sum_of(weights: dict[str, int]) -> str:
    columns = {"expires_at": f"coalesce(p.expires_at, {_NEVER})"}
    return " + ".join(f"{columns.get(column, f'p.{column}')} * {weight}" for column, weight in weights.items())


HELD_LEFT: Final = f"((p.checksum & {_LOW}) - ({_sum_of(_SERVED)})) & {_LOW}"
"""Of table ``packets p``: the CRC-32 that the served bytes must have. NULL without a checksum."""

NAMED_LEFT: Final = f"((p.checksum >> 32) + {_HALF} - ({_sum_of(_OTHERS)})) & {_LOW}"
"""Of table ``packets p``: the CRC-32 that texts and identifiers must have. NULL without a checksum."""


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
    expires_at = _NEVER if row.expires_at is None else row.expires_at
    served = (row.seq, _SHOWN, row.order_at, expires_at, row.timestamp, row.received_at)
    others = (row.kept, author_key, type_key, row.stored_at)
    if max(map(abs, served + others)) > _NUMBER_MAX:
        return None
    others_sum: int = sum(map(mul, others, _OTHERS.values()))
    served_sum: int = sum(map(mul, served, _SERVED.values()))
    named, held = (_crc_of_texts(row) + others_sum) & _LOW, (crc32(row.downgrade + row.canonical) + served_sum) & _LOW
    return (named - _HALF << 32) + held


def with_changed(column: str, value: str) -> str:
    """Return the SQL that sets a number of a packet and keeps its checksum true; one that was not true stays so.

    Args:
        column: Name of the number, one of those that are served.
        value: SQL of its new value.
    """
    low = f"(checksum & {_LOW})"
    moved = f"(({low} + {_SERVED[column]} * ({value} - {column})) & {_LOW})"
    return f"{column} = {value}, checksum = checksum - {low} + {moved}"


def whole_row(found: tuple[Any, ...], check: PacketCheck) -> PacketRow | None:
    """Return a packet, or None for a damaged row.

    Args:
        found: The columns of ``PacketRow``, ``HELD_LEFT`` and ``NAMED_LEFT``.
        check: For a row without a checksum.
    """
    *columns, held, named = found
    row = PacketRow._make(columns)
    try:
        if held is None:
            is_whole = check(row.canonical)
        else:
            is_whole = crc32(row.downgrade + row.canonical) == held and _crc_of_texts(row) == named
    except (TypeError, AttributeError):  # a column of another type: its header is damaged
        return None
    return row if is_whole else None


def is_named_whole(row: PacketRow, named: object) -> bool:
    """Return whether texts and identifiers of a packet are those that were written; ``named`` is ``NAMED_LEFT``."""
    try:
        return _crc_of_texts(row) == named
    except (TypeError, AttributeError, UnicodeEncodeError):
        return False


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


def whole_entries(fetched: Sequence[tuple[Any, ...]], check: PacketCheck) -> list[PacketEntry]:
    """Return those of ``whole_entry`` that are whole, in half the time when all are."""
    try:
        good = [
            _make_entry((seq, order_at, received_at, canonical, downgrade))
            for seq, order_at, received_at, canonical, downgrade, held in fetched
            if crc32(downgrade + canonical) == held
        ]
    except TypeError:
        good = []
    if len(good) == len(fetched):
        return good
    return [entry for found in fetched if (entry := whole_entry(found, check)) is not None]


def whole_rows(fetched: Sequence[tuple[Any, ...]], check: PacketCheck) -> list[PacketRow]:
    """Return those of ``whole_row`` that are whole."""
    return [row for found in fetched if (row := whole_row(found, check)) is not None]


_make_entry: Final = partial(tuple.__new__, PacketEntry)  # PacketEntry(*values) takes twice as long


def _crc_of_texts(row: PacketRow) -> int:
    texts = f"{row.author_id}\0{row.content_type}\0{row.source}".encode()
    return crc32(texts, crc32(row.mark, crc32(row.packet_id)))
