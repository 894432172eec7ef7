"""Laws of protocols.bsp.machine: what is heard, what is written, and what a machine is to its owner."""

import pytest

from tests.protocols.bsp.build_machine import Bench, Pair
from tests.protocols.bsp.build_streams import (
    FRIEND,
    STRANGER,
    US,
)
from waystation.core.effects import Close, Commit, Peer, Send
from waystation.core.errors import LocalError
from waystation.core.facts import PeerLeft
from waystation.protocols.bsp.device.events import Delivered, Stored
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.messages import Ack, Message, Offer, Versions
from waystation.protocols.bsp.profile import BRIAR
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.stream.machine import BspMachine, PeerUp


def plain_bench(**how):
    return Bench(plain_peer=FRIEND.public, **how)


def dialling_bench(url, **how):
    bench = Bench(dials={FRIEND.public: url}, **how)
    bench.pass_ms(0)
    return bench


# Plain connections


def test_plain_connection_is_open_at_once():
    """Bare records go both ways from the first byte."""
    bench = plain_bench()
    bench.add(b"ours", 1)
    peer = bench.come("plain")
    message = bench.message(b"theirs", 2)

    bench.say(peer, bench.encoded(message))

    assert bench.has(message)
    assert bench.take_records(peer) == [bench.message(b"ours", 1), Ack((bench.id_of(message),))]
    assert PeerUp(FRIEND.public, "plain") in bench.events


def test_plain_door_is_for_the_one_peer():
    """Without a plain peer, or with one that is unknown or banned, the door is closed."""
    benches = [Bench(), Bench(plain_peer=STRANGER.public), plain_bench(admits=lambda _key: False)]

    reasons = [bench.reason_of(bench.come("plain")) for bench in benches]

    assert reasons == [Refusal.UNKNOWN_PEER, Refusal.UNKNOWN_PEER, Refusal.IDENTITY_BANNED]


def test_dialled_plain_connection():
    """An address with bsp+tcp is dialled without any handshake."""
    bench = dialling_bench("bsp+tcp://127.0.0.1:7")
    bench.add()

    peer = bench.dialled(FRIEND, certificate=b"")

    assert bench.take_records(peer) == [bench.message()]
    assert bench.machine.connected() == {FRIEND.public: "plain"}


def test_greeting_of_briar_comes_first():
    """Every open connection of profile briar begins with VERSIONS, whoever opened it."""
    bench = plain_bench(profile=BRIAR)
    bench.add()

    records = bench.take_records(bench.come("plain"))

    assert records == [Versions(b"\x00"), bench.message()]


def test_greeting_of_briar_is_understood():
    """VERSIONS and PRIORITY of the other side change nothing."""
    bench = plain_bench(profile=BRIAR)
    peer = bench.come("plain")

    bench.say(peer, BRIAR.first_record, b"\x00\x05\x00\x10" + bytes(16), bench.encoded(bench.message()))

    assert bench.has(bench.message())
    assert not bench.closes


# Records and commits


def test_acknowledgement_stands_behind_the_commit():
    """Nothing is acknowledged or told before it is on disk."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")

    bench.say(peer, bench.encoded(bench.message()))
    assert bench.take_sent(peer) == b""
    assert [event for event in bench.events if isinstance(event, Stored | Delivered)] == []
    bench.save()
    bench.settle()

    assert bench.take_records(peer) == [Ack((bench.id_of(bench.message()),))]
    assert len([event for event in bench.events if isinstance(event, Stored | Delivered)]) == 2


def test_one_commit_at_a_time():
    """What is heard while the disk is busy goes with the next commit, all of it in one."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")

    for number in range(5):
        bench.say(peer, bench.encoded(bench.message(b"x", number)))

    assert [commit.ticket for commit in bench.commits] == [1]
    bench.save()
    bench.settle()
    assert [commit.ticket for commit in bench.commits] == [2]
    bench.save()
    bench.settle()
    assert bench.commits == []
    assert len(bench.device.messages(bench.group.group_id)) == 5


def test_one_turn_is_one_write():
    """All that a turn brings is answered in one write."""
    bench = plain_bench()
    peer = bench.come("plain")
    bench.add(b"ours", 1)
    bench.take_sent(peer)
    for number in range(50):
        bench.machine.receive(peer, bench.encoded(bench.message(b"%d" % number, number)), bench.now)

    bench.settle()

    assert len(bench.sends) == 1
    assert bench.take_records(peer)[0] == Ack(tuple(bench.id_of(bench.message(b"%d" % n, n)) for n in range(50)))


# Contract


def test_verified_is_refused():
    """Nobody asks for a verification, so an answer is a bug of ours."""
    with pytest.raises(AssertionError):
        Bench().machine.verified(1, [], 0)


def test_committed_out_of_turn_is_refused():
    """An answer to a commit that nobody asked for is a bug of ours."""
    with pytest.raises(AssertionError):
        Bench().machine.committed(1, 0)


def test_unknown_connections_are_ignored():
    """Whatever still arrives for a connection that is over changes nothing."""
    bench = plain_bench()
    gone = Peer(99)

    for late in (bench.machine.disconnect, bench.machine.congested, bench.machine.drained, bench.machine.half_closed):
        late(gone, bench.now)
    bench.machine.receive(gone, b"\x00", bench.now)

    assert bench.machine.take() == []


def test_address_of_another_scheme_is_refused():
    """Only bsp+tls, bsp+wss and bsp+tcp are dialled."""
    bench = Bench()

    with pytest.raises(LocalError):
        bench.machine.dial(FRIEND.public, "https://friend.example")
    with pytest.raises(LocalError):
        BspMachine(bench.device, US, None, dials={FRIEND.public: "friend.example"})


def test_effects_of_a_turn_are_in_order():
    """First the commit, then what is said, then the end."""
    bench = plain_bench()
    peer = bench.come("plain")
    bench.machine.receive(peer, bench.encoded(bench.message()), bench.now)
    bench.device.add(bench.group.group_id, 2, b"ours", bench.now)
    bench.machine.half_closed(peer, bench.now)

    first = bench.machine.take()
    bench.machine.committed(1, bench.now)
    second = bench.machine.take()

    assert isinstance(first[0], Commit)
    assert [type(effect) for effect in second][-2:] == [Close, PeerLeft]
    assert isinstance(second[0], Send)


def test_interactive_mode_offers_over_a_stream():
    """The mode is the device's: an offer, a request, the message, its acknowledgement."""
    server, client = (
        Bench(US, mode=Mode.INTERACTIVE, plain_peer=FRIEND.public),
        Bench(FRIEND, peers=[US], mode=Mode.INTERACTIVE, plain_peer=US.public),
    )
    pair = Pair(server, client)
    pair.line(server.come("plain"), client.come("plain"))
    server.add()

    pair.run()

    assert client.has(client.message())
    assert server.device.owes(FRIEND.public) == 0


def test_retired_machine_hears_acknowledgements_only():
    """What is said to a machine that drains is neither stored nor answered; what it has said is held to be there."""
    bench = plain_bench()
    peer = bench.come("plain")
    bench.add(b"ours", 1)
    theirs = bench.message(b"theirs", 2)
    bench.take_sent(peer)
    bench.machine.retire()

    bench.say(peer, bench.encoded(theirs, Offer((b"o" * 32,)), Ack((bench.id_of(bench.message(b"ours", 1)),))))
    bench.say(peer, bench.encoded(bench.message(b"more", 3))[:50], bench.encoded(bench.message(b"more", 3))[50:])

    assert not bench.has(theirs)
    assert len(bench.device.messages(bench.group.group_id)) == 1
    assert bench.take_sent(peer) == b""
    assert bench.device.owes(FRIEND.public) == 0
    assert bench.machine.settled()


def test_flood_does_not_keep_a_retired_machine_busy():
    """What was heard before comes to its end, however much is said behind it."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    bench.say(peer, bench.encoded(bench.message(b"before", 0)))
    bench.machine.retire()
    bench.say(peer, bench.encoded(*(bench.message(b"flood", number) for number in range(1, 100))))
    before = bench.machine.settled()

    bench.save()
    bench.settle()

    assert (before, bench.machine.settled(), bench.commits) == (False, True, [])
    assert bench.take_records(peer) == [Ack((bench.id_of(bench.message(b"before", 0)),))]


def test_retired_machine_finishes_with_who_half_closes():
    """What was heard of a peer before the drain is on disk and answered before its connection ends."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    bench.say(peer, bench.encoded(bench.message()))
    bench.machine.retire()
    bench.machine.half_closed(peer, bench.now)
    bench.settle()
    before = bench.machine.settled(), bench.reason_of(peer)

    bench.save()
    bench.settle()

    assert before == (False, None)
    assert bench.take_records(peer) == [Ack((bench.id_of(bench.message()),))]
    assert bench.reason_of(peer) is Refusal.HALF_CLOSED
    assert bench.machine.settled()


def test_sizes_are_back_to_nothing():
    """When everybody has left nothing is kept of them."""
    bench = Bench()
    peers = [bench.enter(), bench.come()]

    for peer in peers:
        bench.machine.disconnect(peer, bench.now)
    bench.settle()

    sizes = bench.machine.sizes()
    assert {sizes[name] for name in ("connections", "handshakes", "connected", "ending", "links")} == {0}
    assert bench.machine.settled()
    assert isinstance(bench.facts[-1], PeerLeft)


def test_message_of_a_stranger_group_is_silence():
    """A message of a group that is not shared is neither stored nor answered."""
    bench = plain_bench()
    peer = bench.come("plain")

    bench.say(peer, bench.encoded(Message(b"z" * 32, 1, b"x")))

    assert not bench.sends
    assert not bench.closes
