"""Laws of store.sqlite_packets; what it answers is held against a list in test_packets_model."""

import sqlite3
import threading

import pytest

from tests.store.build import packet_id, packet_row
from waystation.core.errors import HostError
from waystation.core.packets import DropPackets, LowerWitness, PacketQuery, PacketRow, PutPacket
from waystation.core.records import Record
from waystation.store import sqlite_packets
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_layout import SCHEMA_VERSION
from waystation.store.sqlite_packets import FORGOTTEN_CLEANED_MAX
from waystation.store.sqlite_pages import ROWS_LOOKED_AT_MAX


@pytest.fixture
def path(tmp_path):
    """Where the file goes."""
    return tmp_path / "store.sqlite"


@pytest.fixture(params=[False, True], ids=["from_file", "ids_in_memory"])
def store(path, request):
    """A fresh store, closed after the test."""
    opened = SqliteStore(path, ids_in_memory=request.param)
    yield opened
    opened.close()


def _puts(*seqs, **fields):
    return [PutPacket(packet_row(seq, **fields)) for seq in seqs]


def _seqs(store, **query):
    return [row.seq for row in store.packets.page(PacketQuery(**query)).rows]


def test_every_column_comes_back(store):
    """A row is returned as it was put, by page and by id."""
    row = PacketRow(7, 5, 6, 8, bytes(range(32)), "did:ä", "T", -4, 9, b"{}", b"{1}", "did:s", b"mark", True)
    store.commit([PutPacket(row)])

    assert store.packets.page(PacketQuery()).rows == [row]
    assert store.packets.packet(row.packet_id) == row
    assert isinstance(store.packets.packet(row.packet_id), PacketRow)


def test_layout_1_is_upgraded(path):
    """A store of records alone keeps them and takes packets."""
    old = sqlite3.connect(path)
    old.executescript(
        "CREATE TABLE records (tbl TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tbl, key));"
        "INSERT INTO records VALUES ('a', x'6b', x'76');"
        f"PRAGMA application_id = {0x57415953}; PRAGMA user_version = 1;"
    )
    old.close()
    store = SqliteStore(path)
    store.commit(_puts(1))

    assert store.get("a", b"k") == b"v"
    assert _seqs(store) == [1]
    assert store._writer.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    store.close()


def test_epoch_names_the_file(path, tmp_path):
    """The epoch is the same after reopening, and another in another file."""
    first, other = SqliteStore(path), SqliteStore(tmp_path / "other")
    epoch = first.packets.epoch()
    first.close()
    again = SqliteStore(path)

    assert again.packets.epoch() == epoch
    assert len(epoch) == 8
    assert other.packets.epoch() != epoch
    again.close()
    other.close()


def test_newest_seq_survives_dropping_and_reopening(path):
    """A seq is never given twice, even if its packet is gone."""
    first = SqliteStore(path)
    first.commit([*_puts(1, 2, 3), DropPackets((packet_id(3), packet_id(2)), 10_000)])
    first.close()
    second = SqliteStore(path)

    assert second.packets.newest_seq() == 3
    assert second.packets.bytes_kept() == 1
    assert second.packets.known(packet_id(3))
    second.close()


def test_records_and_packets_share_one_transaction(store):
    """A packet that cannot be stored takes the group's records with it, and the next group is taken again."""
    store.commit(_puts(5))

    with pytest.raises(HostError, match="did not take a write: seq 5 is not above 5") as caught:
        store.commit([Record("a", b"k", b"v"), *_puts(5, packet_id=packet_id(6))])
    assert caught.value.exit_code == 5
    assert store.get("a", b"k") is None
    assert not store.packets.known(packet_id(6))
    store.commit([Record("a", b"k", b"w"), *_puts(6)])
    assert (store.get("a", b"k"), _seqs(store), store.packets.newest_seq()) == (b"w", [5, 6], 6)


def test_refused_group_changes_no_totals(store):
    """What is known without looking at the file is what the file holds."""
    with pytest.raises(HostError):
        store.commit([*_puts(1), LowerWitness(packet_id(1), 5), *_puts(1, packet_id=packet_id(2))])

    assert (store.packets.newest_seq(), store.packets.bytes_kept(), _seqs(store)) == (0, 0, [])


def test_broken_change_leaves_no_transaction_open(store):
    """A caller's bug is told as such and costs nothing but its group."""
    with pytest.raises(KeyError):
        store.commit([*_puts(1), "no change"])
    store.commit(_puts(1))

    assert _seqs(store) == [1]


def test_dropped_ids_are_forgotten_in_small_steps(store):
    """Each commit removes a bounded number of ids whose time is over; they count as unknown before that."""
    count = FORGOTTEN_CLEANED_MAX + 10
    store.commit([*_puts(*range(1, count + 1)), DropPackets(tuple(map(packet_id, range(1, count + 1))), 5_000)])
    store.commit(_puts(10_000))
    left = store._reader.execute("SELECT count(*) FROM forgotten").fetchone()
    known = store.packets.known(packet_id(count))
    store.commit(_puts(10_001))

    assert (left, known) == ((10,), False)
    assert store._reader.execute("SELECT count(*) FROM forgotten").fetchone() == (0,)


def test_put_after_the_memory_ended_is_new(store):
    """An id whose time is over is stored again, and may be dropped again."""
    store.commit([*_puts(1), DropPackets((packet_id(1),), 1_500)])
    store.commit(_puts(400, packet_id=packet_id(1)))
    remembered = _seqs(store)
    store.commit(_puts(600, packet_id=packet_id(1)))
    stored = _seqs(store)
    store.commit([DropPackets((packet_id(1),), 9_000)])

    assert (remembered, stored, _seqs(store)) == ([], [600], [])
    assert store.packets.known(packet_id(1))


def test_other_process_is_noticed_at_the_next_commit(path):
    """Packets another process has put are known after the next change at the latest, and counted at once."""
    mine, other = SqliteStore(path, ids_in_memory=True), SqliteStore(path)
    other.commit([*_puts(1, 2, 3), DropPackets((packet_id(2),), 10_000)])
    mine.commit([*_puts(9, packet_id=packet_id(2)), *_puts(10, packet_id=packet_id(3)), *_puts(11)])

    assert _seqs(mine) == [1, 3, 11]
    assert mine.packets.known(packet_id(1))
    assert mine.packets.bytes_kept() == 4
    mine.close()
    other.close()


def test_unknown_ids_are_answered_from_memory(path):
    """A question for an unknown id does not touch the file when ids are in memory, also after a restart."""
    first = SqliteStore(path)
    first.commit([*_puts(1, 2), DropPackets((packet_id(2),), 10_000)])
    first.close()
    store = SqliteStore(path, ids_in_memory=True)
    asked = []
    store._reader.set_trace_callback(asked.append)
    unknown = [store.packets.known(packet_id(n)) for n in range(3, 100)] + [store.packets.packet(packet_id(3))]
    statements = list(asked)

    assert not any(unknown)
    assert statements == []
    assert store.packets.known(packet_id(1)) and store.packets.known(packet_id(2))
    store.close()


def test_page_looks_at_a_bounded_number_of_packets(store):
    """When nothing matches, a page is empty, goes on, and ends where the history ends."""
    count = ROWS_LOOKED_AT_MAX + 1
    store.commit(_puts(*range(1, count + 1), order_at=5, author_id="a", content_type="POST"))
    store.commit(_puts(count + 1, order_at=4, author_id="b", content_type="POST"))
    ends = []
    for query in (PacketQuery(seq_max=0), PacketQuery(types=("POST",), authors=("b",) * 20)):
        first = store.packets.page(query)
        second = store.packets.page(query._replace(start=first.position))
        ends.append((len(first.rows), first.position, len(second.rows), second.position))

    assert ends == [(0, (5, ROWS_LOOKED_AT_MAX - 1), 0, None), (1, (5, ROWS_LOOKED_AT_MAX - 1), 0, None)]


def test_seq_order_jumps_over_gaps(store):
    """Numbers without packets cost one empty page, however many they are."""
    store.commit(_puts(1, 10**9))
    first = store.packets.page(PacketQuery(by_seq=True))
    second = store.packets.page(PacketQuery(by_seq=True, start=first.position))

    assert [row.seq for row in first.rows] == [1]
    assert first.position == (0, 10**9 - 1)
    assert ([row.seq for row in second.rows], second.position) == ([10**9], None)


def test_page_of_large_packets_fetches_few(store):
    """A page ends behind the packet that fills it, and fetches few beyond."""
    store.commit(_puts(*range(1, 200), canonical=bytes(10_000)))
    page = store.packets.page(PacketQuery(rows_max=1_000, bytes_max=25_000))

    assert [row.seq for row in page.rows] == [1, 2, 3]
    assert page.position == (1_003, 3)


def test_page_leaves_nothing_open(store):
    """No cursor and no transaction outlives a page, so the log can be folded into the file."""
    store.commit(_puts(*range(1, 400)))
    store.packets.page(PacketQuery(rows_max=10))
    store.packets.page(PacketQuery(seq_max=0))
    store.commit(_puts(400))
    busy, _, _ = store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    assert (busy, store._reader.in_transaction) == (0, False)


def test_authors_with_one_key_are_told_apart(path, monkeypatch):
    """Two texts may share a number; a query still finds only what it asks for, once."""
    monkeypatch.setattr(sqlite_packets, "search_key", lambda text: 1)
    monkeypatch.setattr("waystation.store.sqlite_pages.search_key", lambda text: 1)
    store = SqliteStore(path)
    store.commit([*_puts(1, author_id="a"), *_puts(2, author_id="b"), *_puts(3, author_id="c")])

    assert _seqs(store, authors=("c", "a")) == [1, 3]
    assert _seqs(store, authors=("b",), types=("POST",)) == [2]
    store.close()


def test_reader_sees_whole_groups_while_another_thread_commits(store):
    """Pages, totals and lookups never show a part of a group."""
    group = 20
    torn = []

    def write():
        for n in range(30):
            store.commit(_puts(*range(n * group + 1, (n + 1) * group + 1)))

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        newest = store.packets.newest_seq()
        seen = _seqs(store, rows_max=1_000)
        torn += [len(seen)] if len(seen) % group or len(seen) < newest else []
        torn += [newest] if newest and not store.packets.known(packet_id(newest)) else []
    writer.join()

    assert torn == []
    assert _seqs(store, rows_max=1_000) == list(range(1, 30 * group + 1))


def test_unreadable_disk_is_a_sentence(path, store):
    """A page that the disk refuses is a HostError."""
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE packets")
    connection.close()

    with pytest.raises(HostError, match="cannot be read"):
        store.packets.page(PacketQuery())
