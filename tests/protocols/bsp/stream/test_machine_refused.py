"""Laws of a BSP machine whose store refuses (BSP-REFUSED): nothing acknowledged, nothing offered, all kept later."""

import random

from tests.protocols.bsp.build_machine import Bench
from tests.protocols.bsp.build_streams import FRIEND
from tests.protocols.refusing import RefusingStore
from waystation.core.commits import COMMIT_AGAIN_MS
from waystation.core.effects import Hold
from waystation.protocols.bsp.device.events import Delivered
from waystation.protocols.bsp.limits import DEFAULT_LIMITS
from waystation.protocols.bsp.messages import Ack
from waystation.store.memory import MemoryStore


def refusing(**how):
    """Return a bench over a store that can refuse, and one peer of its plain listener."""
    bench = Bench(store=RefusingStore(), plain_peer=FRIEND.public, **how)
    return bench, bench.come("plain")


def acks(bench, peer):
    """Return the identifiers that were acknowledged since the last look."""
    return [each for record in bench.take_records(peer) if isinstance(record, Ack) for each in record.ids]


def rows(store):
    """Return the messages in a store."""
    return list(store.scan("bsp_messages"))


def test_message_that_cannot_be_kept_is_acknowledged_once_it_is():
    """Until then nothing is said of it and no event reports it; a copy that comes meanwhile changes nothing."""
    bench, peer = refusing()
    bench.store.refuses = True
    for _ in range(2):
        bench.say(peer, bench.encoded(bench.message()))
    silence, events = acks(bench, peer), list(bench.events)
    settled = bench.machine.settled()
    bench.store.refuses = False
    bench.pass_ms(COMMIT_AGAIN_MS)

    assert (silence, [each for each in events if isinstance(each, Delivered)], settled) == ([], [], False)
    assert len(acks(bench, peer)) == len(rows(bench.store)) == 1
    assert [type(each) for each in bench.events].count(Delivered) == 1
    assert bench.machine.settled()


def test_own_message_is_offered_once_it_is_on_disk():
    """A peer hears of nothing that a crash could take away."""
    bench, peer = refusing()
    bench.store.refuses = True
    bench.add()
    silence = bench.take_records(peer)
    bench.store.refuses = False
    bench.pass_ms(COMMIT_AGAIN_MS)

    assert silence == []
    assert bench.take_records(peer) != []


def test_refused_store_is_asked_once_a_second():
    """Whatever comes meanwhile is part of the next commit."""
    bench, peer = refusing(saves=False)
    bench.store.refuses = True
    asked = 0
    for number in range(10):
        bench.say(peer, bench.encoded(bench.message(b"%d" % number)))
        asked += len(bench.commits)
        if bench.commits:
            bench.save()
    bench.saves = True
    bench.store.refuses = False
    bench.pass_ms(COMMIT_AGAIN_MS)

    assert asked == 1
    assert len(acks(bench, peer)) == len(rows(bench.store)) == 10


def test_sender_is_not_read_while_too_much_waits():
    """What is kept in memory is bounded; reading goes on once the disk has it."""
    bench, peer = refusing(limits=DEFAULT_LIMITS.__class__(unsaved_bytes=20_000))
    bench.store.refuses = True
    for number in range(3):
        bench.say(peer, bench.encoded(bench.message(bytes([number]) * 10_000)))
    held = list(bench.holds)
    bench.store.refuses = False
    bench.pass_ms(COMMIT_AGAIN_MS)

    assert held == [Hold(peer, held=True)]
    assert bench.holds == [Hold(peer, held=True), Hold(peer, held=False)]
    assert len(acks(bench, peer)) == 3


def test_message_deleted_while_the_store_refuses_stays_deleted():
    """The youngest state is what reaches the disk, without the body."""
    bench, _ = refusing()
    bench.store.refuses = True
    message_id = bench.device.add(bench.group.group_id, 1, b"secret words", bench.now)
    bench.settle()
    bench.device.delete(bench.group.group_id, message_id)
    bench.settle()
    bench.store.refuses = False
    bench.pass_ms(2 * COMMIT_AGAIN_MS)

    assert b"secret words" not in b"".join(value for _, value in rows(bench.store))
    assert bench.device.body(bench.group.group_id, message_id) is None


def test_group_left_while_the_store_refuses_leaves_no_row():
    """What was to be written of it is not written behind its removal."""
    bench, peer = refusing()
    bench.store.refuses = True
    bench.say(peer, bench.encoded(bench.message()))
    bench.device.leave(bench.group.group_id)
    bench.settle()
    bench.store.refuses = False
    bench.pass_ms(2 * COMMIT_AGAIN_MS)

    assert rows(bench.store) == []
    assert acks(bench, peer) == []


def test_what_was_acknowledged_is_on_disk_whatever_is_refused():
    """Over a store that refuses at random every acknowledged message is in it at that moment."""
    rng = random.Random(3)
    bench = Bench(store=RefusingStore(rng), plain_peer=FRIEND.public)
    peer = bench.come("plain")
    acknowledged = set()
    for number in range(80):
        bench.say(peer, bench.encoded(bench.message(b"%d" % number)))
        bench.pass_ms(rng.choice((0, 300, COMMIT_AGAIN_MS)))
        acknowledged |= set(acks(bench, peer))
        kept = {key[-32:] for key, _ in rows(bench.store)}
        assert acknowledged <= kept
    bench.store._rng = None
    bench.pass_ms(2 * COMMIT_AGAIN_MS)

    assert len(acknowledged | set(acks(bench, peer))) == len(rows(bench.store)) == 80
    assert isinstance(bench.store, MemoryStore)
