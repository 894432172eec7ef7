"""Laws of protocols.bsp.hearing about answers: ACK, REQUEST, floods of them, and what they measure."""

import pytest

from tests.protocols.bsp.build import ids
from tests.protocols.bsp.build_device import LIVE, Bench, Flags, P, Q, R, audit, only, told
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.events import PeerHolds, Settled
from waystation.protocols.bsp.device.links import Mode, Visibility, stream_terms
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.messages import Ack, Offer, Request
from waystation.protocols.bsp.profile import BRIAR


def offer(bench, message_id, peer=P):
    bench.up(peer)
    assert told(bench.say(peer)) == only("Offer", message_id)


# ACK


def test_ack_sets_hold_and_ends_repetition():
    """ACK(id), shared with p: hold = 1, request = 0; the row is over once its interval is."""
    bench = Bench()
    message_id = bench.added()
    offer(bench, message_id)

    bench.hear(Ack((message_id,)))
    bench.commit()
    bench.pass_ms(60_000)

    assert bench.flags(message_id).hold
    assert bench.say() == []
    assert message_id not in bench.device._repository.peers[P].rows
    assert bench.device.deadline() is None
    audit(bench.device)


def test_ack_is_told_once_with_the_number_of_copies():
    """The first ACK of a message is an event, and the last of all that was due another; repeats are none."""
    bench = Bench()
    message_id = bench.added()
    offer(bench, message_id)
    bench.events.clear()

    bench.hear(Ack((message_id, message_id)), Ack((message_id,)))
    bench.commit()

    assert [event[:4] for event in bench.events] == [Settled(P), PeerHolds(bench.group_id, message_id, P, 1)[:4]]


@pytest.mark.parametrize("how", ["unknown", "unshared group", "unshared message", "visible", "pending"])
def test_ack_of_what_is_not_shared_is_ignored(how):
    """ACK(id) of something that is not shared with p changes nothing."""
    bench = Bench(format="deps_v1", shares_delivered=False)
    pending = bench.message(deps_v1_body(ids(1), b""))
    bench.hear(pending, peer=Q)
    mine = bench.added(deps_v1_body((), b""), share=how == "visible")
    other = bench.added(deps_v1_body((), b""), group_id=bench.other_id)
    if how == "visible":
        bench.device.share(bench.group_id, P, bench.now, Visibility.VISIBLE)
    names = {"unknown": ids(1)[0], "unshared message": mine, "visible": mine, "pending": bench.id_of(pending)}
    name, peer = names.get(how, other), Q if how == "unshared group" else P
    bench.device.wake(Instant(bench.now + 3_000_000))
    bench.commit()

    bench.hear(Ack((name,)), peer=peer)

    assert not bench.device.must_commit
    if how != "unshared group":
        assert bench.flags(name, peer) == Flags()


def test_ack_of_a_deleted_message_still_counts():
    """A body that is gone leaves the flags as they are: the peer may still say that it holds the message."""
    bench = Bench()
    message_id = bench.added()
    offer(bench, message_id)
    bench.device.delete(bench.group_id, message_id)

    bench.hear(Ack((message_id,)))

    assert bench.device.holds(P, bench.group_id, message_id)
    assert not bench.device.holds(Q, bench.group_id, message_id)


# REQUEST


def test_request_is_served_at_once():
    """REQUEST(id): request = 1, next = now, count = 0, whatever interval the offer has begun."""
    bench = Bench()
    message_id = bench.added(b"body")
    offer(bench, message_id)
    assert bench.flags(message_id) == Flags(count=1, next_ms=1_000)

    bench.hear(Request((message_id, message_id)))

    assert bench.flags(message_id) == Flags(request=True)
    assert told(bench.say()) == [("Message", b"body")]
    assert bench.flags(message_id) == Flags(count=1, next_ms=1_000)


@pytest.mark.parametrize("how", ["unknown", "unshared group", "unshared message", "deleted", "visible", "pending"])
def test_request_of_what_may_not_be_told_is_silence(how):
    """REQUEST(id) of anything that is not shared with p, or whose body is gone, is ignored."""
    bench = Bench(format="deps_v1", shares_delivered=False)
    pending = bench.message(deps_v1_body(ids(1), b""))
    bench.hear(pending, peer=R if how == "?" else Q)
    mine = bench.added(deps_v1_body((), b""), share=how in {"visible", "deleted"})
    other = bench.added(deps_v1_body((), b""), group_id=bench.other_id)
    if how == "visible":
        bench.device.share(bench.group_id, P, bench.now, Visibility.VISIBLE)
    if how == "deleted":
        bench.device.delete(bench.group_id, mine)
    peer = Q if how == "unshared group" else P
    name = {"unknown": ids(1)[0], "pending": bench.id_of(pending), "unshared group": other}.get(how, mine)
    bench.up(peer)
    bench.commit()
    bench.say(peer)

    bench.hear(Request((name,)), peer=peer)

    assert bench.say(peer) == []
    audit(bench.device)


def test_request_of_a_held_message_is_served():
    """A peer that lost its store asks for what it once acknowledged (bsp 2, note c); afterwards the row is over."""
    bench = Bench()
    message_id = bench.added(b"body")
    bench.hear(Ack((message_id,)))
    bench.up()
    assert bench.say() == []

    bench.hear(Request((message_id,)))

    assert told(bench.say()) == [("Message", b"body")]
    audit(bench.device)
    bench.pass_ms(1_000)
    assert bench.say() == []
    assert bench.device._repository.peers[P].rows == {}


def test_request_of_a_held_message_is_ignored_in_profile_briar():
    """Briar does not serve what the peer holds."""
    bench = Bench(profile=BRIAR)
    message_id = bench.added(b"body")
    bench.hear(Ack((message_id,)))
    bench.up()

    bench.hear(Request((message_id,)))

    assert bench.say() == []
    audit(bench.device)


def test_repeated_request_within_a_base_interval_yields_two_copies_at_most():
    """The second REQUEST only sets request = 1: another copy goes out when its send time has come (BSP-C9)."""
    bench = Bench()
    message_id = bench.added(b"body")
    offer(bench, message_id)
    copies = []

    for _ in range(10):
        bench.hear(Request((message_id,)))
        copies += bench.say()
        bench.pass_ms(99)
    assert bench.flags(message_id) == Flags(request=True, count=1, next_ms=10)
    bench.pass_ms(10)
    copies += bench.say()

    assert told(copies) == [("Message", b"body")] * 2
    assert bench.flags(message_id) == Flags(count=2, next_ms=2_000)


@pytest.mark.parametrize(
    ("ms", "expected"), [(999, Flags(request=True, count=1, next_ms=1)), (1_000, Flags(request=True))]
)
def test_request_resets_at_the_end_of_the_base_interval(ms, expected):
    """A MESSAGE that left a base interval ago does not hold back a request."""
    bench = Bench(mode=Mode.BATCH)
    message_id = bench.added(b"body")
    bench.up()
    bench.say()

    bench.pass_ms(ms)
    bench.hear(Request((message_id,)))

    assert bench.flags(message_id) == expected


def test_request_that_waits_is_served_when_asked_again_after_the_interval():
    """A request that came too early, and again when the interval is over, resets count and time."""
    bench = Bench(mode=Mode.BATCH)
    message_id = bench.added(b"body")
    bench.up()
    bench.say()
    bench.pass_ms(1_000)
    bench.say()
    bench.hear(Request((message_id,)))
    assert bench.flags(message_id) == Flags(request=True, count=2, next_ms=2_000)

    bench.pass_ms(1_500)
    bench.hear(Request((message_id,)))

    assert bench.flags(message_id) == Flags(request=True)
    assert told(bench.say()) == [("Message", b"body")]


def test_request_after_its_copy_died_with_its_way_is_served_at_once():
    """A copy that was lost with a connection does not hold back a request."""
    bench = Bench()
    message_id = bench.added(b"body")
    offer(bench, message_id)
    bench.hear(Request((message_id,)))
    bench.say()
    bench.device.link_down(bench.device.link_of(P), bench.now)
    bench.up()

    bench.hear(Request((message_id,)))

    assert bench.flags(message_id) == Flags(request=True)
    assert told(bench.say()) == [("Message", b"body")]


def test_ack_of_what_has_not_gone_out_needs_no_row():
    """A peer that holds a message already is not remembered for its sake."""
    bench = Bench()
    message_id = bench.added()

    bench.hear(Ack((message_id,)))

    assert bench.flags(message_id) == Flags(hold=True)
    assert bench.device._repository.peers[P].rows == {}


@pytest.mark.parametrize("flood", ["requests", "requests and acks", "requests and offers", "messages", "uncommitted"])
def test_flood_does_not_grow_memory(flood):
    """However often a peer says the same, its heaps and lists stay within twice the rows and a constant."""
    bench = Bench(mode=Mode.BATCH)
    message = bench.message(b"body")
    message_id = bench.id_of(message)
    bench.added(b"comes up before it again")
    bench.up()
    bench.say()
    bench.pass_ms(500)
    if flood == "uncommitted":
        bench.hear(message)
    else:
        bench.added(b"body")
        bench.say()
        bench.commit()
    records = {
        "requests": [Request((message_id,))],
        "requests and acks": [Request((message_id,)), Ack((message_id,))],
        "requests and offers": [Request((message_id,)), Offer((message_id,))],
        "messages": [message],
        "uncommitted": [message, Offer((message_id,)), Request((message_id,))],
    }[flood]

    for _ in range(3_000):
        bench.hear(*records)

    state, gathering = bench.device._repository.peers[P], bench.device._repository._gathering
    assert len(state._due) + len(state._waiting) <= 1_024 + 4
    assert len(gathering.acks) <= 1 and len(gathering.rows) <= 2 and len(gathering.chunks) <= 1
    assert len(bench.device._repository.alarms._heap) <= 3
    audit(bench.device)


def test_peer_that_comes_and_goes_does_not_grow_memory():
    """Every new way makes all rows due again; places that became void are forgotten."""
    bench = Bench(mode=Mode.BATCH)
    for number in range(100):
        bench.add(bytes([number]))
    bench.commit()
    bench.up()
    bench.say()

    for _ in range(300):
        bench.device.link_down(bench.device.link_of(P), bench.now)
        bench.up()

    assert len(bench.device._repository.peers[P]._due) <= 2 * 100 + 1_024
    assert len(bench.say()) == 100
    audit(bench.device)


# Measured round trips


def test_round_trip_is_measured_by_the_answer_to_a_first_copy():
    """What answers an offer that went out once, on the same way, says how long a round trip is."""
    bench = Bench()
    message_id = bench.added()
    link = bench.up(terms=stream_terms("plain"))
    bench.say()
    bench.pass_ms(700)

    bench.hear(Request((message_id,)), link=link)
    bench.say()

    assert bench.flags(message_id) == Flags(count=1, next_ms=1_400)


@pytest.mark.parametrize("how", ["repeated", "another way", "no way", "does not measure"])
def test_answer_that_measures_nothing(how):
    """An answer to a copy that was repeated, or that came another way, could be to any copy."""
    bench = Bench()
    message_id = bench.added()
    link = bench.up(terms=LIVE if how == "does not measure" else stream_terms("plain"))
    bench.say()
    if how == "repeated":
        bench.pass_ms(1_000)
        bench.say()
    bench.pass_ms(900)
    found = {"another way": 999, "no way": None}.get(how, link)

    bench.hear(Request((message_id,)), link=found)
    bench.say()

    assert bench.flags(message_id) == Flags(count=1, next_ms=1_000)
