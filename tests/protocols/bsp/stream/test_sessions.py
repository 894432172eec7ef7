"""Laws of protocols.bsp.sessions: one connection per peer, and how connections end."""

import pytest

from tests.protocols.bsp.build_machine import Bench, Pair
from tests.protocols.bsp.build_streams import FRIEND, STRANGER, US, hello_of, proof_of, verdict_of
from waystation.core.effects import Close
from waystation.core.facts import PeerIdentified, PeerLeft, Refused
from waystation.protocols.bsp.device.events import PeerHolds
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.messages import Ack, Offer, Request
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.stream.machine import PeerDown, PeerUp

TLS_URL, PLAIN_URL = "bsp+tls://peer.example", "bsp+tcp://127.0.0.1:7"


def plain_bench(**how):
    return Bench(plain_peer=FRIEND.public, **how)


# The newest connection


@pytest.mark.parametrize("enter", [Bench.enter, lambda bench: bench.come("plain")], ids=["tls", "plain"])
def test_newest_connection_wins(enter):
    """The older connection of a peer is closed, and messages go out on the newer one only."""
    bench = plain_bench()
    older = enter(bench)
    newer = enter(bench)

    bench.add()

    assert bench.reason_of(older) is Refusal.REPLACED
    assert bench.take_sent(older) == b""
    assert bench.take_records(newer) == [bench.message()]
    assert bench.machine.sizes()["links"] == 1
    assert [type(event) for event in bench.events[:2]] == [PeerUp, PeerUp]
    assert not [event for event in bench.events if isinstance(event, PeerDown)]


def test_copies_lost_with_the_older_connection_are_sent_again():
    """What went out on a connection that was replaced and was not acknowledged is due at once on the newer."""
    bench = plain_bench()
    older = bench.come("plain")
    bench.add()
    assert bench.take_records(older) == [bench.message()]

    newer = bench.come("plain")

    assert bench.take_records(newer) == [bench.message()]


def test_older_connection_that_does_not_read_is_cut():
    """What waits for the connection that was replaced is dropped, because it goes out on the newer."""
    bench = plain_bench()
    older = bench.come("plain")
    bench.machine.congested(older, bench.now)

    bench.come("plain")

    assert bench.closes[older] == Close(older, Refusal.REPLACED, abort=True)


def test_what_the_older_one_said_stays_said():
    """A record that was heard before the newer connection came is stored and acknowledged on the newer."""
    bench = plain_bench(saves=False)
    older = bench.come("plain")
    bench.say(older, bench.encoded(bench.message()))
    newer = bench.come("plain")

    bench.save()
    bench.settle()
    bench.say(older, bench.encoded(bench.message(b"late", 9)))

    assert bench.take_records(newer) == [Ack((bench.id_of(bench.message()),))]
    assert not bench.has(bench.message(b"late", 9))


def test_peers_do_not_replace_each_other():
    """The newest connection is that of one peer."""
    bench = Bench(peers=[FRIEND, STRANGER])
    bench.enter(FRIEND)

    bench.enter(STRANGER)

    assert not bench.closes
    assert bench.machine.connected() == {FRIEND.public: "tls", STRANGER.public: "tls"}


def test_a_stranger_cannot_end_a_connection_by_claiming_its_key():
    """Only a proof replaces: a hello, half a proof or a forged one leave the peer where it is."""
    bench = Bench()
    friend = bench.enter()

    forged = bench.come()
    bench.say(forged, b"BSPH\x01\x00\x00\x00" + bytes(32) + FRIEND.public + bytes(64))

    assert bench.reason_of(forged) is Refusal.BAD_SIGNATURE
    assert friend not in bench.closes


@pytest.mark.parametrize("url", [TLS_URL, PLAIN_URL])
@pytest.mark.parametrize("chunk_bytes", [3, 1 << 20])
def test_both_dial_at_once(url, chunk_bytes):
    """Two connections that crossed: both sides keep the one that the smaller key dialled, and sync over it."""
    small, large = sorted((US, FRIEND), key=lambda each: each.public)
    left = Bench(small, peers=[large], dials={large.public: url}, plain_peer=large.public)
    right = Bench(large, peers=[small], dials={small.public: url}, plain_peer=small.public)
    for bench in (left, right):
        bench.pass_ms(0)
        bench.pass_ms(1)
    door = "plain" if url == PLAIN_URL else ""
    pair = Pair(left, right, chunk_bytes)
    at_right, at_left = right.come(door), left.come(door)
    kept = (left.dialled(large), at_right)
    lost = (at_left, right.dialled(small))
    pair.line(*kept)
    pair.line(*lost)
    left.add(b"left", 1)
    right.add(b"right", 2)

    pair.run()

    assert not {kept[0]} & set(left.closes)
    assert not {kept[1]} & set(right.closes)
    assert left.machine.sizes()["connections"] == right.machine.sizes()["connections"] == 1
    assert left.has(left.message(b"right", 2))
    assert right.has(right.message(b"left", 1))


def test_later_connection_of_the_other_direction_wins():
    """Who comes to us after our own connection stood is newer, not crossed, whoever has the smaller key."""
    for us, them in ((US, FRIEND), (FRIEND, US)):
        bench = Bench(us, peers=[them], dials={them.public: PLAIN_URL}, plain_peer=them.public)
        bench.pass_ms(0)
        dialled = bench.dialled(them)
        bench.pass_ms(1)

        came = bench.come("plain")

        assert bench.reason_of(dialled) is Refusal.REPLACED
        assert came not in bench.closes


# Half-close


def test_half_close_lets_everything_finish():
    """What came is committed, acknowledged and written, then the connection ends; nothing is lost on the way."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    bench.say(peer, bench.encoded(bench.message()))
    bench.machine.half_closed(peer, bench.now)
    bench.settle()
    assert not bench.closes

    bench.save()
    bench.settle()

    assert bench.take_records(peer) == [Ack((bench.id_of(bench.message()),))]
    assert bench.closes[peer] == Close(peer, Refusal.HALF_CLOSED)
    assert not [fact for fact in bench.facts if isinstance(fact, Refused)]


def test_half_close_waits_for_the_commit_that_follows():
    """What was heard while another commit was under way is acknowledged as well before the end."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    first, second = bench.message(b"1", 1), bench.message(b"2", 2)
    bench.say(peer, bench.encoded(first))
    bench.say(peer, bench.encoded(second))
    bench.machine.half_closed(peer, bench.now)
    bench.settle()

    bench.save()
    bench.settle()
    assert not bench.closes
    bench.save()
    bench.settle()

    assert bench.take_records(peer) == [Ack((bench.id_of(first),)), Ack((bench.id_of(second),))]
    assert bench.reason_of(peer) is Refusal.HALF_CLOSED


def test_half_close_with_nothing_left():
    """A connection that owes nothing is closed in the same turn."""
    bench = plain_bench()
    peer = bench.come("plain")

    bench.machine.half_closed(peer, bench.now)
    bench.settle()

    assert bench.reason_of(peer) is Refusal.HALF_CLOSED
    assert bench.events[-1] == PeerDown(FRIEND.public, "half_closed")


def test_half_close_behind_a_request():
    """A peer that asks and says no more gets what it asked for."""
    bench = plain_bench(mode=Mode.INTERACTIVE)
    message_id = bench.add()
    peer = bench.come("plain")
    assert bench.take_records(peer) == [Offer((message_id,))]
    bench.machine.receive(peer, bench.encoded(Request((message_id,))), bench.now)
    bench.machine.half_closed(peer, bench.now)

    bench.settle()

    assert bench.take_records(peer) == [bench.message()]
    assert bench.reason_of(peer) is Refusal.HALF_CLOSED


def test_half_close_finishes_a_long_answer():
    """More than one write is left: all of it goes out, one behind the other, then the end."""
    bench = plain_bench()
    for number in range(40):
        bench.device.add(bench.group.group_id, number, bytes(32_000), bench.now)
    peer = bench.come("plain")
    bench.machine.half_closed(peer, bench.now)
    bench.settle()
    assert not bench.closes

    for _ in range(20):
        bench.machine.drained(peer, bench.now)
        bench.settle()

    assert len(bench.take_records(peer)) == 40
    assert bench.closes[peer] == Close(peer, Refusal.HALF_CLOSED)


def test_half_close_of_one_that_does_not_read():
    """Three seconds later the connection ends all the same, and what waits is dropped."""
    bench = plain_bench()
    peer = bench.come("plain")
    bench.machine.congested(peer, bench.now)
    bench.machine.half_closed(peer, bench.now)
    bench.settle()

    bench.pass_ms(2_999)
    assert not bench.closes
    bench.pass_ms(1)

    assert bench.closes[peer] == Close(peer, Refusal.HALF_CLOSED, abort=True)


def test_half_close_inside_a_record():
    """A stream that ends inside a record is refused for it, and what came before it counts."""
    bench = plain_bench()
    peer = bench.come("plain")
    bench.say(peer, bench.encoded(bench.message()) + b"\x01\x01")
    bench.take_sent(peer)

    bench.machine.half_closed(peer, bench.now)
    bench.settle()

    assert bench.reason_of(peer) is Refusal.TRUNCATED
    assert bench.has(bench.message())


def test_half_closed_connection_gives_way_to_a_new_one():
    """A peer that comes back while its old connection ends is connected anew at once."""
    bench = plain_bench(saves=False)
    older = bench.come("plain")
    bench.say(older, bench.encoded(bench.message()))
    bench.machine.half_closed(older, bench.now)
    bench.settle()

    newer = bench.come("plain")
    bench.save()
    bench.settle()

    assert bench.reason_of(older) is Refusal.HALF_CLOSED
    assert bench.take_records(newer) == [Ack((bench.id_of(bench.message()),))]


# Other ends


def test_disconnect_is_told_once():
    """An end from outside is told as it is, and the peer counts as gone."""
    bench = Bench()
    peer = bench.enter()

    bench.machine.disconnect(peer, bench.now)
    bench.settle()
    bench.machine.disconnect(peer, bench.now)

    assert bench.facts[1:] == [PeerLeft("bsp", peer, FRIEND.public, "disconnected")]
    assert bench.events[1:] == [PeerDown(FRIEND.public, "disconnected")]
    assert not bench.machine.take()


def test_every_connection_that_is_told_of_is_told_to_have_left():
    """Each connection leaves once, with the identity that was told when it was identified, and without one else."""
    bench = plain_bench(peers=[FRIEND, STRANGER])
    peers = [bench.enter(), bench.enter(STRANGER), bench.come("plain"), bench.come()]
    bench.device.part(STRANGER.public)
    refused = bench.come()
    bench.say(refused, proof_of(STRANGER, bench.take_sent(refused)))

    bench.machine.shut(bench.now)
    bench.settle()

    identified = {fact.peer: fact.identity for fact in bench.facts if isinstance(fact, PeerIdentified)}
    left = {fact.peer: fact.identity for fact in bench.facts if isinstance(fact, PeerLeft)}
    assert list(identified) == peers[:3]
    assert left == {**identified, peers[3]: None, refused: None}
    assert len([fact for fact in bench.facts if isinstance(fact, PeerLeft)]) == 5


def test_shut_closes_everybody():
    """All connections end as draining, nobody is let in behind them, and nobody is dialled."""
    bench = plain_bench(dials={FRIEND.public: PLAIN_URL})
    peers = [bench.come(), bench.come("plain")]

    bench.machine.shut(bench.now)
    bench.settle()
    bench.pass_ms(100_000)

    assert {bench.reason_of(peer) for peer in peers} == {Refusal.DRAINING}
    assert bench.reason_of(bench.come("plain")) is Refusal.DRAINING
    assert not bench.dials


def test_expelled_identity_is_closed():
    """A ban ends the connections of its key, and no others."""
    bench = Bench(peers=[FRIEND, STRANGER])
    friend, stranger = bench.enter(FRIEND), bench.enter(STRANGER)

    bench.machine.expel(FRIEND.public, bench.now)
    bench.settle()

    assert bench.reason_of(friend) is Refusal.IDENTITY_BANNED
    assert bench.reason_of(stranger) is None
    assert Refused("bsp", FRIEND.public, "identity_banned") in bench.facts


def test_settled_waits_for_disk_and_last_words():
    """A node may leave once what was heard is on disk and endings are over."""
    bench = plain_bench(saves=False)
    peer = bench.come("plain")
    bench.say(peer, bench.encoded(bench.message()))
    bench.machine.half_closed(peer, bench.now)
    assert not bench.machine.settled()

    bench.save()
    assert not bench.machine.settled()
    bench.settle()

    assert bench.machine.settled()


def test_acknowledgement_of_the_peer_is_told():
    """What a peer says over its connection reaches the device, with the way it came."""
    bench = plain_bench()
    peer = bench.come("plain")
    message_id = bench.add()

    bench.say(peer, bench.encoded(Ack((message_id,))))

    (held,) = [event for event in bench.events if isinstance(event, PeerHolds)]
    assert held[:4] == (bench.group.group_id, message_id, FRIEND.public, 1)


def test_dialled_connection_that_crossed_an_open_one():
    """A dial that stands when the peer is here already ends in one connection, and in no PeerDown."""
    small, large = sorted((US, FRIEND), key=lambda each: each.public)
    bench = Bench(large, peers=[small], dials={small.public: TLS_URL}, plain_peer=small.public)
    bench.pass_ms(0)
    bench.pass_ms(5)
    came = bench.come("plain")
    dialled = bench.dialled(small)
    bench.say(dialled, hello_of(small))

    bench.say(dialled, verdict_of(small, bench.take_sent(dialled)))

    assert bench.reason_of(dialled) is Refusal.REPLACED
    assert came not in bench.closes
    assert not [event for event in bench.events if isinstance(event, PeerDown)]
