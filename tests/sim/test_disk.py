"""The disk of a simulated node keeps what it synced, and loses the rest as a disk does."""

import random

import pytest

from tests.sim.build import fixed_rng
from waystation.core.errors import StoreFault
from waystation.core.packets import PacketQuery, PacketRow, PutPacket
from waystation.core.records import DamagedRow, Record
from waystation.sim.disk import PACKETS, DiskHabits, FaultyStore, Promises, Row, rows_of

CUT = DiskHabits(power_cuts=1.0)
KILLED = DiskHabits()


def put(key, value=b"v", table="t"):
    return Record(table, key, value)


def packet(seq):
    row = PacketRow(seq, 1, 1, 1, bytes([seq]) * 32, "a", "POST", 1, None, b"{}", b"", "", b"", kept=False)
    return PutPacket(row)


def spoiled(habits, *groups, seed=7):
    """Return a store of these habits that has committed these groups."""
    store = FaultyStore()
    store.spoil(habits, fixed_rng(seed))
    for group in groups:
        store.commit(group)
    return store


def kept(store):
    return [key for key, _ in store.scan("t")]


def test_it_is_a_store_that_survives_crashes_until_it_is_spoiled():
    """Without habits every commit stays, and what was under way is lost."""
    store = FaultyStore()
    store.commit([put(b"a"), packet(1)])
    lost = store.end_life([[put(b"b")]], orderly=False)

    assert lost == frozenset()
    assert store.get("t", b"a") == b"v"
    assert store.get_many("t", [b"a", b"b"]) == {b"a": b"v"}
    assert len(store.packets.page(PacketQuery()).rows) == 1


@pytest.mark.parametrize("habits", [CUT, KILLED])
def test_what_was_synced_survives(habits):
    """Neither a kill nor a power cut takes what a commit has returned for."""
    for seed in range(20):
        store = spoiled(habits, [put(b"a")], [put(b"b")], seed=seed)
        store.end_life([], orderly=False)

        assert kept(store) == [b"a", b"b"]


def test_what_was_not_synced_is_lost_from_the_end():
    """A power cut leaves what was synced and perhaps the first groups after it; a kill leaves all."""
    left = set()
    for seed in range(30):
        store = spoiled(DiskHabits(1.0, unsynced=("u",)), [put(b"a")], [put(b"b"), put(b"", table="u")], seed=seed)
        store.commit([put(b"c"), put(b"", table="u")])
        store.end_life([], orderly=False)
        left.add(tuple(kept(store)))
    killed = spoiled(DiskHabits(unsynced=("t",)), [put(b"a")], [put(b"b")])
    killed.end_life([], orderly=False)

    assert left == {(b"a",), (b"a", b"b"), (b"a", b"b", b"c")}
    assert kept(killed) == [b"a", b"b"]


def test_a_later_sync_takes_everything_along():
    """There is one log: what syncs it syncs all before."""
    store = spoiled(DiskHabits(1.0, unsynced=("u",)), [put(b"a", table="u")], [put(b"b")])

    assert not spoiled(DiskHabits(1.0, unsynced=("u",)), [put(b"a", b"what", table="u")]).has_synced(b"what")
    assert store.has_synced(b"v")
    store.end_life([], orderly=False)
    assert store.get("u", b"a") == b"v"


def test_groups_under_way_are_kept_from_the_first_on():
    """The disk may have got what nobody was told of, but nothing without what stood before it."""
    left = set()
    for seed in range(30):
        store = spoiled(CUT, [put(b"a")], seed=seed)
        store.end_life([[put(b"b")], [put(b"c"), put(b"d")]], orderly=False)
        left.add(tuple(kept(store)))

    assert left == {(b"a",), (b"a", b"b"), (b"a", b"b", b"c", b"d")}


def test_refusal_keeps_nothing_of_a_group():
    """While it refuses every commit raises, and nothing of it is there."""
    store = spoiled(KILLED)
    store.refuses = True
    with pytest.raises(StoreFault):
        store.commit([put(b"a")])
    store.refuses = False

    assert kept(store) == []
    assert store.refusals == 1


def test_rotten_rows_are_absent_and_reported_until_written_anew():
    """What rots reads as absent, is said to be damaged, and is a row like any other after the next write."""
    store = spoiled(DiskHabits(rot=1.0), [put(b"a"), packet(1)])
    lost = store.end_life([], orderly=True)
    missing = [row for row in (Row("t", b"a"), Row(PACKETS, bytes([1]) * 32)) if not store.has(row)]
    damaged = [*store.damaged("t"), *store.damaged(PACKETS)]
    known = store.packets.known(bytes([1]) * 32)
    store.commit([put(b"a", b"new"), packet(2)])

    assert set(missing) == lost != set()
    assert damaged == [DamagedRow(*row, key_is_good=True) for row in missing]
    assert known is store.has(Row(PACKETS, bytes([1]) * 32))
    assert not store.damaged("t")
    assert store.get("t", b"a") == b"new"


def test_restored_copy_is_older_under_another_epoch():
    """The disk is as it was after one of its commits, and whoever kept a place in it can tell."""
    states = set()
    for seed in range(20):
        store = spoiled(DiskHabits(restores=1.0), [put(b"a")], [put(b"b")], seed=seed)
        before = store.packets.epoch()
        lost = store.end_life([], orderly=False)
        states.add(tuple(kept(store)))

        assert store.packets.epoch() != before
        assert {row.key for row in lost} == {b"a", b"b"} - set(kept(store))
    assert states == {(), (b"a",), (b"a", b"b")}


def test_the_state_counts_commits():
    """A store says how far it has come, as every store does."""
    store = spoiled(KILLED, [put(b"a")], [put(b"b")])

    assert store.state().generation == 2
    assert store.fold() == store.state()
    store.close()
    assert kept(store) == [b"a", b"b"]


def test_promises_are_broken_by_other_values():
    """What was committed must be there, but for a newer value that was under way and for what the disk lost."""
    promises, store = Promises(), FaultyStore()
    promises.made([put(b"a", b"1"), put(b"b"), put(b"c", None), packet(1)])
    store.commit([put(b"a", b"2"), put(b"c")])

    assert promises.broken(store) == [Row("t", b"a"), Row("t", b"b"), Row("t", b"c")]
    promises.may_be([[put(b"a", b"2"), put(b"d", b"3")]])
    promises.lost(frozenset({Row("t", b"c")}))
    assert promises.broken(store) == [Row("t", b"b")]


def test_draws_do_not_depend_on_the_order_of_sets():
    """The same generator loses the same rows."""
    rows = [put(bytes([number])) for number in range(50)]
    lost = [spoiled(DiskHabits(rot=1.0), rows, seed=3).end_life([], orderly=True) for _ in range(2)]

    assert lost[0] == lost[1]
    assert random.Random(3).random() == fixed_rng(3).random()


def test_rows_of_changes_are_named_in_order():
    """Packets have a table, too."""
    assert rows_of([put(b"a"), packet(3)]) == [Row("t", b"a"), Row(PACKETS, bytes([3]) * 32)]
