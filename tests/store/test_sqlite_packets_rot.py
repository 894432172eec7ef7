"""NODE-ROT for packets: a damaged row costs that row, in every read, and whoever sends the packet again mends it."""

import os
import sqlite3
from contextlib import closing

import pytest

from tests.store.build import packet_id, packet_row
from tests.store.build_rot import columns_of, flip_byte, flip_column, flip_in_file, spoil_page_of
from waystation.core.errors import HostError
from waystation.core.packets import DropPackets, HidePackets, LowerWitness, PacketEntry, PacketQuery, PutPacket
from waystation.store.sqlite import SqliteStore

COUNT = 12
BAD = 5
SERVED = ["seq", "hidden", "order_at", "expires_at", "timestamp", "received_at", "downgrade", "canonical", "checksum"]
NOT_SERVED = ["kept", "author_key", "type_key", "stored_at", "author_id", "content_type", "packet_id", "source", "mark"]
COLUMNS = SERVED + NOT_SERVED
ALL = PacketQuery()


def rows_of(count=COUNT):
    """Return packets with something in every column."""
    return [
        packet_row(
            n, canonical=b"packet %d of them" % n, mark=b"mark %d" % n, source=f"did:{n}", downgrade=b"{%d}" % n,
            expires_at=10_000 + n,
        )
        for n in range(1, count + 1)
    ]  # fmt: skip


ROWS = rows_of()


@pytest.fixture
def path(tmp_path):
    """A closed store of twelve packets."""
    path = tmp_path / "store.sqlite"
    with closing(SqliteStore(path)) as store:
        store.commit(list(map(PutPacket, ROWS)))
    return path


def entry_of(row):
    return PacketEntry(row.seq, row.order_at, row.received_at, row.canonical, row.downgrade)


def but(*seqs):
    return [row for row in ROWS if row.seq not in seqs]


def test_every_column_is_tried(path):
    """A new column of the table belongs into the checksum, and into this list."""
    assert sorted(COLUMNS) == sorted(columns_of(path, "packets"))


@pytest.mark.parametrize("bit", [3, 4, 6])
@pytest.mark.parametrize("column", COLUMNS)
def test_one_bit_costs_exactly_its_row(path, column, bit):
    """Whatever the column, pages have all other packets as they were, and not this one; it is counted once."""
    flip_column(path, "packets", BAD, column, bit)
    with closing(SqliteStore(path)) as store:
        found = [list(store.packets.page(query).rows) for query in (ALL, ALL._replace(by_seq=True), ALL) for _ in "ab"]
        counted = store.damage.totals()

    assert found == [but(BAD)] * len(found)
    if column != "hidden":  # a packet that looks hidden is left out by the query, unseen
        assert counted == {"packets": 1}


@pytest.mark.parametrize("column", COLUMNS)
def test_one_bit_never_makes_a_reader_get_anything_else(path, column):
    """Entries read fewer columns: what they serve is as it was, and gone when one of those is damaged."""
    flip_column(path, "packets", BAD, column)
    with closing(SqliteStore(path)) as store:
        found = list(store.packets.entries(ALL).rows)

    assert found == list(map(entry_of, but(BAD) if column in SERVED else ROWS))


@pytest.mark.parametrize("query", [ALL._replace(rows_max=1), ALL._replace(rows_max=3), ALL._replace(bytes_max=1)])
@pytest.mark.parametrize("form", [{}, {"descending": True}, {"by_seq": True}, {"types": ("POST",)}])
def test_pages_go_on_behind_damaged_rows(path, query, form):
    """However small the pages, they come to the end and have every packet that is whole."""
    bad = (1, 2, 3, 4, 5, 8, 12)
    for seq in bad:
        flip_column(path, "packets", seq, "canonical")
    found, query = [], query._replace(**form)
    with closing(SqliteStore(path)) as store:
        for _ in range(COUNT + 1):
            page = store.packets.entries(query)
            found += page.rows
            if page.position is None:
                break
            query = query._replace(start=page.position)

    assert page.position is None
    assert sorted(found) == list(map(entry_of, but(*bad)))


@pytest.mark.parametrize("column", ["canonical", "downgrade", "received_at", "author_id", "checksum"])
def test_damaged_packet_is_unknown(path, column):
    """It is not found, not known and bears no mark, so that nobody is told that it is stored."""
    flip_column(path, "packets", BAD, column)
    row = ROWS[BAD - 1]
    with closing(SqliteStore(path, ids_in_memory=True)) as store:
        packets = store.packets
        answers = packets.packet(row.packet_id), packets.known(row.packet_id), packets.marked(row.mark)

    assert answers == (None, False, None)


@pytest.mark.parametrize("column", [name for name in COLUMNS if name not in ("hidden", "packet_id")])
def test_put_mends_a_damaged_packet(path, column):
    """The same packet again takes the row's place, under a new number; what is kept is counted right."""
    flip_column(path, "packets", BAD, column)
    again = ROWS[BAD - 1]._replace(seq=COUNT + 1)
    with closing(SqliteStore(path)) as store:
        before = list(store.packets.page(ALL).rows)
        store.commit([PutPacket(again)])
        found = list(store.packets.page(ALL._replace(by_seq=True)).rows)
        counts = store.damage.counts(), store.damage.totals()
        kept_bytes = store.packets.bytes_kept()

    assert (before, found) == (but(BAD), [*but(BAD), again])
    assert counts == ({}, {"packets": 1})
    assert abs(kept_bytes - sum(len(row.canonical) for row in found)) <= 1


def test_put_mends_a_packet_whose_id_rotted(path):
    """Its true id is unknown then, so the packet is simply new; the rest of the old row is never served whole."""
    flip_column(path, "packets", BAD, "packet_id")
    again = ROWS[BAD - 1]._replace(seq=COUNT + 1, mark=b"")
    with closing(SqliteStore(path)) as store:
        store.commit([PutPacket(again)])
        found = list(store.packets.page(ALL._replace(by_seq=True)).rows)

    assert found == [*but(BAD), again]


def test_mark_of_a_damaged_packet_is_free(path):
    """Another packet of the same mark is stored: else its OK would be untrue."""
    flip_column(path, "packets", BAD, "canonical")
    other = packet_row(COUNT + 1, mark=ROWS[BAD - 1].mark)
    with closing(SqliteStore(path)) as store:
        store.commit([PutPacket(other)])

        assert store.packets.marked(other.mark) == other.packet_id
        assert list(store.packets.page(ALL).rows) == [*but(BAD), other]


def test_put_of_a_whole_packet_changes_nothing(path):
    """A packet that is there and whole stays, with its number."""
    with closing(SqliteStore(path)) as store:
        store.commit([PutPacket(ROWS[BAD - 1]._replace(seq=COUNT + 1))])

        assert list(store.packets.page(ALL).rows) == ROWS


def test_checksum_follows_what_may_change(path):
    """An earlier witness and hiding change columns that are checked; the row stays whole, and a damaged one damaged."""
    flip_column(path, "packets", 2, "canonical")
    with closing(SqliteStore(path)) as store:
        ids = tuple(packet_id(seq) for seq in (1, 2))
        store.commit([LowerWitness(packet_id(1), 900), LowerWitness(packet_id(2), 900), HidePackets(ids, hidden=True)])
        hidden = store.packets.packet(packet_id(1)), list(store.packets.page(ALL).rows)
        store.commit([HidePackets(ids, hidden=False)])
        shown = list(store.packets.page(ALL).rows)

    assert hidden == (ROWS[0]._replace(received_at=900), but(1, 2))
    assert shown == [ROWS[0]._replace(received_at=900), *but(1, 2)]


def test_retention_drops_damaged_packets(path):
    """They are dropped as all others are, and then are no trouble any more."""
    flip_column(path, "packets", BAD, "canonical")
    with closing(SqliteStore(path)) as store:
        list(store.packets.page(ALL).rows)
        dropped = tuple(each for each, _ in store.packets.droppable(1 << 40, 1 << 40, 100))
        store.commit([DropPackets(dropped, 0)])

        assert len(dropped) == COUNT
        assert store.damage.counts() == {}


# Bits in the file


@pytest.mark.parametrize("bit", range(0, 8 * 16, 5))
def test_one_bit_of_the_file_in_a_packet_costs_that_packet(path, bit):
    """The bytes on the disk change and nothing that SQLite checks: quick_check passes, the packet is gone."""
    flip_in_file(path, ROWS[BAD - 1].canonical, bit)
    with closing(SqliteStore(path)) as store:
        found = list(store.packets.entries(ALL).rows)
        store.commit([PutPacket(ROWS[BAD - 1]._replace(seq=COUNT + 1))])
        mended = [row.canonical for row in store.packets.entries(ALL).rows]

    assert found == list(map(entry_of, but(BAD)))
    assert sorted(mended) == sorted(row.canonical for row in ROWS)


def test_indexed_column_that_rotted_in_the_file_can_be_mended(path):
    """Its row and the index no longer agree; the indexes are made anew when the row has to go."""
    flip_in_file(path, b"did:strata:author5", 8 * 17)
    row = ROWS[BAD - 1]
    with closing(sqlite3.connect(path)) as connection:
        [(page_size,)] = connection.execute("PRAGMA page_size").fetchall()
    data = path.read_bytes()
    at = data.index(row.order_at.to_bytes(2, "big"), data.index(b"packet 1 of them") // page_size * page_size)
    flip_byte(path, at, 7)
    with closing(SqliteStore(path)) as store:
        store.commit([DropPackets(tuple(each.packet_id for each in ROWS), 0)])

        assert list(store.packets.entries(ALL).rows) == []


@pytest.mark.parametrize("form", [{}, {"descending": True}, {"by_seq": True}, {"types": ("POST",)}])
def test_page_of_the_file_that_cannot_be_read_costs_its_packets(tmp_path, form):
    """Readers get all the others, from the same query, and the lost ones are told."""
    path = tmp_path / "store.sqlite"
    rows = [packet_row(n, canonical=os.urandom(700)) for n in range(1, 101)]
    with closing(SqliteStore(path)) as store:
        store.commit(list(map(PutPacket, rows)))
    with closing(SqliteStore(path)) as store:  # opened first: the check at the start would refuse it
        spoil_page_of(path, rows[50].canonical)
        found, query = [], PacketQuery(**form, rows_max=9)
        while True:
            page = store.packets.entries(query)
            found += page.rows
            if page.position is None:
                break
            query = query._replace(start=page.position)
        lost = {int(row.key) for row in store.damaged("packets")}

    assert sorted(found) == [entry_of(row) for row in rows if row.seq not in lost]
    assert 51 in lost
    assert len(lost) < 8


@pytest.mark.slow
def test_any_bit_of_the_file_serves_nothing_that_was_not_written(path):
    """Refused at the start, refused at a read, or left out: a reader gets what was stored or nothing."""
    whole = path.read_bytes()
    right = {entry_of(row) for row in ROWS}
    for offset in range(100, len(whole), 7):
        path.write_bytes(whole)
        flip_byte(path, offset, offset % 8)
        try:
            with closing(SqliteStore(path)) as store:
                found = set(store.packets.entries(ALL).rows) | set(
                    store.packets.entries(ALL._replace(by_seq=True)).rows
                )
        except HostError:
            continue
        assert found <= right, offset
