"""Laws of store.memory_packets; what it answers is held against a list in test_packets_model."""

import pytest

from tests.store.build import packet_id, packet_row
from waystation.core.packets import DropPackets, HidePackets, PacketQuery, PutPacket
from waystation.store.memory_packets import ROWS_LOOKED_AT_MAX, MemoryPackets


@pytest.fixture
def packets():
    """An empty table."""
    return MemoryPackets(b"epoch-08")


def _put(packets, *seqs, **fields):
    for seq in seqs:
        packets.apply(PutPacket(packet_row(seq, **fields)))


def test_epoch_is_the_given_one(packets):
    """Chance comes from outside."""
    assert packets.epoch() == b"epoch-08"


def test_time_that_nothing_has_looks_at_nothing(packets):
    """A time by the author's clock bounds the place in history: beyond it no packet is looked at."""
    _put(packets, *range(1, ROWS_LOOKED_AT_MAX + 2), order_at=5)

    for query in (
        PacketQuery(since=1 << 40),
        PacketQuery(until=-(1 << 40)),
        PacketQuery(since=1 << 40, descending=True),
    ):
        assert packets.page(query) == ([], None)


def test_page_looks_at_a_bounded_number_of_packets(packets):
    """When nothing matches, a page is empty, goes on, and ends where the history ends."""
    _put(packets, *range(1, ROWS_LOOKED_AT_MAX + 2), order_at=5)
    first = packets.page(PacketQuery(seq_max=0))
    second = packets.page(PacketQuery(seq_max=0, start=first.position))

    assert first == ([], (5, ROWS_LOOKED_AT_MAX))
    assert second == ([], None)


def test_authors_are_read_from_their_own_lists(packets):
    """Packets of others are not looked at, however many they are."""
    _put(packets, *range(1, ROWS_LOOKED_AT_MAX + 2), author_id="many")
    _put(packets, 5_000, author_id="a")
    _put(packets, 5_001, author_id="b")
    _put(packets, 5_002, author_id="a")
    page = packets.page(PacketQuery(authors=("b", "a", "a"), descending=True))

    assert ([row.seq for row in page.rows], page.position) == ([5_002, 5_001, 5_000], None)


def test_last_page_knows_that_it_is_the_last(packets):
    """A full page with nothing behind it needs no further one."""
    _put(packets, 1, 2, 3)

    assert packets.page(PacketQuery(rows_max=3)).position is None
    assert packets.page(PacketQuery(rows_max=2)).position == (1_002, 2)


def test_dropped_packet_leaves_every_order(packets):
    """Nothing of a dropped packet is left but its id."""
    _put(packets, 1, mark=b"m", expires_at=7)
    packets.apply(HidePackets((packet_id(1),), True))
    packets.apply(DropPackets((packet_id(1),), 10_000))

    assert packets.page(PacketQuery()).rows == []
    assert packets.packet(packet_id(1)) is None
    assert packets.marked(b"m") is None
    assert not packets.hidden(packet_id(1))
    assert list(packets.droppable(1 << 40, 1 << 40, 9)) == []
    assert packets.known(packet_id(1))
    assert (packets.newest_seq(), packets.bytes_kept()) == (1, 0)


def test_forgotten_ids_do_not_pile_up(packets):
    """Ids whose time is over make room."""
    for seq in range(1, 3_000):
        _put(packets, seq)
        packets.apply(DropPackets((packet_id(seq),), 1_000 + seq + 10))

    assert len(packets._forgotten) < 600
    assert packets.known(packet_id(2_995))
    assert not packets.known(packet_id(2_900))
