"""Laws of protocols.merk.forwards: envelopes, answers, slow links and ends."""

import pytest

from tests.protocols.merk.net import START, data_to, in_force, key_of
from waystation.core.effects import Peer
from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import DEFAULT_LIMITS, MerkLimits
from waystation.protocols.merk.messages import Forward
from waystation.protocols.merk.relay.forwards import Forwards, SeenIds, sending_of
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.session import Sending, Session, State, Traffic

NODE, ALICE, BOB = key_of("node"), key_of("alice"), key_of("bob")
AHEAD = 1_000


def forwards(**limits):
    """Return an outbox, the frames under way and one peer."""
    return forwards_within(in_force(**limits))


def forwards_within(held):
    """Return the same under limits that a test may replace."""
    outbox = Outbox(AHEAD, held)
    peer = Session(Peer(1), State.PEER, START)
    peer.link = Traffic(START)
    return outbox, Forwards(outbox, NODE.public, b"bootboot", held), peer


def sending(content=b"hello"):
    """Return a frame for Bob."""
    return Sending(None, BOB.public, data_to(BOB, ALICE, content), b"")


def sent(outbox):
    """Return what left."""
    return [effect.data for effect in outbox.take()]


def flight_of(one, *, sent_at=START):
    """Return what is kept of a frame that left."""
    return (after_ms(sent_at, 5_000), one.session, one.target, one.frame, one.denials)


def late(out, now):
    """Return the frames whose time is up."""
    return [one.frame for _, one in out.wake(now)]


def later(duration_ms):
    """Return a moment after the start."""
    return after_ms(START, duration_ms)


def test_a_peer_gets_an_envelope_that_reads_as_the_codec_writes_it():
    """Hop 1, our key, a number never used twice, and the frame to the byte."""
    outbox, out, peer = forwards()
    two = [sending(b"a"), sending(bytes(300))]
    for each in two:
        assert out.send(peer, each, START) is None

    envelopes = [
        Forward(1, b"bootboot" + number.to_bytes(8, "big"), NODE.public, each.frame)
        for number, each in enumerate(two, 1)
    ]
    expected = [wire.encode_info_frame(envelope, NODE.public) for envelope in envelopes]
    assert sent(outbox) == expected
    assert len(out) == 2
    assert (peer.link.frames_out, peer.link.bytes_out) == (2, sum(len(each.frame) for each in two))


@pytest.mark.parametrize("state", [State.UPSTREAM, State.DOWNSTREAM])
def test_an_original_gets_the_bare_frame(state):
    """Nothing more will be heard of it."""
    outbox, out, original = forwards()
    original.state = state
    one = sending()

    assert out.send(original, one, START) is True
    assert sent(outbox) == [one.frame]
    assert len(out) == 0


def test_an_answer_names_its_frame():
    """Node, target and hash must fit, and each answer takes one frame."""
    _, out, peer = forwards()
    one = sending()
    out.send(peer, one, START)
    name = wire.frame_hash(one.frame)

    assert out.answered(Session(Peer(2), State.PEER, START), BOB.public, name) is None
    assert out.answered(peer, ALICE.public, name) is None
    assert out.answered(peer, BOB.public, bytes(16)) is None
    assert out.answered(peer, BOB.public, name) == flight_of(one)
    assert out.answered(peer, BOB.public, name) is None
    assert len(out) == 0


def test_equal_frames_are_answered_in_their_order():
    """The oldest first, however many there are."""
    _, out, peer = forwards()
    twins = [sending() for _ in range(4)]
    for each in twins:
        out.send(peer, each, START)
    answered = [out.answered(peer, BOB.public, wire.frame_hash(twins[0].frame)) for _ in range(5)]

    assert answered == [*map(flight_of, twins), None]
    assert (len(out), peer.flights, peer.twins) == (0, {}, {})


def test_what_is_not_answered_in_five_seconds_is_late():
    """Those that are due, each with its node; their late answers mean nothing."""
    _, out, peer = forwards()
    first, second, third = sending(b"1"), sending(b"2"), sending(b"3")
    out.send(peer, first, START)
    out.send(peer, second, START)
    out.send(peer, third, later(1))
    out.answered(peer, BOB.public, wire.frame_hash(first.frame))

    assert out.deadline() == later(5_000)
    assert late(out, Instant(later(5_000) - 1)) == []
    assert late(out, later(5_000)) == [second.frame]
    assert out.answered(peer, BOB.public, wire.frame_hash(second.frame)) is None
    assert out.deadline() == later(5_001)
    assert late(out, later(9_000)) == [third.frame]
    assert out.deadline() is None


def test_the_time_of_twins_runs_for_each():
    """The answer of one does not end the time of the other, nor lengthen it."""
    _, out, peer = forwards()
    for at_ms in (0, 10, 20):
        out.send(peer, sending(), later(at_ms))
    out.answered(peer, BOB.public, wire.frame_hash(sending().frame))
    counts = [len(late(out, later(at_ms))) for at_ms in (5_000, 5_009, 5_010, 5_020, 9_000)]

    assert counts == [0, 0, 1, 1, 0]
    assert (len(out), peer.twins) == (0, {})


def test_a_slow_link_lets_frames_wait_in_their_order():
    """Nothing leaves while bytes wait, and nothing overtakes."""
    outbox, out, peer = forwards()
    out.send(peer, sending(b"1"), START)
    outbox.on_congested(peer, START)
    for content in (b"2", b"3"):
        assert out.send(peer, sending(content), START) is None
    before = len(sent(outbox))
    outbox.on_drained(peer)
    out.release(peer, START)
    numbers = [wire.decode_info_frame(frame).frame[-1:] for frame in sent(outbox)]

    assert before == 1
    assert numbers == [b"2", b"3"]
    assert peer.waiting_bytes == 0


def test_waiting_frames_leave_turn_by_turn():
    """As much as a turn takes; the rest asks to be woken at once."""
    outbox, out, peer = forwards()
    for number in range(5):
        out.send(peer, sending(bytes([number]) * 400), START)
    counts = [len(sent(outbox))]
    while out.deadline() == 0:
        assert out.wake(START) == []
        counts.append(len(sent(outbox)))

    assert counts == [1, 1, 1, 1, 1]
    assert (list(peer.waiting), peer.waiting_bytes) == ([], 0)


def test_a_slow_link_keeps_a_bounded_number_of_bytes():
    """Beyond it a frame is refused at once."""
    outbox, out, peer = forwards(waiting_bytes_per_node=400)
    outbox.on_congested(peer, START)
    taken = [out.send(peer, sending(), START) for _ in range(3)]

    assert taken == [None, None, False]
    assert peer.waiting_bytes == 2 * len(sending().frame)


def test_frames_under_way_are_bounded():
    """In number and in bytes; an answer makes room."""
    held = in_force(forwards=2)
    _, out, peer = forwards_within(held)
    taken = [out.send(peer, sending(b"%d" % number), START) for number in range(3)]
    out.answered(peer, BOB.public, wire.frame_hash(sending(b"0").frame))
    again = out.send(peer, sending(b"3"), START)
    held.now = MerkLimits(forwards=9, forward_bytes=3 * len(sending(b"0").frame) - 1)

    assert (taken, again) == ([None, None, False], None)
    assert out.send(peer, sending(b"4"), START) is False


def test_a_frame_that_waited_too_long_is_never_sent():
    """Its sender has been told that nobody knows; it must not arrive after that."""
    outbox, out, peer = forwards()
    outbox.on_congested(peer, START)
    out.send(peer, sending(b"old"), START)
    out.send(peer, sending(b"new"), later(10))
    given_up = late(out, later(5_000))
    outbox.on_drained(peer)
    out.release(peer, later(5_000))

    (left,) = sent(outbox)
    assert given_up == [sending(b"old").frame]
    assert wire.decode_info_frame(left).frame.endswith(b"new")
    assert peer.waiting_bytes == 0


def test_a_lost_link_tells_apart_what_left_and_what_did_not():
    """What never left may go elsewhere, what left must not, what is over is in neither."""
    outbox, out, peer = forwards()
    answered, left, unsent = sending(b"answered"), sending(b"left"), sending(b"unsent")
    out.send(peer, answered, START)
    out.send(peer, left, START)
    out.answered(peer, BOB.public, wire.frame_hash(answered.frame))
    outbox.on_congested(peer, START)
    out.send(peer, unsent, START)

    gone, lost = out.lost(peer)
    assert (gone, [one.frame for one in lost]) == ([unsent], [left.frame])
    assert (len(out), peer.waiting_bytes, list(peer.waiting), peer.flights) == (0, 0, [], {})
    assert out.deadline() is None


def test_what_was_given_up_is_in_neither_list():
    """A frame that waited for its link until its time was over has had its outcome."""
    outbox, out, peer = forwards()
    outbox.on_congested(peer, START)
    out.send(peer, sending(), START)
    out.wake(later(5_000))

    assert out.lost(peer) == ([], [])
    assert peer.waiting_bytes == 0


def test_a_link_whose_frames_wait_is_forgotten_with_it():
    """Nothing wakes us for a node that is not there."""
    _, out, peer = forwards()
    for number in range(3):
        out.send(peer, sending(bytes([number]) * 400), START)
    out.lost(peer)

    assert out.deadline() is None
    assert out.wake(later(9_000)) == []


def test_a_run_leaves_as_its_frames_would():
    """The same envelopes as one effect, each with a flight of its own."""
    outbox, out, peer = forwards()
    alone_outbox, alone, other = forwards()
    sendings = [sending(bytes(number)) for number in (1, 7, 1)]
    frames = [each.frame for each in sendings]
    out.send_run(peer, None, BOB.public, frames, START)
    (together,) = outbox.take()
    for each in sendings:
        alone.send(other, each, START)

    assert (together.messages, len(out)) == (sent(alone_outbox), 3)
    assert (out.carried_bytes, peer.flights, peer.twins) == (alone.carried_bytes, other.flights, other.twins)
    assert (peer.link.frames_out, peer.link.bytes_out) == (3, sum(map(len, frames)))
    assert [out.answered(peer, BOB.public, wire.frame_hash(frame))[3] for frame in frames] == frames


def test_a_node_that_gathers_notices_names_frames_by_their_ids():
    """Equal ones too, in any order, each once; what it was not sent is left out."""
    outbox, out, peer = forwards()
    peer.gathers_notices = True
    twins = [sending(), sending(), sending(b"other")]
    out.send(peer, twins[0], START)
    out.send_run(peer, None, BOB.public, [each.frame for each in twins[1:]], START)
    outbox.take()
    first, second, third = (b"bootboot" + number.to_bytes(8, "big") for number in (1, 2, 3))
    name = wire.frame_hash(twins[0].frame)

    assert out.answered_many(peer, [third, bytes(16), first, first, name]) == [flight_of(twins[2]), flight_of(twins[0])]
    assert (len(out), out.carried_bytes) == (1, len(twins[1].frame))
    assert out.answered_many(peer, [first, second]) == [flight_of(twins[1])]
    assert (len(out), out.carried_bytes, out.deadline()) == (0, 0, None)


def test_frames_of_a_run_are_late_in_their_order():
    """Those of them that are not answered, when their time is up."""
    _, out, peer = forwards()
    peer.gathers_notices = True
    frames = [data_to(BOB, ALICE, b"%d" % number) for number in range(4)]
    out.send_run(peer, None, BOB.public, frames, START)
    out.answered_many(peer, [b"bootboot" + number.to_bytes(8, "big") for number in (1, 3)])

    assert out.deadline() == later(5_000)
    assert late(out, later(5_000)) == [frames[1], frames[3]]
    assert (len(out), out.deadline()) == (0, None)


def test_a_frame_that_comes_back_is_what_it_was():
    """Who is told, where it goes, how it is named, and how often it was denied."""
    _, out, peer = forwards()
    one = sending()
    one.denials = 2
    out.send(peer, one, START)
    name = wire.frame_hash(one.frame)
    back = sending_of(out.answered(peer, BOB.public, name), name)

    assert (back.session, back.target, back.frame, back.frame_hash) == (None, BOB.public, one.frame, name)
    assert back.denials == 2


def test_a_run_that_is_not_taken_is_a_bug_of_ours():
    """Whoever sends it has asked the outbox."""
    outbox, out, peer = forwards()
    outbox.on_congested(peer, START)

    with pytest.raises(AssertionError):
        out.send_run(peer, None, BOB.public, [sending().frame], START)


def test_room_is_counted_in_frames_and_bytes():
    """Exactly as much as there may be."""
    _, out, _ = forwards()

    assert out.has_room(DEFAULT_LIMITS.forwards, DEFAULT_LIMITS.forward_bytes)
    assert not out.has_room(DEFAULT_LIMITS.forwards + 1, 1)
    assert not out.has_room(1, DEFAULT_LIMITS.forward_bytes + 1)


def test_a_number_is_remembered_for_two_minutes_at_least():
    """And forgotten after four at most, when somebody looks."""
    seen = SeenIds(in_force())
    seen.add(b"a", START)
    seen.sweep(Instant(later(120_000) - 1))
    seen.add(b"b", Instant(later(240_000) - 1))

    assert b"a" in seen
    seen.sweep(later(360_000))
    assert b"a" not in seen
    seen.sweep(later(600_000))
    assert len(seen) == 0


@pytest.mark.parametrize("began_ms", [0, 1, 60_000, 119_999])
def test_no_number_is_forgotten_early(began_ms):
    """Whenever in a generation's life it came."""
    seen = SeenIds(in_force())
    seen.add(b"first", START)
    seen.add(b"a", later(began_ms))
    for step_ms in range(0, 120_000, 10_000):
        seen.sweep(later(began_ms + step_ms))
        seen.add(b"%d" % step_ms, later(began_ms + step_ms))

        assert b"a" in seen


def test_numbers_are_bounded():
    """Two generations of so many; the newest are remembered."""
    seen = SeenIds(in_force(seen_forwards=3))
    for number in range(50):
        seen.add(b"%d" % number, START)

        assert len(seen) <= 6
        assert all(b"%d" % each in seen for each in range(max(0, number - 2), number + 1))


def test_an_empty_memory_is_swept_for_nothing():
    """Nothing is kept of nothing."""
    seen = SeenIds(in_force())
    seen.sweep(later(10**6))

    assert len(seen) == 0
    assert b"a" not in seen
