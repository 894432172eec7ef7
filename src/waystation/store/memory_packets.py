"""Packet table of the memory store: sorted lists that answer every query as ``sqlite_packets`` does.

``store.memory`` keeps one; changes go in by ``apply``, queries (``core.packets``) give pages. A place is ``(order_at,
seq)``. There is one sorted list of places for the whole history, one per author, one per type, and one in the order of
``seq``.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from waystation.core.packets import (
    DropPackets,
    HidePackets,
    LowerWitness,
    PacketChange,
    PacketEntry,
    PacketPage,
    PacketQuery,
    PacketRow,
    PutPacket,
    is_snapshot,
)

__all__ = ["EPOCH_BYTES", "ROWS_LOOKED_AT_MAX", "MemoryPackets"]

EPOCH_BYTES: Final = 8
"""Length of what names a store."""

ROWS_LOOKED_AT_MAX: Final = 4_096
"""Packets looked at for one page, as in the SQLite store."""

_FOR_EVER: Final = 1 << 63
_EARLIEST: Final = -_FOR_EVER
_CLEAN_AT_COUNT_MIN: Final = 256

Place = tuple[int, int]


class MemoryPackets:
    """Implements ``core.packets.PacketReader``, and the changes that ``MemoryStore.commit`` hands on.

    Cost: a put is O(log n) and one move of what follows its place in each list; a page costs what it looks at.
    """

    def __init__(self, epoch: bytes) -> None:
        assert len(epoch) == EPOCH_BYTES
        self._epoch = epoch
        self._rows: dict[int, PacketRow] = {}
        self._history: list[Place] = []
        self._by_seq: list[Place] = []
        self._by_author: defaultdict[str, list[Place]] = defaultdict(list)
        self._by_type: defaultdict[str, list[Place]] = defaultdict(list)
        self._snapshots: list[Place] = []
        self._by_age: list[Place] = []
        self._by_expiry: list[Place] = []
        self._seqs: dict[bytes, int] = {}
        self._marks: dict[bytes, bytes] = {}
        self._hidden: set[int] = set()
        self._forgotten: dict[bytes, int] = {}
        self._clean_at_count = _CLEAN_AT_COUNT_MIN
        self._newest_seq = self._newest_stored_at = self._bytes_kept = self._bytes_held = 0
        self._early_s_max = self._late_s_max = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            PutPacket: self._put,
            LowerWitness: self._lower,
            HidePackets: self._hide,
            DropPackets: self._drop,
        }

    def apply(self, change: PacketChange) -> None:
        """Carry out one change."""
        self._handlers[type(change)](change)

    def page(self, query: PacketQuery) -> PacketPage[PacketRow]:
        """Return the next packets of a query.

        Cost: at most ``ROWS_LOOKED_AT_MAX`` packets are looked at.
        """
        assert query.rows_max >= 1
        assert not (query.by_seq and query.descending)
        rows: list[PacketRow] = []
        room_bytes = query.bytes_max
        authors, types = frozenset(query.authors), frozenset(query.types)
        looked_at, place = 0, (0, 0)
        for place in islice(self._places(query), ROWS_LOOKED_AT_MAX):
            looked_at += 1
            row = self._rows.get(place[1])
            if row is None or not self._matches(row, query, authors, types):
                continue
            if len(rows) == query.rows_max or room_bytes <= 0:
                return PacketPage(rows, (0 if query.by_seq else rows[-1].order_at, rows[-1].seq))
            rows.append(row)
            room_bytes -= len(row.canonical)
        return PacketPage(rows, place if looked_at == ROWS_LOOKED_AT_MAX else None)

    def entries(self, query: PacketQuery) -> PacketPage[PacketEntry]:
        """Return the same page with less of each packet."""
        rows, position = self.page(query)
        return PacketPage([PacketEntry(*_entry_of(row)) for row in rows], position)

    def packet(self, packet_id: bytes) -> PacketRow | None:
        """Return the stored packet, hidden or not, or None."""
        seq = self._seqs.get(packet_id)
        return None if seq is None else self._rows[seq]

    def hidden(self, packet_id: bytes) -> bool:
        """Return whether the packet is stored but hidden."""
        return self._seqs.get(packet_id) in self._hidden

    def known(self, packet_id: bytes) -> bool:
        """Return whether the packet is stored, or was within the memory for dropped ones."""
        return self._known_until(packet_id) >= self._newest_stored_at

    def marked(self, mark: bytes) -> bytes | None:
        """Return the id of the packet that bears ``mark``, or None."""
        return self._marks.get(mark)

    def newest_seq(self) -> int:
        """Return the greatest ``seq`` ever committed, 0 for none."""
        return self._newest_seq

    def epoch(self) -> bytes:
        """Return the 8 bytes given at construction."""
        return self._epoch

    def bytes_kept(self) -> int:
        """Return the sum of canonical bytes stored."""
        return self._bytes_kept

    def bytes_held(self) -> int:
        """Return the sum of canonical bytes of packets that retention never drops."""
        return self._bytes_held

    def has_droppable(self, author_id: str) -> bool:
        """Return whether an author has a packet that retention may drop."""
        return any(not self._rows[seq].kept for _, seq in self._by_author.get(author_id, ()))

    def droppable(self, stored_before: int, expired_before: int, rows_max: int) -> Sequence[tuple[bytes, int]]:
        """Return id and canonical bytes of packets retention may drop: expired ones first, then the oldest."""
        expired = self._by_expiry[: bisect_left(self._by_expiry, (expired_before, 0))][:rows_max]
        old = self._by_age[: bisect_left(self._by_age, (stored_before, 0))]
        taken = {seq for _, seq in expired}
        rest = (seq for _, seq in old if not _is_expired(self._rows[seq], expired_before))
        seqs = [*(seq for _, seq in expired), *islice(rest, rows_max - len(taken))]
        return [(self._rows[seq].packet_id, len(self._rows[seq].canonical)) for seq in seqs]

    def _places(self, query: PacketQuery) -> Iterable[Place]:
        if query.by_seq:
            last = len(self._by_seq) if query.seq_max is None else bisect_right(self._by_seq, (0, query.seq_max))
            first = 0 if query.start is None else bisect_right(self._by_seq, query.start)
            return self._by_seq[first : min(last, first + ROWS_LOOKED_AT_MAX)]
        if query.ids:
            found = [self._rows[self._seqs[each]] for each in dict.fromkeys(query.ids) if each in self._seqs]
            orders = [sorted((row.order_at, row.seq) for row in found)]
        elif query.authors:
            orders = [self._by_author.get(author, []) for author in dict.fromkeys(query.authors)]
        elif query.snapshots:
            orders = [self._snapshots]
        elif query.types:
            orders = [self._by_type.get(name, []) for name in dict.fromkeys(query.types)]
        else:
            orders = [self._history]
        # What the author's clock says bounds the place in history, since no stored packet's differs by more.
        least = (_EARLIEST if query.since is None else query.since - self._early_s_max, 0)
        beyond = (_FOR_EVER if query.until is None else query.until + self._late_s_max + 1, 0)
        if query.descending:
            return merge(*(_before(places, query.start, least, beyond) for places in orders), reverse=True)
        return merge(*(_after(places, query.start, least, beyond) for places in orders))

    def _matches(self, row: PacketRow, query: PacketQuery, authors: frozenset[str], types: frozenset[str]) -> bool:
        return (
            row.seq not in self._hidden
            and (query.seq_max is None or row.seq <= query.seq_max)
            and (not query.ids or row.packet_id in query.ids)
            and (not authors or row.author_id in authors)
            and (not types or row.content_type in types)
            and (query.since is None or row.timestamp >= query.since)
            and (query.until is None or row.timestamp <= query.until)
            and (query.alive_at is None or not _is_expired(row, query.alive_at))
        )

    def _known_until(self, packet_id: bytes) -> int:
        return _FOR_EVER if packet_id in self._seqs else self._forgotten.get(packet_id, -1)

    def _put(self, change: PutPacket) -> None:
        row = change.row
        clock = max(self._newest_stored_at, row.stored_at)
        if self._known_until(row.packet_id) >= clock or (row.mark and row.mark in self._marks):
            return
        assert row.seq > self._newest_seq
        self._rows[row.seq] = row
        self._seqs[row.packet_id] = row.seq
        if row.mark:
            self._marks[row.mark] = row.packet_id
        for places, at in self._orders(row):
            insort(places, (at, row.seq))
        self._newest_seq, self._newest_stored_at = row.seq, clock
        self._bytes_kept += len(row.canonical)
        self._bytes_held += len(row.canonical) if row.kept else 0
        self._early_s_max = max(self._early_s_max, row.timestamp - row.order_at)
        self._late_s_max = max(self._late_s_max, row.order_at - row.timestamp)

    def _lower(self, change: LowerWitness) -> None:
        row = self.packet(change.packet_id)
        if row is not None and row.received_at > change.received_at:
            self._rows[row.seq] = row._replace(received_at=change.received_at)

    def _hide(self, change: HidePackets) -> None:
        seqs = {self._seqs[packet_id] for packet_id in change.packet_ids if packet_id in self._seqs}
        self._hidden = self._hidden | seqs if change.hidden else self._hidden - seqs

    def _drop(self, change: DropPackets) -> None:
        for packet_id in change.packet_ids:
            seq = self._seqs.pop(packet_id, None)
            if seq is None:
                continue
            row = self._rows[seq]
            for places, at in self._orders(row):
                del places[bisect_left(places, (at, seq))]
            del self._rows[seq]
            self._marks.pop(row.mark, None)
            self._hidden.discard(seq)
            self._forgotten[packet_id] = change.remember_until
            self._bytes_kept -= len(row.canonical)
            self._bytes_held -= len(row.canonical) if row.kept else 0
        self._clean()

    def _orders(self, row: PacketRow) -> Iterator[tuple[list[Place], int]]:
        """Yield every list the packet has its place in, and what it is sorted by there."""
        yield self._history, row.order_at
        yield self._by_seq, 0
        yield self._by_author[row.author_id], row.order_at
        yield self._by_type[row.content_type], row.order_at
        if is_snapshot(row.content_type, row.canonical):
            yield self._snapshots, row.order_at
        if not row.kept:
            yield self._by_age, row.stored_at
            if row.expires_at is not None:
                yield self._by_expiry, row.expires_at

    def _clean(self) -> None:
        # Whenever their number has doubled, so that many small drops do not walk over all of them each time.
        if len(self._forgotten) < self._clean_at_count:
            return
        clock = self._newest_stored_at
        self._forgotten = {packet_id: until for packet_id, until in self._forgotten.items() if until >= clock}
        self._clean_at_count = max(_CLEAN_AT_COUNT_MIN, 2 * len(self._forgotten))


_entry_of: Final = attrgetter(*PacketEntry._fields)


def _is_expired(row: PacketRow, now: int) -> bool:
    return row.expires_at is not None and row.expires_at < now


def _after(places: list[Place], start: Place | None, first: Place, last: Place) -> list[Place]:
    """Return the places from ``first`` to before ``last`` that are behind ``start``."""
    begin = bisect_left(places, first)
    begin = begin if start is None else max(begin, bisect_right(places, start))
    return places[begin : min(bisect_left(places, last), begin + ROWS_LOOKED_AT_MAX)]


def _before(places: list[Place], start: Place | None, first: Place, last: Place) -> list[Place]:
    """Return, last one first, the places from ``first`` to before ``last`` that are before ``start``."""
    end = bisect_left(places, last)
    end = end if start is None else min(end, bisect_left(places, start))
    return places[max(bisect_left(places, first), end - ROWS_LOOKED_AT_MAX) : max(0, end)][::-1]
