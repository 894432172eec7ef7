"""SQL statements that read one page of packets, for each form of ``core.packets.PacketQuery``.

``sqlite_packets`` and ``deep_check`` execute them. A page in history order is read in two parts. The window reads at
most ``ROWS_LOOKED_AT_MAX`` places from one index, or from several merged ones. The packets at these places are then
fetched and filtered until the page is full. Nothing is sorted: indexes return places in order, and merge and join keep
that order. The window starts in two pieces, the rest of the first second and all later seconds. An index on (order_at)
with its implied seq cannot start at a pair.

A page in ``seq`` order scans the table itself, over at most the same number of rows.

Statements are built from constant names and question marks only; values are always bound.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from waystation.core.packets import SNAPSHOT_TYPE, SNAPSHOT_WORD, PacketEntry, PacketQuery, PacketRow
from waystation.store.checksums import HELD_LEFT, NAMED_LEFT

__all__ = [
    "COLUMNS",
    "ENTRY_COLUMNS",
    "INDEXES_MERGED_MAX",
    "ROWS_LOOKED_AT_MAX",
    "SNAPSHOT_CONDITION",
    "Orders",
    "one_of_page_statement",
    "orders_of",
    "page_statement",
    "places_statement",
    "search_key",
    "window_end_statement",
]

ROWS_LOOKED_AT_MAX: Final = 4_096
"""Packets looked at for one page: about 4 ms when none of them matches."""

INDEXES_MERGED_MAX: Final = 16
"""Up to so many authors, or types, are read from their own index; beyond that the whole history is walked."""

COLUMNS: Final = ", ".join([*(f"p.{name}" for name in PacketRow._fields), HELD_LEFT, NAMED_LEFT])
"""Of table ``packets p``, in the order of ``PacketRow``, and what ``checksums.whole_row`` compares."""

ENTRY_COLUMNS: Final = ", ".join([*(f"p.{name}" for name in PacketEntry._fields), HELD_LEFT])
"""Of table ``packets p``, in the order of ``PacketEntry``, and what ``checksums.whole_entry`` compares."""

_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 63) - 1
EVERYWHERE: Final = (_INTEGER_MIN, _INTEGER_MAX)
_KEY_BYTES: Final = 6  # an integer SQLite keeps in 6 bytes; making one collide with a given one takes 2**48 tries

Statement = tuple[str, list[object]]

Orders = tuple[int, int]
"""Least and greatest ``order_at`` that a packet of a query can have."""


def search_key(text: str) -> int:
    """Return the 48-bit number by which an author or a type is indexed; texts that share one are compared later."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest(), "big") - (
        1 << 47
    )


# The index of snapshots stands on these very words, so they are part of layout 4 and never change.
SNAPSHOT_CONDITION: Final = f"type_key = {search_key(SNAPSHOT_TYPE)} AND instr(canonical, x'{SNAPSHOT_WORD.hex()}') > 0"
"""SQL of what ``core.packets.is_snapshot`` finds."""


def orders_of(query: PacketQuery, early_s_max: int, late_s_max: int) -> Orders:
    """Return where in history the packets of a query can be.

    Args:
        query: Names ``since`` and ``until`` by the author's clock.
        early_s_max: By how many seconds a stored packet's ``timestamp`` is ahead of its ``order_at`` at most.
        late_s_max: By how many it is behind at most.
    """
    since, until = query.since, query.until
    least = _INTEGER_MIN if since is None else max(_INTEGER_MIN + 1, since - early_s_max)
    greatest = _INTEGER_MAX if until is None else min(_INTEGER_MAX - 1, until + late_s_max)
    return least, greatest


def page_statement(query: PacketQuery, columns: str = COLUMNS, orders: Orders = EVERYWHERE) -> Statement:
    """Return the statement for the rows of the window that match; the caller fetches as many as the page takes.

    It has no limit of its own, since a damaged row is left out only after it was fetched.
    """
    conditions, arguments = _filters(query)
    if query.by_seq:
        return (
            f"SELECT {columns} FROM packets p WHERE p.seq > ? AND p.seq <= ? AND {conditions} ORDER BY p.seq",  # noqa: S608
            [*_seqs(query), *arguments],
        )
    window, places = _window(query, orders)
    return (
        f"SELECT {columns} FROM ({window}) w CROSS JOIN packets p ON p.seq = w.seq WHERE {conditions}",  # noqa: S608
        [*places, *arguments],
    )


def places_statement(query: PacketQuery, orders: Orders = EVERYWHERE) -> Statement:
    """Return the statement for the numbers of the window's packets, in its order, read from indexes alone."""
    if query.by_seq:
        return (
            "SELECT seq FROM packets INDEXED BY packets_by_order WHERE seq > ? AND seq <= ? ORDER BY seq",
            list(_seqs(query)),
        )
    window, places = _window(query, orders)
    return f"SELECT w.seq FROM ({window}) w", places  # noqa: S608


def one_of_page_statement(query: PacketQuery, seq: int, columns: str = COLUMNS) -> Statement:
    """Return the statement for one packet, as far as it matches."""
    conditions, arguments = _filters(query)
    return f"SELECT {columns} FROM packets p WHERE p.seq = ? AND {conditions}", [seq, *arguments]  # noqa: S608


def window_end_statement(query: PacketQuery, orders: Orders = EVERYWHERE) -> Statement:
    """Return the statement for the place where looking stopped, without a row if everything was looked at."""
    if query.by_seq:
        after = _seq_after(query) + ROWS_LOOKED_AT_MAX
        last = _INTEGER_MAX if query.seq_max is None else query.seq_max
        return "SELECT 0, seq - 1 FROM packets WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 1", [after, last]
    window, places = _window(query, orders)
    return f"SELECT w.order_at, w.seq FROM ({window}) w LIMIT 1 OFFSET {ROWS_LOOKED_AT_MAX - 1}", places  # noqa: S608


def _seq_after(query: PacketQuery) -> int:
    return 0 if query.start is None else query.start[1]


def _seqs(query: PacketQuery) -> tuple[int, int]:
    after = _seq_after(query)
    return after, min(after + ROWS_LOOKED_AT_MAX, _INTEGER_MAX if query.seq_max is None else query.seq_max)


def _window(query: PacketQuery, orders: Orders) -> Statement:
    """Return the statement for the next places in the cheapest order that holds everything the query asks for."""
    if query.ids:
        return _named(query, orders)
    if 0 < len(query.authors) <= INDEXES_MERGED_MAX:
        return _merged("packets_by_author", "author_key", query.authors, query, orders)
    if 0 < len(query.types) <= INDEXES_MERGED_MAX:
        return _merged("packets_by_type", "type_key", query.types, query, orders)
    order_at, seq, edge = _span(query, orders)
    index, condition = (
        ("packets_by_snapshot", f"{SNAPSHOT_CONDITION} AND ") if query.snapshots else ("packets_by_order", "")
    )
    return _in_order([_arms(index, condition, query.descending)], [order_at, seq, order_at, edge], query.descending)


def _named(query: PacketQuery, orders: Orders) -> Statement:
    """Return the statement for the places of packets that are named; they are few, so they are sorted."""
    beyond, within, order = ("<", ">=", "1 DESC, 2 DESC") if query.descending else (">", "<=", "1, 2")
    ids = _padded(query.ids)
    window = (
        f"SELECT order_at, seq FROM packets INDEXED BY packets_by_id WHERE packet_id IN ({', '.join('?' * len(ids))})"  # noqa: S608
        f" AND (order_at, seq) {beyond} (?, ?) AND order_at {within} ? ORDER BY {order} LIMIT {ROWS_LOOKED_AT_MAX}"
    )
    return window, [*ids, *_span(query, orders)]


def _merged(index: str, column: str, texts: Sequence[str], query: PacketQuery, orders: Orders) -> Statement:
    # NULL equals nothing, so it pads the keys to a length that few statements serve. Keys must not repeat: each would
    # give its packets once more.
    keys: list[object] = list(dict.fromkeys(map(search_key, texts)))
    keys += [None] * ((1 << (len(keys) - 1).bit_length()) - len(keys))
    arms = _arms(index, f"{column} = ? AND ", query.descending)
    order_at, seq, edge = _span(query, orders)
    places = [value for key in keys for value in (key, order_at, seq, key, order_at, edge)]
    return _in_order([arms] * len(keys), places, query.descending)


def _arms(index: str, condition: str, descending: bool) -> str:
    beyond, within = ("<", ">=") if descending else (">", "<=")
    select = f"SELECT order_at, seq FROM packets INDEXED BY {index} WHERE {condition}order_at"  # noqa: S608
    return f"{select} = ? AND seq {beyond} ? UNION ALL {select} {beyond} ? AND order_at {within} ?"


def _in_order(arms: Sequence[str], places: list[object], descending: bool) -> Statement:
    order = "1 DESC, 2 DESC" if descending else "1, 2"
    return f"{' UNION ALL '.join(arms)} ORDER BY {order} LIMIT {ROWS_LOOKED_AT_MAX}", places


def _span(query: PacketQuery, orders: Orders) -> tuple[int, int, int]:
    """Return the exclusive place where the window starts, and the last ``order_at`` in it."""
    least, greatest = orders
    if query.descending:
        first = (min(greatest, _INTEGER_MAX - 1) + 1, _INTEGER_MIN)
        return (*(first if query.start is None else min(query.start, first)), least)
    first = (max(least, _INTEGER_MIN + 1) - 1, _INTEGER_MAX)
    return (*(first if query.start is None else max(query.start, first)), greatest)


def _filters(query: PacketQuery) -> Statement:
    conditions = ["p.hidden = 0"]
    arguments: list[object] = []
    if query.seq_max is not None and not query.by_seq:
        conditions.append("p.seq <= ?")
        arguments.append(query.seq_max)
    if query.alive_at is not None:
        conditions.append("(p.expires_at IS NULL OR p.expires_at >= ?)")
        arguments.append(query.alive_at)
    if query.since is not None:
        conditions.append("p.timestamp >= ?")
        arguments.append(query.since)
    if query.until is not None:
        conditions.append("p.timestamp <= ?")
        arguments.append(query.until)
    ids = query.ids if query.by_seq else ()  # else the window holds no others
    for column, values in (("p.content_type", query.types), ("p.author_id", query.authors), ("p.packet_id", ids)):
        if values:
            padded = _padded(values)
            conditions.append(f"{column} IN ({', '.join('?' * len(padded))})")
            arguments += padded
    return " AND ".join(conditions), arguments


def _padded(values: Sequence[object]) -> list[object]:
    """Repeat the last value up to a power of two, so that few statements serve every length."""
    return [*values, *[values[-1]] * ((1 << (len(values) - 1).bit_length()) - len(values))]
