"""Laws of protocols.merk.delivery: frames to clients that are here, and what is told of them."""

import pytest

from tests.protocols.merk.net import START, data_to, in_force, key_of
from waystation.core.effects import Peer, Send, SendMany
from waystation.core.facts import DeliveryFinished, Outcome, Refused
from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import Deliveries, DeliveryCode
from waystation.protocols.merk.messages import Delivery as Notice
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.delivery import Delivery
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.session import Sending, Session, State

NODE, ALICE, BOB, CAROL, X = (key_of(name) for name in ("node", "alice", "bob", "carol", "x"))
AHEAD = 1_000
FRAME = data_to(BOB, ALICE)


class Bench:
    """A delivery with Bob, who is here, and Alice, who wants to know."""

    def __init__(self, **limits):
        held = in_force(**limits)
        self.outbox = Outbox(AHEAD, held)
        self.delivery = Delivery(self.outbox, NODE.public, held)
        self.bob, self.alice = self.client(1, BOB), self.client(2, ALICE)
        self.alice.wants_notices = True

    def client(self, number, key, address=""):
        """Return a client."""
        one = Session(Peer(number), State.CLIENT, START, address=address)
        one.identity = key.public
        return one

    def deliver(self, frame=FRAME, now=START, recipient=None):
        """Let Alice's frame reach Bob, or another."""
        recipient = recipient or self.bob
        self.delivery.deliver(recipient, self.alice, recipient.identity, frame, now)

    def arrived(self):
        """Return and forget what was sent to Bob, and the codes that were told to Alice."""
        effects = self.outbox.take()
        sends = [each for each in effects if isinstance(each, Send)]
        codes = [DeliveryCode(wire.decode_info_frame(each.data).code) for each in sends if each.peer == 2]
        return [each.data for each in sends if each.peer == 1], codes

    def notices(self):
        """Return and forget what was said to Alice."""
        sends = [each for each in self.outbox.take() if isinstance(each, Send) and each.peer == self.alice.peer]
        return [wire.decode_info_frame(each.data) for each in sends]

    def tallied(self, now):
        """Return what the journal is told at a time."""
        self.delivery.wake(now)
        return [fact for fact in self.outbox.take() if isinstance(fact, DeliveryFinished)]


def sized(size, sender=ALICE):
    """Return a frame of so many bytes."""
    return data_to(BOB, sender, bytes(size - 152))


def later(duration_ms):
    """Return a moment after the start."""
    return after_ms(START, duration_ms)


def test_a_frame_leaves_as_it_came():
    """To the byte, and the sender is told at once."""
    bench = Bench()
    bench.deliver()

    notice = wire.encode_info_frame(Notice(0, BOB.public, wire.frame_hash(FRAME)), NODE.public)
    assert bench.outbox.take() == [Send(1, FRAME), Send(2, notice)]


@pytest.mark.parametrize("code", DeliveryCode)
def test_every_notice_is_as_the_codec_writes_it(code):
    """Code, target and hash, in the node's name."""
    bench = Bench()
    bench.delivery.refuse(bench.alice, code, BOB.public, FRAME, START)

    notice = wire.encode_info_frame(Notice(code, BOB.public, wire.frame_hash(FRAME)), NODE.public)
    assert [effect for effect in bench.outbox.take() if not isinstance(effect, Refused)] == [Send(2, notice)]


def test_who_did_not_ask_is_told_nothing():
    """Neither of a delivery nor of a refusal."""
    bench = Bench()
    bench.alice.wants_notices = False
    bench.deliver()
    bench.delivery.refuse(bench.alice, DeliveryCode.RATE, BOB.public, FRAME, START)
    bench.bob.congested = True
    bench.deliver()

    assert bench.arrived() == ([FRAME], [])


def test_who_has_left_is_told_nothing():
    """A frame outlives its sender's connection, its notice does not."""
    bench = Bench()
    bench.outbox.on_congested(bench.bob, START)
    bench.deliver()
    bench.alice.state = State.CLOSED
    bench.outbox.on_drained(bench.bob)
    bench.delivery.release(bench.bob, START)

    assert bench.arrived() == ([FRAME], [])


def test_a_run_leaves_as_one_effect_or_not_at_all():
    """Whoever hands it over has asked the outbox; a connection that does not take it is a bug of ours."""
    bench = Bench()
    run = [sized(200), sized(300)]

    bench.delivery.deliver_run(bench.bob, run, 500, START)
    with pytest.raises(AssertionError):
        bench.delivery.deliver_run(bench.bob, run, 501, START)
    assert bench.outbox.take() == [SendMany(1, run)]
    assert bench.tallied(later(1_000))[0][5:] == (500, 2)


def test_a_run_is_told_as_its_frames_would_be():
    """One notice each, in their order, as one effect."""
    bench = Bench()
    run = [sized(200), sized(300)]
    bench.delivery.notify_run(bench.alice, BOB.public, run)

    notices = [Notice(0, BOB.public, wire.frame_hash(frame)) for frame in run]
    assert bench.outbox.take() == [SendMany(2, [wire.encode_info_frame(notice, NODE.public) for notice in notices])]


def test_outcomes_of_a_node_are_gathered_until_they_are_flushed():
    """One notice for each code, in which every id stands once; frames without an id have their own."""
    bench = Bench()
    ids = [bytes([number]) * 16 for number in range(4)]
    for message_id in ids[:2]:
        bench.delivery.deliver(bench.bob, bench.alice, BOB.public, FRAME, START, message_id)
    bench.delivery.refuse(bench.alice, DeliveryCode.RATE, BOB.public, FRAME, START, ids[2])
    bench.delivery.deliver(bench.bob, bench.alice, BOB.public, FRAME, START, ids[3])
    before = bench.notices()
    bench.delivery.flush()
    gathered = bench.notices()
    bench.delivery.flush()

    assert before == []
    assert gathered == [Deliveries(0, (ids[0], ids[1], ids[3])), Deliveries(DeliveryCode.RATE, (ids[2],))]
    assert bench.notices() == []


def test_a_notice_of_many_leaves_when_it_is_full():
    """Nothing grows beyond what one of them holds, however long a turn is."""
    bench = Bench()
    ids = [number.to_bytes(16, "big") for number in range(500)]
    bench.delivery.gather(bench.alice, DeliveryCode.DELIVERED, ids[:100])
    bench.delivery.gather(bench.alice, DeliveryCode.DELIVERED, ids[100:])
    full = bench.notices()
    bench.delivery.flush()

    assert full == [Deliveries(0, tuple(ids[:240])), Deliveries(0, tuple(ids[240:480]))]
    assert bench.notices() == [Deliveries(0, tuple(ids[480:]))]


def test_what_is_gathered_for_a_connection_that_ends_leaves_alone():
    """Before it is closed; afterwards nothing is said to it, and others get theirs at the end of the turn."""
    bench = Bench()
    for each in (bench.alice, bench.bob):
        bench.delivery.gather(each, DeliveryCode.DELIVERED, [bytes(16)])
    bench.delivery.flush(bench.alice)
    first = bench.outbox.take()
    bench.delivery.gather(bench.alice, DeliveryCode.DELIVERED, [bytes(16)])
    bench.alice.state = State.CLOSED
    bench.delivery.flush()

    assert [effect.peer for effect in first] == [bench.alice.peer]
    assert [effect.peer for effect in bench.outbox.take()] == [bench.bob.peer]


def test_a_slow_reader_gets_everything_in_order():
    """Frames wait while it does not read, and the outcome is told when they leave."""
    bench = Bench()
    bench.outbox.on_congested(bench.bob, START)
    frames = [sized(160 + number, key_of(number)) for number in range(4)]
    for frame in frames:
        bench.deliver(frame)
    before = (bench.arrived(), bench.outbox.waiting_bytes)
    bench.outbox.on_drained(bench.bob)
    bench.delivery.release(bench.bob, START)

    assert before == (([], []), sum(map(len, frames)))
    assert bench.arrived() == (frames, [DeliveryCode.DELIVERED] * 4)
    assert (bench.outbox.waiting_bytes, bench.bob.waiting_bytes) == (0, 0)


def test_the_frame_that_is_too_much_is_refused_and_the_reader_stays():
    """Twice the largest frame waits; one byte more is refused, and whoever does not read loses nothing by it."""
    bench = Bench()
    bench.outbox.on_congested(bench.bob, START)
    bench.deliver(sized(500, ALICE))
    bench.deliver(sized(500, CAROL))
    before = bench.arrived()[1]
    bench.deliver(sized(152, X))

    assert before == []
    assert bench.arrived()[1] == [DeliveryCode.QUEUE_FULL]
    assert bench.outbox.doomed == []
    bench.deliver(recipient=bench.client(3, CAROL))
    assert Send(3, FRAME) in bench.outbox.take()


def test_one_sender_fills_no_more_than_its_share():
    """One frame of any size or a quarter of the queue; what is beyond is refused, and another sender's frame waits."""
    bench = Bench()
    bench.outbox.on_congested(bench.bob, START)
    bench.deliver(sized(500, ALICE))
    bench.deliver(sized(152, ALICE))
    refused = bench.arrived()[1]
    bench.deliver(sized(152, CAROL))

    assert refused == [DeliveryCode.QUEUE_FULL]
    assert bench.bob.waiting_of == {ALICE.public: 500, CAROL.public: 152}
    bench.outbox.on_drained(bench.bob)
    bench.delivery.release(bench.bob, START)
    assert bench.bob.waiting_of == {}


def test_all_slow_readers_together_are_bounded():
    """What waits here and behind us counts; beyond it frames are refused, and who is behind for 10 s is cut."""
    bench = Bench(buffered_bytes=900)
    carol = bench.client(3, CAROL)
    bench.deliver(sized(300))
    bench.outbox.on_congested(carol, START)
    bench.outbox.on_congested(bench.bob, START)
    bench.deliver(sized(600))
    bench.arrived()
    bench.deliver(sized(152, X))
    bench.deliver(sized(152, X))

    assert bench.arrived() == ([], [DeliveryCode.QUEUE_FULL] * 2)
    bench.delivery.wake(Instant(later(10_000) - 1))
    assert bench.outbox.doomed == []
    bench.delivery.wake(later(10_000))
    assert bench.outbox.doomed == [(carol, Refusal.NOT_READING)]


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_reader_that_takes_a_little_keeps_no_memory_from_others(is_refused):
    """While frames of others are refused for room, only who has taken everything is not behind."""
    bench = Bench(buffered_bytes=900)
    bench.deliver(sized(300))
    bench.outbox.on_congested(bench.bob, START)
    bench.deliver(sized(600))
    if is_refused:
        bench.deliver(sized(152, X))
    for ms in range(1_000, 10_000, 1_000):
        bench.outbox.on_congested(bench.bob, later(ms))
        bench.delivery.wake(later(ms))
    before = list(bench.outbox.doomed)
    bench.delivery.wake(later(10_000))

    assert before == []
    assert bench.outbox.doomed == ([(bench.bob, Refusal.NOT_READING)] if is_refused else [])


def test_slow_readers_of_one_network_leave_room_for_others():
    """Beyond their share frames are refused to them alone, and the one that is behind for 10 s is cut, not others."""
    bench = Bench(buffered_bytes=1_800, buffered_network_part=2)
    near = [bench.client(number, key_of(number), f"192.0.2.{number}") for number in (3, 4)]
    far = bench.client(5, CAROL, "198.51.100.1")
    for at, each in enumerate((far, *near)):
        bench.deliver(sized(200), recipient=each)
        bench.outbox.on_congested(each, Instant(START + at))
    bench.arrived()
    for sender in (X, ALICE):
        for each in (*near, far):
            bench.deliver(sized(250, sender), recipient=each)
    codes = bench.arrived()[1]
    bench.delivery.wake(Instant(later(10_000)))
    early = list(bench.outbox.doomed)
    bench.delivery.wake(Instant(later(10_000) + 1))

    # Of X's frames both near readers have one; of Alice's neither has, and the far reader has both.
    assert codes == [DeliveryCode.QUEUE_FULL] * 2
    assert [each.waiting_bytes for each in (*near, far)] == [250, 250, 500]
    assert early == []
    assert bench.outbox.doomed == [(near[0], Refusal.NOT_READING)]


def test_a_network_that_has_room_again_loses_no_reader():
    """Once nothing of it waits, who falls behind later is not cut for a shortage that is over."""
    bench = Bench(buffered_bytes=1_800, buffered_network_part=2)
    one, two = (bench.client(number, key_of(number), f"192.0.2.{number}") for number in (3, 4))
    bench.deliver(sized(400), recipient=one)
    bench.outbox.on_congested(one, START)
    bench.deliver(sized(400), recipient=one)
    bench.deliver(sized(152), recipient=two)
    bench.outbox.on_congested(two, START)
    bench.deliver(sized(152), recipient=two)
    for each in (one, two):
        bench.outbox.on_drained(each)
        bench.delivery.release(each, START)
    bench.outbox.take()
    bench.deliver(sized(152), recipient=two)
    bench.outbox.on_congested(two, START)
    bench.delivery.wake(later(20_000))

    assert bench.outbox.doomed == []


def test_a_reader_that_catches_up_is_not_behind():
    """Its bytes begin to wait anew."""
    bench = Bench(buffered_bytes=900)
    bench.deliver(sized(300))
    bench.outbox.on_congested(bench.bob, START)
    bench.outbox.on_drained(bench.bob)
    bench.outbox.on_congested(bench.bob, later(9_000))
    bench.deliver(sized(600))
    bench.deliver(sized(800, X))
    bench.delivery.wake(later(18_999))

    assert bench.outbox.doomed == []


def test_a_burst_beyond_one_turn_waits_for_the_next():
    """A reader that is not known to be slow gets it turn by turn, without a drain."""
    bench = Bench()
    for number in range(4):
        bench.deliver(sized(400 + number, key_of(number)))
    turns = [len(bench.arrived()[0])]
    while bench.delivery.deadline() == 0:
        bench.delivery.wake(START)
        turns.append(len(bench.arrived()[0]))

    assert turns == [2, 2]
    assert bench.outbox.waiting_bytes == 0


def test_a_turn_that_is_full_takes_no_more():
    """Waking within one turn hands nothing over; the next turn does."""
    bench = Bench()
    for number in range(4):
        bench.deliver(sized(400 + number, key_of(number)))
    bench.delivery.wake(START)
    first = bench.arrived()[0]
    bench.delivery.wake(START)

    assert [len(frame) for frame in first] == [400, 401]
    assert [len(frame) for frame in bench.arrived()[0]] == [402, 403]


def test_what_waits_for_who_has_gone_is_refused():
    """Each frame has its outcome, and the bytes are given back."""
    bench = Bench()
    bench.outbox.on_congested(bench.bob, START)
    bench.deliver()
    bench.deliver()
    bench.outbox.on_drained(bench.bob)
    bench.delivery.abandon(bench.bob, START)

    assert bench.arrived() == ([], [DeliveryCode.QUEUE_FULL] * 2)
    assert (bench.outbox.waiting_bytes, bench.bob.waiting_bytes) == (0, 0)
    assert bench.delivery.deadline() == later(1_000)


def test_who_takes_nothing_for_a_minute_is_doomed():
    """From the last progress on; whoever made progress later is not."""
    bench = Bench()
    bench.outbox.on_congested(bench.bob, START)
    bench.outbox.on_congested(bench.alice, later(1))

    assert bench.delivery.deadline() == later(60_000)
    bench.delivery.wake(Instant(later(60_000) - 1))
    assert bench.outbox.doomed == []
    bench.delivery.wake(later(60_000))
    assert bench.outbox.doomed == [(bench.bob, Refusal.NOT_READING)]


def test_deliveries_are_told_once_a_second_and_recipient():
    """One fact with the number of frames and their bytes."""
    bench = Bench()
    for _ in range(3):
        bench.deliver()
    bench.arrived()

    assert bench.delivery.deadline() == later(1_000)
    assert bench.tallied(Instant(later(1_000) - 1)) == []
    assert bench.tallied(later(1_000)) == [DeliveryFinished("merk", 1, BOB.public, Outcome.OK, None, 3 * len(FRAME), 3)]
    assert bench.tallied(later(9_000)) == []
    assert bench.delivery.deadline() is None


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (DeliveryCode.UNKNOWN_TARGET, Outcome.OFFLINE),
        (DeliveryCode.LOOKUP_TIMEOUT, Outcome.TIMEOUT),
        (DeliveryCode.QUEUE_FULL, Outcome.REFUSED),
        (DeliveryCode.TOO_LARGE, Outcome.REFUSED),
        (DeliveryCode.RATE, Outcome.REFUSED),
    ],
)
def test_failures_are_told_by_recipient_and_outcome(code, outcome):
    """Two of a kind are one fact."""
    bench = Bench()
    bench.delivery.refuse(bench.alice, code, BOB.public, FRAME, START)
    bench.delivery.finish(Sending(None, BOB.public, FRAME, b""), code, START)

    assert [fact[2:] for fact in bench.tallied(later(1_000))] == [(BOB.public, outcome, None, 2 * len(FRAME), 2)]


def test_a_delivery_that_waited_is_no_failure():
    """Its outcome is told with the frames that left."""
    bench = Bench()
    bench.delivery.finish(Sending(bench.alice, BOB.public, FRAME, bytes(16)), DeliveryCode.DELIVERED, START)

    assert bench.arrived()[1] == [DeliveryCode.DELIVERED]
    assert bench.delivery.deadline() is None


def test_recipients_told_apart_are_bounded():
    """Beyond that failures are told as one of nobody's."""
    bench = Bench(tallied_recipients=2)
    for number in (1, 2, 3, 4, 1):
        target = number.to_bytes(32, "big")
        bench.delivery.count_failure(target, DeliveryCode.UNKNOWN_TARGET, 100, START)
    told = {fact.recipient[-1]: (fact.tries, fact.carried_bytes) for fact in bench.tallied(later(1_000))}

    assert told == {1: (2, 200), 2: (1, 100), 0: (2, 200)}


def test_who_leaves_is_told_at_once():
    """The counts of a recipient do not outlive its connection."""
    bench = Bench()
    bench.deliver()
    bench.outbox.take()
    bench.delivery.abandon(bench.bob, START)
    at_once = [fact for fact in bench.outbox.take() if isinstance(fact, DeliveryFinished)]

    assert [(fact.outcome, fact.tries) for fact in at_once] == [(Outcome.OK, 1)]
    assert bench.tallied(later(1_000)) == []


def test_attempts_are_numbered():
    """Every fact has a number of its own."""
    bench = Bench()
    for number in range(3):
        bench.delivery.count_failure(bytes([number]) * 32, DeliveryCode.RATE, 1, START)

    assert [fact.attempt for fact in bench.tallied(later(1_000))] == [1, 2, 3]
