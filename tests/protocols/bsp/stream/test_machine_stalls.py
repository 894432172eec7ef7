"""Laws of protocols.bsp.machine: what it does about slow peers, slow disks and records that must not be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.bsp.build_machine import Bench
from tests.protocols.bsp.build_streams import (
    FRIEND,
)
from waystation.core.effects import Close
from waystation.core.facts import Refused
from waystation.protocols.bsp.device.events import Delivered
from waystation.protocols.bsp.messages import Ack
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.stream.machine import RECEIPT_BYTES, WRITE_BYTES
from waystation.protocols.bsp.wire import encode


def plain_bench(**how):
    return Bench(plain_peer=FRIEND.public, **how)


@pytest.mark.parametrize(("speaks", "sizes"), [(True, [2, 16, 16, 6]), (False, [2] * 20)])
def test_large_backlog_leaves_in_pieces(speaks, sizes):
    """A write has 64 KiB until the peer has said something, then 512 KiB, and each waits until the last has left."""
    bench = plain_bench()
    for number in range(40):
        bench.device.add(bench.group.group_id, number, bytes(32_000), bench.now)
    peer = bench.come("plain")
    if speaks:
        bench.say(peer, encode(SEED, Ack((bytes(32),))))
    written = []

    while bench.sends:
        (send,) = bench.sends
        written.append(len(bench.take_records(peer)))
        assert written[-1] * 32_044 == len(send.data) > RECEIPT_BYTES
        assert len(send.data) <= WRITE_BYTES
        assert send.receipt
        bench.pass_ms(1)
        assert not bench.sends
        bench.machine.drained(peer, bench.now)
        bench.settle()

    assert written == sizes


def test_nothing_is_written_while_bytes_wait():
    """A congested peer gets the next words when it has taken the last."""
    bench = plain_bench()
    peer = bench.come("plain")
    bench.machine.congested(peer, bench.now)

    bench.add()
    assert not bench.sends
    bench.machine.drained(peer, bench.now)
    bench.settle()

    assert bench.take_records(peer) == [bench.message()]


def test_peer_that_takes_nothing_for_a_minute_is_cut():
    """Progress starts the minute anew; without any the connection is aborted."""
    bench = plain_bench()
    peer = bench.come("plain")
    bench.machine.congested(peer, bench.now)
    bench.pass_ms(59_000)
    bench.machine.congested(peer, bench.now)

    bench.pass_ms(59_999)
    assert not bench.closes
    bench.pass_ms(1)

    assert bench.closes[peer] == Close(peer, Refusal.SEND_STALLED, abort=True)


def test_minute_of_a_write_begins_with_it():
    """A connection that was idle for long is not cut for what it has just been given."""
    bench = plain_bench()
    peer = bench.come("plain")
    bench.pass_ms(100_000)
    for number in range(40):
        bench.device.add(bench.group.group_id, number, bytes(32_000), bench.now)

    bench.pass_ms(0)
    bench.pass_ms(59_999)
    assert not bench.closes
    bench.pass_ms(1)

    assert bench.closes[peer] == Close(peer, Refusal.SEND_STALLED, abort=True)


def test_record_that_stalls_for_half_a_minute_is_closed():
    """A record that has begun must go on within 30 s; between records a peer may be silent for ever."""
    bench = plain_bench()
    peer = bench.come("plain")
    data = bench.encoded(bench.message())
    bench.pass_ms(100_000)
    bench.say(peer, data[:3])
    bench.pass_ms(29_000)
    bench.say(peer, data[3:4])

    bench.pass_ms(29_999)
    assert not bench.closes
    bench.pass_ms(1)

    assert bench.reason_of(peer) is Refusal.STALLED


def test_record_that_ends_in_time_stops_the_clock():
    """A connection that finished its record is not closed for it later."""
    bench = plain_bench()
    peer = bench.come("plain")
    data = bench.encoded(bench.message())
    bench.say(peer, data[:3])
    bench.pass_ms(20_000)

    bench.say(peer, data[3:])
    bench.pass_ms(3_600_000)

    assert not bench.closes


def test_malformed_record_keeps_what_came_before():
    """Earlier records of the same bytes are stored and acknowledged, then the connection ends for its fault."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    message = bench.message()

    bench.say(peer, bench.encoded(message) + b"\x01\x00\x00\x00" + bench.encoded(bench.message(b"behind", 2)))
    bench.say(peer, bench.encoded(bench.message(b"later", 3)))
    assert not bench.closes
    bench.save()
    bench.settle()

    assert bench.take_records(peer) == [Ack((bench.id_of(message),))]
    assert bench.reason_of(peer) is Refusal.EMPTY_LIST
    assert [bench.id_of(message)] == [each.message_id for each in bench.device.messages(bench.group.group_id)]
    assert [fact for fact in bench.facts if isinstance(fact, Refused)] == [Refused("bsp", FRIEND.public, "empty_list")]


def test_oversize_message_is_refused_on_its_header():
    """Nobody waits for a payload that may not come."""
    bench = plain_bench()
    peer = bench.come("plain")

    bench.say(peer, b"\x01\x01" + (32_809).to_bytes(2, "big"))

    assert bench.reason_of(peer) is Refusal.MESSAGE_LENGTH


def test_disk_that_hangs_does_not_hold_a_bad_connection():
    """Last words have three seconds, whatever the disk does."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    bench.say(peer, bench.encoded(bench.message()) + b"\x07")
    bench.say(peer, b"\x00\x00\x00")

    bench.pass_ms(2_999)
    assert not bench.closes
    bench.pass_ms(1)

    assert bench.reason_of(peer) is Refusal.VERSION


def test_disk_that_is_behind_stops_the_reading():
    """Above 16 MiB that are not on disk nobody who says more is read, until they are."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    for number in range(520):
        bench.machine.receive(peer, bench.encoded(bench.message(bytes(32_768), number)), bench.now)

    bench.settle()
    assert [(hold.peer, hold.held) for hold in bench.holds] == [(peer, True)]
    bench.save()
    bench.settle()

    assert [(hold.peer, hold.held) for hold in bench.holds] == [(peer, True), (peer, False)]


def test_reading_goes_on_only_when_the_disk_has_caught_up():
    """A commit that leaves more than 16 MiB behind it lets nobody go on."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    for number in range(1_040):
        bench.machine.receive(peer, bench.encoded(bench.message(bytes(32_768), number)), bench.now)
        if number == 519:
            bench.settle()

    bench.save()
    bench.settle()
    assert [hold.held for hold in bench.holds] == [True]
    bench.save()
    bench.settle()

    assert [hold.held for hold in bench.holds] == [True, False]


def test_held_peer_that_leaves_is_forgotten():
    """Nobody is told to read on from a connection that is over."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    for number in range(520):
        bench.machine.receive(peer, bench.encoded(bench.message(bytes(32_768), number)), bench.now)
    bench.settle()

    bench.machine.disconnect(peer, bench.now)
    bench.save()
    bench.settle()

    assert [hold.held for hold in bench.holds] == [True]


def test_held_peer_is_not_called_stalled():
    """Who is not read cannot finish its record, and gets the whole time once it is read again."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    data = bench.encoded(*[bench.message(bytes(32_768), number) for number in range(520)])
    bench.say(peer, data[:-5])
    assert bench.holds

    bench.pass_ms(40_000)
    assert not bench.closes
    bench.save()
    bench.settle()
    bench.pass_ms(29_999)
    assert not bench.closes
    bench.pass_ms(1)

    assert bench.reason_of(peer) is Refusal.STALLED


def test_peer_that_was_parted_from_is_closed():
    """A connection whose peer left the table is closed at its next word, also when the peer was met again."""
    bench = plain_bench()
    peer = bench.come("plain")
    bench.device.part(FRIEND.public)
    bench.device.meet(FRIEND.public)

    bench.say(peer, bench.encoded(bench.message()))

    assert bench.reason_of(peer) is Refusal.UNKNOWN_PEER


@pytest.mark.parametrize("at", range(0, 300, 3))
def test_cut_anywhere_and_come_again(at):
    """A stream that is cut at any byte, whole in the next connection, ends in the same state; nothing comes twice."""
    bench = plain_bench()
    messages = [bench.message(b"%d" % number, number) for number in range(6)]
    data = bench.encoded(*messages)
    first = bench.come("plain")
    bench.say(first, data[:at])
    bench.machine.disconnect(first, bench.now)

    again = bench.come("plain")
    bench.say(again, data)

    assert all(bench.has(message) for message in messages)
    assert len([event for event in bench.events if isinstance(event, Delivered)]) == 6
    acknowledged = {message_id for ack in bench.take_records(again) for message_id in ack.ids}
    assert acknowledged == {bench.id_of(message) for message in messages}


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200), door=st.sampled_from(["", "plain"]))
def test_junk_never_raises(data, door):
    """Whatever is said at whatever door, the connection lives on or ends for a documented reason."""
    bench = plain_bench()
    peer = bench.come(door)

    bench.say(peer, data)
    bench.pass_ms(100_000)

    assert bench.reason_of(peer) is None or isinstance(bench.reason_of(peer), Refusal)
