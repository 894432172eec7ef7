"""Laws of protocols.merk.sessions: entering, reproaching and ending connections."""

import pytest

from tests.protocols.merk.net import START, in_force, key_of
from waystation.core.effects import Close, Peer, Send
from waystation.core.facts import PeerIdentified, PeerLeft, Refused
from waystation.core.instant import after_ms
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import DEFAULT_LIMITS
from waystation.protocols.merk.messages import Gone
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.relay.sessions import Sessions
from waystation.protocols.merk.session import Session, State

NODE, ALICE = key_of("node"), key_of("alice")
SILENT = (Refusal.SHUTDOWN, Refusal.REPLACED, Refusal.DOUBLE_LINK)
"""Ends that are nobody's fault and are not counted."""


def entered(*, strikes_count=True):
    """Return an outbox, its sessions, and one that has been entered."""
    outbox = Outbox(1_000, in_force())
    sessions = Sessions(outbox, NODE.public, in_force(), strikes_count=strikes_count)
    one = Session(Peer(1), State.CLIENT, START)
    sessions.enter(one, 5_000, START)
    return outbox, sessions, one


def identify(sessions, one):
    """Let a connection have proved a key."""
    one.identity = ALICE.public
    sessions.identify(one)


def test_who_enters_is_found_and_watched():
    """It is there by its number, with an alarm at its deadline."""
    _, sessions, one = entered()

    assert sessions.by_peer == {1: one}
    assert len(sessions) == 1
    assert one.deadline == sessions.alarms.next_at() == after_ms(START, 5_000)


def test_what_is_said_is_a_frame_of_the_node():
    """NODE_INFO in the node's name."""
    outbox, sessions, one = entered()
    sessions.say(one, Gone(ALICE.public))

    assert outbox.take() == [Send(1, wire.encode_info_frame(Gone(ALICE.public), NODE.public))]


def test_a_proved_key_is_told_once():
    """The journal learns who it is when it is proved."""
    outbox, sessions, one = entered()
    identify(sessions, one)

    assert outbox.take() == [PeerIdentified("merk", 1, ALICE.public)]


def test_a_key_that_was_only_claimed_is_told_to_nobody():
    """What an original relay says about itself reaches no fact."""
    outbox, sessions, one = entered()
    one.identity = ALICE.public
    sessions.note(one, Refusal.RATE)
    sessions.close(one, Refusal.AUTH_TIMEOUT, START)

    told = [fact.identity for fact in outbox.take() if isinstance(fact, Refused | PeerLeft)]
    assert told == [None, None, None]


def test_sixteen_strikes_end_a_connection():
    """The fifteenth is only counted."""
    outbox, sessions, one = entered()
    identify(sessions, one)
    outbox.take()
    for _ in range(DEFAULT_LIMITS.strikes - 1):
        sessions.strike(one, Refusal.FORGED_SENDER, START)
    before = outbox.take()
    sessions.strike(one, Refusal.FORGED_SENDER, START)

    assert DEFAULT_LIMITS.strikes == 16
    assert before == [Refused("merk", ALICE.public, "forged_sender")] * 15
    assert Close(1, Refusal.STRIKES, status=1008) in outbox.take()
    assert len(sessions) == 0


def test_without_rate_limits_strikes_are_only_counted():
    """A load test may break rules for ever."""
    outbox, sessions, one = entered(strikes_count=False)
    for _ in range(100):
        sessions.strike(one, Refusal.FORGED_SENDER, START)

    assert one.state is State.CLIENT
    assert len(outbox.take()) == 100


def test_strikes_after_the_end_close_nothing():
    """A frame that is half handled when its connection ends may still be reproached."""
    outbox, sessions, one = entered()
    sessions.close(one, Refusal.TOO_BIG, START)
    outbox.take()
    for _ in range(20):
        sessions.strike(one, Refusal.FORGED_SENDER, START)

    assert not [effect for effect in outbox.take() if isinstance(effect, Close)]


@pytest.mark.parametrize("refusal", Refusal)
def test_every_end_closes_with_its_status_and_is_told_once(refusal):
    """One Close with the status of the refusal, one PeerLeft; counted unless it is nobody's fault."""
    outbox, sessions, one = entered()
    sessions.close(one, refusal, START)
    sessions.close(one, refusal, START)
    effects = outbox.take()

    counted = [] if refusal in SILENT else [Refused("merk", None, refusal.value)]
    close = Close(1, refusal, status=refusal.status)
    assert effects == [*counted, close, PeerLeft("merk", 1, None, refusal.value)]
    assert len(sessions) == len(sessions.alarms) == 0


def test_everybody_who_wants_to_know_is_told_of_an_end():
    """Whoever ended it, with the state that it was in; by then nothing can be sent to it any more."""
    _, sessions, one = entered()
    told = []
    sessions.on_end.append(lambda *arguments: told.append(arguments))
    sessions.forget(one, "disconnected", START)

    assert told == [(one, State.CLIENT, START)]
    assert one.state is State.CLOSED
    assert len(sessions) == 0


def test_an_end_takes_a_slow_reader_off_the_list():
    """Nothing counts as stuck behind a connection that is over."""
    outbox, sessions, one = entered()
    outbox.takes(one, 10)
    outbox.on_congested(one, START)
    sessions.forget(one, "disconnected", START)

    assert (outbox.stuck_bytes, list(outbox.congested)) == (0, [])
