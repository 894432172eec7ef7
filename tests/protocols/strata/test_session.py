"""Laws of protocols.strata.session."""

import base64
import random

import pytest

from tests.protocols.strata.build import ALICE, NOW, RELAY, did, in_force, vector
from tests.protocols.strata.drive import Drive
from waystation.core.effects import Peer
from waystation.protocols.strata.limits import DEFAULT_LIMITS
from waystation.protocols.strata.messages import Auth, Filters, Subscribe
from waystation.protocols.strata.relay.limits import Rank, Scope
from waystation.protocols.strata.relay.subscription import Subscription
from waystation.protocols.strata.session import (
    PUBLISH,
    REPLICATE,
    SUBSCRIBE,
    TRANSITIONS,
    Move,
    Session,
    State,
    challenge_input,
)


def opened(address="192.0.2.1"):
    """Return a session with a challenge of 120 s."""
    session = Session(Peer(1), address, frozenset({PUBLISH}), in_force())
    session.new_challenge(random.Random(1), NOW, 120)
    return session


def answer(challenge):
    """Return an AUTH for a challenge; the session does not look at its signature."""
    return Auth(did(ALICE), challenge, bytes(64), None, None)


def test_a_session_begins_anonymous():
    """It counts under its address, or by itself when it has none."""
    session = opened()

    assert (session.state, session.capabilities, session.identity) == (State.ANONYMOUS, {PUBLISH}, None)
    assert session.scope == Scope("192.0.2.1", Rank.ANONYMOUS)
    assert opened("").scope == Scope("peer:1", Rank.ANONYMOUS)


def test_challenges():
    """32 random bytes in base64, never the same, for as long as was asked."""
    rng, session, seen = random.Random(1), opened(), set()
    for _ in range(50):
        session.new_challenge(rng, NOW, 60)
        seen.add(session.challenge)

    assert len(seen) == 50
    assert {len(base64.b64decode(each, validate=True)) for each in seen} == {32}
    assert session.challenge_expires_at == NOW + 60


@pytest.mark.parametrize(("seconds", "detail"), [(0, None), (120, None), (121, "challenge_expired")])
def test_challenges_expire(seconds, detail):
    """The last second still counts."""
    session = opened()
    refusal = session.check_challenge(answer(session.challenge), NOW + seconds)

    assert (refusal.detail if refusal is not None else None) == detail


@pytest.mark.parametrize("challenge", ["x", ""])
def test_unknown_challenges(challenge):
    """Only the outstanding challenge may be answered, and an empty one is never outstanding."""
    session = opened()
    session.challenge = session.challenge if challenge else ""

    assert session.check_challenge(answer(challenge), NOW).detail == "challenge_unknown"


@pytest.mark.parametrize(
    ("granted", "rank"), [({PUBLISH}, Rank.AUTHENTICATED), ({SUBSCRIBE, REPLICATE}, Rank.REPLICATING)]
)
def test_authenticated(granted, rank):
    """From then on the identity counts, with the capabilities and the allowance of its rank; it happens once."""
    session = opened()
    session.authenticate(did(ALICE), frozenset(granted))

    assert (session.state, session.capabilities) == (State.AUTHENTICATED, granted)
    assert session.scope == Scope(did(ALICE), rank)
    assert session.check_challenge(answer(session.challenge), NOW).detail == "already_authenticated"


@pytest.mark.parametrize(
    ("field", "limit", "resumes_at"),
    [
        ("pending", DEFAULT_LIMITS.pending_packets, DEFAULT_LIMITS.pending_packets // 2),
        ("pending_bytes", DEFAULT_LIMITS.pending_bytes, DEFAULT_LIMITS.pending_bytes // 2),
        ("unread_replies", DEFAULT_LIMITS.unread_replies, DEFAULT_LIMITS.unread_replies - 1),
    ],
)
def test_holding_back(field, limit, resumes_at):
    """Reading stops at the mark and goes on well below it."""
    session = opened()
    states = []
    for level in (limit - 1, limit, resumes_at + 1, resumes_at):
        setattr(session, field, level)
        states.append((session.must_hold(), session.may_resume()))

    assert [state[0] for state in states[:2]] == [False, True]
    assert [state[1] for state in states[2:]] == [False, True]


def test_lagging():
    """A session lags while some subscription is behind."""
    session = opened()
    message = Subscribe("s", Filters(), 0, None, None, want_eose=False, client_msg_id=None)
    assert not session.lagging()
    session.subscriptions["s"] = Subscription(message, None, bytes(8), 0, Drive().now)

    assert session.lagging()


def test_signed_bytes():
    """The texts of challenge and server stand one behind the other, as the vector has them (D15)."""
    entry = vector("auth-ok")
    challenge = entry["challenge_message"]

    signed = challenge_input(challenge["challenge"], challenge["server_id"])
    assert signed.hex() == entry["signature_input_hex"]
    assert signed.decode().endswith(did(RELAY))


def test_authenticates_once_and_closes_from_every_state():
    """The table has one way to AUTHENTICATED, every state closes, and nothing leaves CLOSED."""
    ways = [(state, after) for (state, move), after in TRANSITIONS.items() if move is Move.AUTHENTICATE]
    closes = {state: after for (state, move), after in TRANSITIONS.items() if move is Move.CLOSE}

    assert ways == [(State.ANONYMOUS, State.AUTHENTICATED)]
    assert closes == dict.fromkeys(State, State.CLOSED)


@pytest.mark.parametrize("state", [State.AUTHENTICATED, State.CLOSED])
def test_move_that_the_table_lacks_is_a_bug(state):
    """A connection that is authenticated or closed does not authenticate."""
    session = opened()
    session.state = state

    with pytest.raises(KeyError):
        session.move(Move.AUTHENTICATE)
