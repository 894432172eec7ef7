"""Laws of store.memory."""

import pytest

from tests.store.build import packet_row
from waystation.core.packets import PutPacket
from waystation.core.records import Record
from waystation.store.memory import MemoryStore


@pytest.fixture
def store():
    """An empty store."""
    return MemoryStore()


def test_later_record_of_a_group_wins(store):
    """Records of one group are written in order."""
    store.commit([Record("a", b"k", b"1"), Record("a", b"k", None), Record("a", b"k", b"2")])

    assert store.get("a", b"k") == b"2"


def test_many_values_are_those_of_single_reads(store):
    """Keys of other tables and keys that nobody keeps are left out."""
    store.commit([Record("things", b"a", b"1"), Record("things", b"b", b"2"), Record("others", b"c", b"3")])

    assert store.get_many("things", [b"a", b"c", b"d"]) == {b"a": b"1"}
    assert store.get_many("nothing", [b"a"]) == {}


def test_scan_sees_what_came_after_the_last_scan(store):
    """Sorted keys are not remembered beyond a change."""
    store.commit([Record("a", b"1", b"x")])
    list(store.scan("a"))
    store.commit([Record("a", b"0", b"y"), Record("a", b"1", None)])

    assert list(store.scan("a")) == [(b"0", b"y")]


def test_scan_shows_the_moment_of_its_call(store):
    """What is committed while a scan is read does not reach it."""
    store.commit([Record("a", b"1", b"x"), Record("a", b"2", b"y")])
    scan = store.scan("a")
    store.commit([Record("a", b"2", None)])

    assert list(scan) == [(b"1", b"x"), (b"2", b"y")]


def test_close_forgets(store):
    """Nothing outlives this store."""
    store.commit([Record("a", b"k", b"v")])
    store.close()

    assert store.get("a", b"k") is None


def test_records_and_packets_come_in_one_group():
    """A group may hold changes of every kind, and closing forgets packets too."""
    store = MemoryStore(b"12345678")
    store.commit([Record("a", b"k", b"v"), PutPacket(packet_row(1)), Record("a", b"k", b"w")])
    before = (store.get("a", b"k"), store.packets.newest_seq())
    store.close()

    assert before == (b"w", 1)
    assert (store.packets.newest_seq(), store.packets.epoch()) == (0, b"12345678")


def test_state_counts_commits():
    """As in the SQLite store: the id given at construction, one generation for each commit."""
    store = MemoryStore(store_id=b"i" * 16)
    store.commit([Record("a", b"k", b"v")])
    store.commit([])

    assert store.state() == store.fold() == (b"i" * 16, 2)
