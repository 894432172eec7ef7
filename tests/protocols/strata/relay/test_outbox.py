"""Laws of protocols.strata.outbox."""

from tests.protocols.strata.build import in_force
from waystation.core.effects import Close, Hold, Peer, Send
from waystation.core.instant import Instant
from waystation.protocols.strata.limits import DEFAULT_LIMITS
from waystation.protocols.strata.refusals import End
from waystation.protocols.strata.relay.outbox import RECEIPT_BYTES, Outbox
from waystation.protocols.strata.session import Session, State


def session(number=1):
    """Return a session."""
    return Session(Peer(number), "", frozenset(), in_force())


def test_effects_keep_their_order():
    """What was added first leaves first, and leaves once."""
    outbox, peer = Outbox(in_force()), session()
    outbox.send(peer, b"a")
    outbox.close(peer, End.MALFORMED)

    assert outbox.take() == [Send(1, b"a"), Close(1, End.MALFORMED, abort=False, status=1008)]
    assert outbox.take() == []
    assert peer.state is State.CLOSED


def test_receipts_are_asked_for_now_and_then():
    """One per credit of bytes, and no second one while the first is out."""
    outbox, peer = Outbox(in_force()), session()
    for _ in range(4):
        outbox.send(peer, bytes(RECEIPT_BYTES // 2))
    first = [effect.receipt for effect in outbox.take()]
    outbox.on_drained(peer)
    outbox.send(peer, bytes(RECEIPT_BYTES))

    assert first == [False, True, False, False]
    assert [effect.receipt for effect in outbox.take()] == [True]


def test_a_page_has_one_receipt_on_its_end():
    """The next page waits for it."""
    outbox, peer = Outbox(in_force()), session()
    assert outbox.takes_page(peer)
    outbox.send_page(peer, [b"1", b"2", b"3"])

    assert [(effect.data, effect.receipt) for effect in outbox.take()] == [(b"1", False), (b"2", False), (b"3", True)]
    assert not outbox.takes_page(peer)
    outbox.on_drained(peer)
    assert outbox.takes_page(peer)


def test_live_packets_run_ahead_by_a_bounded_number_of_bytes():
    """Behind that, or once bytes wait, a reader is slow until everything has left."""
    outbox, peer, slow = Outbox(in_force()), session(1), session(2)
    outbox.send(peer, bytes(DEFAULT_LIMITS.ahead_bytes - 1))
    assert outbox.takes_live(peer)
    outbox.send(peer, b"1")
    outbox.on_congested(slow, Instant(5))

    assert not outbox.takes_live(peer)
    assert not outbox.takes_live(slow)
    assert not outbox.takes_page(slow)
    outbox.on_drained(peer)
    outbox.on_drained(slow)
    assert outbox.takes_live(peer) and outbox.takes_live(slow)


def test_the_longest_silent_comes_first():
    """Progress moves a connection to the end, and draining takes it out."""
    outbox, one, two, three = Outbox(in_force()), session(1), session(2), session(3)
    for at, each in enumerate((one, two, three, one)):
        outbox.on_congested(each, Instant(at))
    outbox.on_drained(three)

    assert [(each.peer, each.progress_at) for each in outbox.congested] == [(2, 1), (1, 3)]


def test_who_does_not_read_answers_is_not_read():
    """Replies are never dropped: reading stops once and goes on once."""
    outbox, peer = Outbox(in_force()), session()
    outbox.on_congested(peer, Instant(0))
    for _ in range(DEFAULT_LIMITS.unread_replies + 5):
        outbox.reply(peer, b"r")
    held = outbox.take()
    outbox.on_drained(peer)

    assert [effect for effect in held if isinstance(effect, Hold)] == [Hold(1, held=True)]
    assert sum(isinstance(effect, Send) for effect in held) == DEFAULT_LIMITS.unread_replies + 5
    assert outbox.take() == [Hold(1, held=False)]


def test_answers_that_are_read_hold_nobody():
    """Only replies that wait count."""
    outbox, peer = Outbox(in_force()), session()
    for _ in range(2 * DEFAULT_LIMITS.unread_replies):
        outbox.reply(peer, b"r")

    assert not any(isinstance(effect, Hold) for effect in outbox.take())


def test_a_closed_connection_is_watched_no_longer():
    """It cannot become silent any more."""
    outbox, peer = Outbox(in_force()), session()
    outbox.on_congested(peer, Instant(0))
    outbox.close(peer, End.NOT_READING)

    assert not outbox.congested
    assert outbox.take() == [Close(1, End.NOT_READING, status=1013)]
