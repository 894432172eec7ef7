"""Laws of protocols.merk.outbox."""

import pytest

from tests.protocols.merk.net import START, in_force
from waystation.core.effects import Close, Hold, Peer, Send, SendMany
from waystation.core.instant import Instant
from waystation.protocols.merk.limits import DEFAULT_LIMITS
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.outbox import REPLIES_HELD_BYTES, Outbox
from waystation.protocols.merk.session import Session, State

AHEAD = 1_000


def session(number=1, address="", state=State.CLIENT):
    """Return a session of a client."""
    return Session(Peer(number), state, START, address=address)


def test_effects_keep_their_order():
    """What was added first leaves first, and leaves once."""
    outbox, one = Outbox(AHEAD, in_force()), session()
    outbox.send(one, b"a")
    outbox.send_many(one, [b"b", b"c"])
    outbox.reply(one, b"d")
    outbox.close(one, Refusal.TOO_BIG)

    expected = [Send(1, b"a"), SendMany(1, [b"b", b"c"]), Send(1, b"d"), Close(1, Refusal.TOO_BIG, status=1009)]
    assert outbox.take() == expected
    assert outbox.take() == []


def test_one_turn_takes_a_bounded_number_of_bytes():
    """Up to the limit exactly, and again in the next turn."""
    outbox, one, other = Outbox(AHEAD, in_force()), session(1), session(2)
    taken = [outbox.takes(one, 600), outbox.takes(one, 401), outbox.takes(one, 400), outbox.takes(other, AHEAD)]
    outbox.take()

    assert taken == [True, False, True, True]
    assert outbox.takes(one, 600)


def test_one_frame_always_fits_into_a_turn():
    """A frame larger than the limit is taken when it is the first."""
    outbox, one = Outbox(AHEAD, in_force()), session()

    assert outbox.takes(one, AHEAD + 1)
    assert not outbox.takes(one, 1)


def test_who_has_frames_waiting_takes_nothing_directly():
    """Neither while bytes wait behind us, nor while frames wait here: order is kept."""
    outbox, one, other = Outbox(AHEAD, in_force()), session(1), session(2)
    outbox.on_congested(one, START)
    other.waiting.append(None)

    assert not outbox.takes(one, 1)
    assert not outbox.takes(other, 1)
    outbox.on_drained(one)
    assert outbox.takes(one, 1)


def test_stuck_bytes_are_counted_once_and_given_back():
    """Congestion that goes on counts nothing twice; draining ends it."""
    outbox, one = Outbox(AHEAD, in_force()), session()
    outbox.takes(one, 300)
    outbox.on_congested(one, START)
    outbox.on_congested(one, Instant(START + 5))
    stuck = outbox.stuck_bytes
    outbox.on_drained(one)
    outbox.on_drained(one)

    assert (stuck, outbox.stuck_bytes, one.ahead_bytes) == (300, 0, 0)


def test_the_longest_silent_comes_first():
    """Progress moves a connection to the end, and draining takes it out."""
    outbox, one, two, three = Outbox(AHEAD, in_force()), session(1), session(2), session(3)
    for at, each in enumerate((one, two, three, one)):
        outbox.on_congested(each, Instant(at))
    outbox.on_drained(three)

    assert [(each.peer, each.progress_at) for each in outbox.congested] == [(2, 1), (1, 3)]


def test_who_does_not_read_answers_is_not_read():
    """From a quarter of a megabyte on, once, until it has read them."""
    outbox, one = Outbox(AHEAD, in_force()), session()
    outbox.on_congested(one, START)
    for size in (REPLIES_HELD_BYTES, 1, 1):
        outbox.reply(one, bytes(size))
    outbox.on_drained(one)
    outbox.on_drained(one)

    assert [effect for effect in outbox.take() if isinstance(effect, Hold)] == [Hold(1, held=True), Hold(1, held=False)]


def test_answers_nobody_reads_are_bounded():
    """So many of them wait; one more byte dooms the connection and is not sent."""
    outbox, one = Outbox(AHEAD, in_force()), session()
    outbox.reply(one, bytes(DEFAULT_LIMITS.replies_bytes))
    outbox.on_congested(one, START)
    outbox.take()
    outbox.reply(one, bytes(DEFAULT_LIMITS.replies_bytes))
    before = list(outbox.doomed)
    outbox.reply(one, b"1")

    assert before == []
    assert outbox.doomed == [(one, Refusal.NOT_READING)]
    assert sum(isinstance(effect, Send) for effect in outbox.take()) == 1


def test_reading_starts_the_count_of_answers_anew():
    """Who drains may ask again."""
    outbox, one = Outbox(AHEAD, in_force()), session()
    for _ in range(3):
        outbox.on_congested(one, START)
        outbox.reply(one, bytes(DEFAULT_LIMITS.replies_bytes))
        outbox.on_drained(one)

    assert outbox.doomed == []


def test_nothing_is_said_to_who_has_gone():
    """An answer to a closed connection is no effect."""
    outbox, one = Outbox(AHEAD, in_force()), session()
    one.state = State.CLOSED
    outbox.reply(one, b"1")

    assert outbox.take() == []


def test_many_answers_are_one_effect_while_somebody_reads():
    """And are counted one by one when nobody does."""
    outbox, one, gone = Outbox(AHEAD, in_force()), session(1), session(2)
    gone.state = State.CLOSED
    outbox.reply_many(one, [b"a", b"b"])
    outbox.reply_many(gone, [b"a", b"b"])
    together = outbox.take()
    outbox.on_congested(one, START)
    outbox.reply_many(one, [b"a", bytes(DEFAULT_LIMITS.replies_bytes)])

    assert together == [SendMany(1, [b"a", b"b"])]
    assert outbox.take() == [Send(1, b"a")]
    assert outbox.doomed == [(one, Refusal.NOT_READING)]


def test_asking_is_not_taking():
    """would_take says what takes would say, and counts nothing."""
    outbox, one = Outbox(AHEAD, in_force()), session()
    asked = [outbox.would_take(one, 600) for _ in range(3)]
    outbox.takes(one, 600)

    assert asked == [True] * 3
    assert not outbox.would_take(one, 401)
    assert outbox.would_take(one, 400)
    outbox.on_congested(one, START)
    assert not outbox.would_take(one, 1)


def test_large_frames_of_one_turn_are_bounded_over_all_connections():
    """Nobody is known to be slow yet; what is handed over counts all the same, and small frames pass."""
    outbox = Outbox(1_000_000, in_force(buffered_bytes=300_000))
    sessions = [session(number) for number in range(1, 5)]
    taken = [outbox.takes(each, 100_000) for each in sessions]
    would = outbox.would_take(sessions[3], 100_000)
    small = outbox.takes(sessions[3], 1_000)
    outbox.take()

    assert (taken, would, small) == ([True, True, True, False], False, True)
    assert outbox.takes(sessions[3], 100_000)


NEAR, FAR = "192.0.2.", "198.51.100."


def test_large_frames_of_one_turn_are_bounded_over_one_network():
    """Its readers share a part of what all may have; others, and who has no network, find the rest."""
    outbox = Outbox(1_000_000, in_force(buffered_bytes=800_000, buffered_network_part=4))
    near = [session(number, f"{NEAR}{number}") for number in range(1, 4)]
    taken = [outbox.takes(each, 100_000) for each in near]
    others = [outbox.takes(each, 100_000) for each in (session(5, f"{FAR}1"), session(6))]
    outbox.take()

    assert (taken, others) == ([True, True, False], [True, True])
    assert outbox.takes(near[2], 100_000)


def test_one_frame_of_any_size_fits_into_the_share_of_a_network():
    """A share that is smaller than a frame keeps no large frame from a network that has nothing waiting."""
    outbox = Outbox(1_000_000, in_force(buffered_bytes=800_000, buffered_network_part=64))

    assert outbox.takes(session(1, f"{NEAR}1"), 100_000)
    assert not outbox.takes(session(2, f"{NEAR}2"), 100_000)


@pytest.mark.parametrize(("is_unnamed", "is_bounded"), [(True, True), (False, False)])
def test_share_of_a_network_is_not_for_nodes_of_the_operators(is_unnamed, is_bounded):
    """A node that the operator has named reads for many clients; any other is a reader as clients are."""
    outbox = Outbox(1_000_000, in_force(buffered_bytes=800_000, buffered_network_part=4))
    outbox.takes(session(1, f"{NEAR}1"), 200_000)
    node = session(2, f"{NEAR}2", State.PEER)
    node.is_unnamed = is_unnamed

    assert outbox.takes(node, 100_000) is not is_bounded


def test_bytes_of_a_network_are_counted_once_and_given_back():
    """Those that wait here, those that can wait behind us, and those of this turn."""
    outbox, one, two = Outbox(AHEAD, in_force()), session(1, f"{NEAR}1"), session(2, f"{NEAR}2")
    network = one.network
    outbox.takes(one, 300)
    outbox.takes(two, 100_000)
    handed_over = outbox.unread_bytes_of(network)
    outbox.take()
    for at in range(2):
        outbox.on_congested(one, Instant(at))
    outbox.wait(two, 40)
    behind = outbox.unread_bytes_of(network), list(outbox.behind_of)
    outbox.on_drained(one)
    outbox.wait(two, -40)

    assert (handed_over, behind) == (100_000, (340, [network]))
    assert (outbox.unread_bytes_of(network), outbox.unread_bytes, outbox.behind_of) == (0, 0, {})


@pytest.mark.parametrize(
    ("refusal", "congested", "abort"),
    [(Refusal.NOT_READING, True, True), (Refusal.NOT_READING, False, False), (Refusal.REPLACED, True, False)],
)
def test_who_does_not_read_is_cut_at_once(refusal, congested, abort):
    """Nothing lingers for it; everybody else is closed behind what was sent."""
    outbox, one = Outbox(AHEAD, in_force()), session()
    if congested:
        outbox.on_congested(one, START)
    outbox.close(one, refusal)

    assert outbox.take() == [Close(1, refusal, abort=abort, status=refusal.status)]
