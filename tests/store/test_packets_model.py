"""Both packet tables against a list and a filter function."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.build import packet_row
from waystation.core.packets import (
    DropPackets,
    HidePackets,
    LowerWitness,
    PacketChange,
    PacketQuery,
    PacketRow,
    PutPacket,
)
from waystation.store import memory_packets, sqlite_pages
from waystation.store.memory import MemoryStore
from waystation.store.sqlite import SqliteStore

AUTHORS = [f"did:strata:a{n}" for n in range(6)]
TYPES = ["POST", "REACTION", "KEY_EVENT", "CONFIG"]


class Oracle:
    """The packet table as a list."""

    def __init__(self) -> None:
        self.rows: list[PacketRow] = []
        self.hidden: set[bytes] = set()
        self.forgotten: dict[bytes, int] = {}
        self.newest_seq = self.clock = 0

    def ids(self) -> list[bytes]:
        return [row.packet_id for row in self.rows]

    def knows(self, packet_id: bytes, clock: int) -> bool:
        return packet_id in self.ids() or self.forgotten.get(packet_id, -1) >= clock

    def apply(self, change: PacketChange) -> None:
        if isinstance(change, PutPacket):
            row = change.row
            clock = max(self.clock, row.stored_at)
            is_marked = row.mark and any(other.mark == row.mark for other in self.rows)
            if not self.knows(row.packet_id, clock) and not is_marked:
                self.rows.append(row)
                self.newest_seq, self.clock = row.seq, clock
        elif isinstance(change, LowerWitness):
            self.rows = [
                row._replace(received_at=min(row.received_at, change.received_at))
                if row.packet_id == change.packet_id
                else row
                for row in self.rows
            ]
        elif isinstance(change, HidePackets):
            stored = {packet_id for packet_id in change.packet_ids if packet_id in self.ids()}
            self.hidden = self.hidden | stored if change.hidden else self.hidden - stored
        else:
            for packet_id in set(change.packet_ids) & set(self.ids()):
                self.rows = [row for row in self.rows if row.packet_id != packet_id]
                self.hidden.discard(packet_id)
                self.forgotten[packet_id] = change.remember_until

    def find(self, query: PacketQuery) -> list[PacketRow]:
        def place(row: PacketRow) -> tuple[int, int]:
            return (0 if query.by_seq else row.order_at, row.seq)

        found = [
            row
            for row in self.rows
            if row.packet_id not in self.hidden
            and (not query.authors or row.author_id in query.authors)
            and (not query.types or row.content_type in query.types)
            and (not query.ids or row.packet_id in query.ids)
            and (not query.snapshots or (row.content_type == "CONFIG" and b'"BOOTSTRAP_SNAPSHOT"' in row.canonical))
            and (query.since is None or query.since <= row.timestamp)
            and (query.until is None or row.timestamp <= query.until)
            and (query.alive_at is None or row.expires_at is None or row.expires_at >= query.alive_at)
            and (query.seq_max is None or row.seq <= query.seq_max)
        ]
        found.sort(key=place, reverse=query.descending)
        if query.start is not None:
            found = [r for r in found if (place(r) < query.start if query.descending else place(r) > query.start)]
        return found

    def droppable(self, stored_before: int, expired_before: int) -> list[tuple[bytes, int]]:
        may_go = [row for row in self.rows if not row.kept]
        dead = [row for row in may_go if row.expires_at is not None and row.expires_at < expired_before]
        old = [row for row in may_go if row.stored_at < stored_before and row not in dead]
        dead.sort(key=lambda row: (row.expires_at, row.seq))
        old.sort(key=lambda row: (row.stored_at, row.seq))
        return [(row.packet_id, len(row.canonical)) for row in dead + old]


class Story:
    """Random changes and queries from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.oracle = Oracle()
        self.seq = 0
        self.seen: list[bytes] = []

    def group(self) -> list[PacketChange]:
        changes = [self.change() for _ in range(self.rng.choice([1, 3, 20, 140]))]
        for change in changes:
            self.oracle.apply(change)
        return changes

    def change(self) -> PacketChange:
        rng = self.rng
        kind = rng.random()
        if kind < 0.8 or not self.seen:
            return PutPacket(self.row())
        if kind < 0.87:
            return LowerWitness(rng.choice(self.seen), rng.randrange(100))
        ids = tuple(rng.choice([*self.seen[-50:], rng.randbytes(32)]) for _ in range(rng.choice([1, 2, 9])))
        if kind < 0.95:
            return HidePackets(ids, rng.random() < 0.6)
        return DropPackets(ids, remember_until=self.oracle.clock + rng.randrange(-2, 6))

    def row(self) -> PacketRow:
        rng = self.rng
        self.seq += rng.choice([1, 1, 1, 5])
        packet_id = rng.choice(self.seen) if self.seen and rng.random() < 0.1 else rng.randbytes(32)
        self.seen.append(packet_id)
        received_at = rng.choice([50, 50, 50 + self.seq // 40, rng.randrange(100)])
        return packet_row(
            self.seq,
            order_at=received_at,
            received_at=received_at,
            stored_at=50 + self.seq // 30 + rng.choice([0, 0, -3]),
            packet_id=packet_id,
            author_id=rng.choice(AUTHORS),
            content_type=rng.choice(TYPES),
            timestamp=rng.randrange(100),
            expires_at=rng.choice([None, None, rng.randrange(100)]),
            canonical=bytes(rng.randrange(60)) + rng.choice([b"", b"", b'{"scope":"BOOTSTRAP_SNAPSHOT"}']),
            downgrade=rng.choice([b"", b"{}"]),
            mark=rng.choice([b"", b"", b"", bytes([rng.randrange(40)])]),
            kept=rng.random() < 0.1,
        )

    def query(self) -> PacketQuery:
        rng = self.rng
        by_seq = rng.random() < 0.3
        start = (0 if by_seq else rng.randrange(100), rng.randrange(self.seq + 2))
        snapshots = not by_seq and rng.random() < 0.1
        return PacketQuery(
            snapshots=snapshots,
            ids=() if snapshots or rng.random() < 0.8 else tuple(rng.choices(self.seen or [bytes(32)], k=9)),
            authors=()
            if snapshots
            else tuple(rng.choice([[], rng.choices(AUTHORS, k=rng.choice([1, 2, 3, 5])), ["nobody", *AUTHORS]])),
            types=() if snapshots else tuple(rng.choice([[], [], rng.choices(TYPES, k=2), ["NONE"]])),
            since=rng.choice([None, None, rng.randrange(100)]),
            until=rng.choice([None, None, rng.randrange(100)]),
            alive_at=rng.choice([None, rng.randrange(100)]),
            by_seq=by_seq,
            descending=not by_seq and rng.random() < 0.5,
            start=rng.choice([None, start]),
            seq_max=rng.choice([None, rng.randrange(self.seq + 9)]),
            rows_max=rng.choice([1, 7, 100]),
            bytes_max=rng.choice([1, 100, 1 << 20]),
        )

    def check(self, store: MemoryStore | SqliteStore) -> None:
        packets, oracle, rng = store.packets, self.oracle, self.rng
        for _ in range(8):
            query = self.query()
            assert read_to_the_end(store, query) == oracle.find(query), query
        for packet_id in [*rng.choices(self.seen, k=8), rng.randbytes(32)]:
            stored = [row for row in oracle.rows if row.packet_id == packet_id]
            assert packets.packet(packet_id) == (stored[0] if stored else None)
            assert packets.hidden(packet_id) == (packet_id in oracle.hidden)
            assert packets.known(packet_id) == oracle.knows(packet_id, oracle.clock)
        mark = bytes([rng.randrange(40)])
        assert packets.marked(mark) == next((row.packet_id for row in oracle.rows if row.mark == mark), None)
        assert packets.newest_seq() == oracle.newest_seq
        assert packets.bytes_kept() == sum(len(row.canonical) for row in oracle.rows)
        assert packets.bytes_held() == sum(len(row.canonical) for row in oracle.rows if row.kept)
        author = rng.choice([*AUTHORS, "nobody"])
        assert packets.has_droppable(author) == any(row.author_id == author and not row.kept for row in oracle.rows)
        old, dead, rows_max = rng.randrange(120), rng.randrange(100), rng.choice([1, 5, 1_000])
        assert list(packets.droppable(old, dead, rows_max)) == oracle.droppable(old, dead)[:rows_max]


def read_to_the_end(store: MemoryStore | SqliteStore, query: PacketQuery) -> list[PacketRow]:
    """Page until nothing can follow; every page keeps its bounds."""
    found: list[PacketRow] = []
    while True:
        rows, position = store.packets.page(query)
        sizes = [len(row.canonical) for row in rows]
        assert len(rows) <= query.rows_max
        assert sum(sizes[:-1]) < query.bytes_max
        found += rows
        if position is None:
            return found
        assert position != query.start
        query = query._replace(start=position)


@pytest.fixture
def narrow(monkeypatch):
    """Bounds so small that random stories meet all of them."""
    monkeypatch.setattr(sqlite_pages, "ROWS_LOOKED_AT_MAX", 13)
    monkeypatch.setattr(memory_packets, "ROWS_LOOKED_AT_MAX", 13)
    monkeypatch.setattr(sqlite_pages, "INDEXES_MERGED_MAX", 3)


@pytest.mark.parametrize("seed", range(6))
def test_memory_is_a_list_and_a_filter(narrow, seed: int) -> None:
    """After any changes, the memory table answers any question as the list does."""
    story, store = Story(seed), MemoryStore()
    for _ in range(8):
        store.commit(story.group())
        story.check(store)


def tell_sqlite(path: Path, seed: int, steps: int, reopens: Callable[[int], bool]) -> None:
    """Run a story on a file, with ids in memory and without."""
    story = Story(seed)
    store = SqliteStore(path, ids_in_memory=True)
    for step in range(steps):
        if reopens(step):
            store.close()
            store = SqliteStore(path, ids_in_memory=step % 2 == 0)
        store.commit(story.group())
        story.check(store)
    store.close()


@pytest.mark.parametrize("seed", range(6))
def test_sqlite_is_a_list_and_a_filter(narrow, tmp_path: Path, seed: int) -> None:
    """After any changes and restarts, the SQLite table answers any question as the list does."""
    tell_sqlite(tmp_path / "s", seed, 8, lambda step: step in {3, 4, 6})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_sqlite_is_a_list_and_a_filter_for_long(narrow, tmp_path: Path, seed: int) -> None:
    """Longer stories change nothing of it."""
    tell_sqlite(tmp_path / "s", seed, 40, lambda step: step % 5 == 4)
