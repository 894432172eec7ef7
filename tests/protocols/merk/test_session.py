"""Laws of protocols.merk.session: the machine of one connection, and what a relay does in each of its states."""

import itertools

import pytest

from tests.protocols.merk.net import START, Net, assert_closed, data_to, key_of
from waystation.core.effects import Peer
from waystation.core.facts import Refused
from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk import session, wire
from waystation.protocols.merk.limits import DEFAULT_LIMITS
from waystation.protocols.merk.messages import (
    AddServer,
    Auth,
    ClientAbsent,
    ClientFound,
    Delivery,
    Forward,
    Gone,
    Hello,
    KeyQuery,
    KeyUnknown,
    MessageType,
    QueryClient,
    RequestServers,
    Role,
    Servers,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import authentication
from waystation.protocols.merk.session import (
    NODES,
    ORIGINALS,
    TRANSITIONS,
    Contact,
    Move,
    Sending,
    Session,
    State,
)
from waystation.protocols.merk.wire import make_advert

ALICE, BOB, X = key_of("alice"), key_of("bob"), key_of("x")
SECOND = 1_000_000
LEGAL = {
    (State.CHALLENGED, Move.ANSWER): State.CLIENT,
    (State.CLIENT, Move.PROOF): State.PEER,
    (State.DIALLED, Move.CHALLENGE): State.ANSWERED,
    (State.ANSWERED, Move.CONFIRM): State.AWAITING_HELLO,
    (State.AWAITING_HELLO, Move.PROOF): State.PEER,
    (State.AWAITING_HELLO, Move.SILENCE): State.UPSTREAM,
    (State.UPSTREAM, Move.PROOF): State.PEER,
    (State.AWAITING_CHALLENGE, Move.CHALLENGE): State.CHALLENGE_ANSWERED,
    (State.CHALLENGE_ANSWERED, Move.CONFIRM): State.DOWNSTREAM,
}
OPEN = [state for state in State if state is not State.CLOSED]
UNKNOWN_KINDS = (0, 6, 255)


def lone(state=State.CHALLENGED):
    """Return a session of its own."""
    return Session(Peer(1), state, START)


@pytest.mark.parametrize(("state", "move"), list(itertools.product(State, Move)))
def test_every_pair_moves_as_the_table_says_or_not_at_all(state, move):
    """Nine moves are legal; any other is a bug of ours and raises."""
    one = lone(state)
    one.deadline = START
    if (state, move) in LEGAL:
        one.move(move)

        assert one.state is LEGAL[state, move] is TRANSITIONS[state, move]
        assert one.deadline is None
    else:
        with pytest.raises(KeyError):
            one.move(move)


def test_sets_of_states_are_what_their_names_say():
    """A node is a peer or an original relay on either side."""
    assert {State.UPSTREAM, State.DOWNSTREAM} == ORIGINALS
    assert {State.UPSTREAM, State.DOWNSTREAM, State.PEER} == NODES


def test_a_session_without_allowances_affords_everything():
    """Before they are given, and without rate limits, nothing is counted."""
    one = lone()

    assert all(one.affords(2**40, START) for _ in range(5_000))
    assert one.affords_run(10**6, 2**40, START)


@pytest.mark.parametrize(
    ("state", "factor"), [(State.CLIENT, 1), (State.PEER, 40), (State.UPSTREAM, 4), (State.DOWNSTREAM, 4)]
)
def test_frames_are_counted(state, factor):
    """A thousand at once and 500 a second for a client; a node speaks for many, an unproved one for fewer."""
    one = lone(state)
    one.give_allowances(DEFAULT_LIMITS, START)
    burst = sum(one.affords(1, START) for _ in range(41_000))
    later = sum(one.affords(1, Instant(START + SECOND)) for _ in range(41_000))

    assert (burst, later) == (1_000 * factor, 500 * factor)


def test_large_frames_are_weighed_and_small_ones_are_not():
    """64 MiB at once and 16 MiB a second; up to 4 KiB only the count counts."""
    one = lone(State.CLIENT)
    one.give_allowances(DEFAULT_LIMITS, START)

    assert sum(one.affords(8 << 20, START) for _ in range(20)) == 8
    assert not one.affords(4_097, START)
    assert one.affords(4_096, START)
    assert sum(one.affords(8 << 20, Instant(START + SECOND)) for _ in range(20)) == 2


def test_a_run_is_afforded_whole_or_not_at_all():
    """What is refused costs nothing."""
    one = lone(State.CLIENT)
    one.give_allowances(DEFAULT_LIMITS, START)

    assert not one.affords_run(1_001, 64 << 20, START)
    assert not one.affords_run(1, (64 << 20) + 1, START)
    assert one.affords_run(1_000, 64 << 20, START)
    assert not one.affords_run(1, 0, START)
    assert one.affords_run(500, 16 << 20, Instant(START + SECOND))


def test_trace_shows_state_and_key():
    """A failing test names the connection in words."""
    one = lone(State.CLIENT)
    one.identity = b"\xab" * 32

    assert repr(one) == "<Session 1 client abababab>"
    assert repr(lone()) == "<Session 1 challenged >"


def test_what_is_on_its_way_starts_fresh():
    """Nobody has denied a frame that has not been anywhere."""
    sending = Sending(None, b"t", b"f", b"")

    assert (sending.session, sending.target, sending.frame, sending.denials) == (None, b"t", b"f", 0)
    assert Contact("ws://a", None) == ("ws://a", None)


# What a relay does with every kind of frame in every state


def reach(net, state):
    """Return a line whose session is in this state, and what comes next forgotten."""
    if state is State.CHALLENGED:
        return net.connect(net.node(), X)
    if state is State.CLIENT:
        return net.client(net.node(), X)
    if state is State.PEER:
        return net.peer(net.node(), X)
    if state in (State.AWAITING_CHALLENGE, State.CHALLENGE_ANSWERED):
        line = net.connect(net.node(), X, door="mesh")
        return line if state is State.AWAITING_CHALLENGE else line.send(authentication.challenge_frame(b"\xff" * 32))
    if state is State.DOWNSTREAM:
        return net.original(net.node(), X)
    net.node(peers=["ws://test"])
    (line,) = net.dialled()
    line.key = X
    if state is not State.DIALLED:
        line.send(authentication.challenge_frame(b"\xff" * 32))
    if state in (State.AWAITING_HELLO, State.UPSTREAM):
        line.send(authentication.confirm_frame(X.public))
    if state is State.UPSTREAM:
        net.pass_ms(2_000)
    return line


@pytest.mark.parametrize("state", OPEN)
def test_every_state_can_be_reached(state):
    """The other tests of this file speak in the state that they name."""
    net = Net()
    line = reach(net, state)

    assert line.session.state is state


def frames(line):
    """Return one frame of every kind, with a name."""
    infos = [
        RequestServers(),
        Servers(()),
        AddServer("ws://8.8.8.8"),
        QueryClient(BOB.public),
        ClientFound(BOB.public, X.public),
        ClientAbsent(BOB.public),
        Hello(15, Role.CLIENT, X.public, b"n" * 32, ""),
        Auth(b"s" * 64),
        Delivery(0, BOB.public, b"h" * 16),
        Forward(1, b"i" * 16, X.public, data_to(BOB, ALICE)),
        make_advert(X, b"a" * 32, 1),
        KeyQuery(BOB.public),
        KeyUnknown(BOB.public),
        Gone(BOB.public),
    ]
    kinds = {type(info).__name__: wire.encode_info_frame(info, X.public) for info in infos}
    kinds |= {
        kind.name: wire.encode_frame(kind, BOB.public + b"x", sender=X.public)
        for kind in MessageType
        if kind not in (MessageType.NODE_INFO, MessageType.HANDSHAKE)
    }
    kinds |= {f"kind {kind}": wire.encode_frame(kind, BOB.public, sender=X.public) for kind in UNKNOWN_KINDS}
    kinds["HANDSHAKE"] = wire.encode_frame(1, b"\x02", sender=X.public)
    kinds["empty info"] = wire.encode_frame(3, b"", sender=X.public)
    kinds["unknown info"] = wire.encode_frame(3, b"\x07", sender=X.public)
    kinds["broken info"] = wire.encode_frame(3, b"\x05", sender=X.public)
    return kinds


NAMES = list(frames(None))
CARRIED = ("DATA", "SIGNED_DATA", "ENCRYPTED_DATA")
FOR_PEERS = ("Servers", "Delivery", "Forward", "Gone")
CLOSES = {
    (State.PEER, "HANDSHAKE"): Refusal.MISPLACED_HANDSHAKE,
    **{(State.CHALLENGED, name): Refusal.FRAME_BEFORE_AUTH for name in NAMES if name != "HANDSHAKE"},
    (State.CHALLENGED, "HANDSHAKE"): Refusal.BAD_ANSWER,
    **{
        (state, name): Refusal.HOSTILE_CHALLENGE
        for state in (State.DIALLED, State.AWAITING_CHALLENGE)
        for name in NAMES
    },
    **{(state, name): Refusal.BAD_ANSWER for state in (State.ANSWERED, State.CHALLENGE_ANSWERED) for name in NAMES},
    (State.CLIENT, "HANDSHAKE"): Refusal.MISPLACED_HANDSHAKE,
    (State.AWAITING_HELLO, "Auth"): Refusal.BAD_PEER_AUTH,
    (State.UPSTREAM, "Auth"): Refusal.BAD_PEER_AUTH,
    (State.AWAITING_HELLO, "broken info"): Refusal.MALFORMED_INFO,
}
"""What ends a connection."""
COUNTED = {
    **{(State.CLIENT, name): Refusal.INFO_NOT_ALLOWED for name in (*FOR_PEERS, "QueryClient", "Hello", "Auth")},
    **{(State.CLIENT, name): Refusal.UNASKED_ANSWER for name in ("ClientFound", "ClientAbsent", "KeyUnknown")},
    **{(State.PEER, name): Refusal.INFO_NOT_ALLOWED for name in ("Hello", "Auth")},
    **{
        (State.PEER, name): Refusal.UNASKED_ANSWER
        for name in ("ClientFound", "ClientAbsent", "KeyUnknown", "KeyAdvert")
    },
    **{(State.PEER, name): Refusal.UNKNOWN_TYPE for name in CARRIED},
    **{
        (state, name): Refusal.INFO_NOT_ALLOWED for state in ORIGINALS for name in (*FOR_PEERS, "KeyAdvert", "KeyQuery")
    },
    **{
        (state, name): Refusal.UNASKED_ANSWER
        for state in ORIGINALS
        for name in ("ClientFound", "ClientAbsent", "KeyUnknown")
    },
    **{(State.DOWNSTREAM, name): Refusal.INFO_NOT_ALLOWED for name in ("Hello", "Auth")},
    **{(state, "broken info"): Refusal.MALFORMED_INFO for state in (State.CLIENT, *NODES)},
    **{(state, f"kind {kind}"): Refusal.UNKNOWN_TYPE for state in (State.CLIENT, State.PEER) for kind in UNKNOWN_KINDS},
}
"""What is turned down and counted, and leaves the connection as it is."""


@pytest.mark.parametrize(("state", "name"), list(itertools.product(OPEN, NAMES)))
def test_every_frame_is_legal_or_has_one_documented_refusal(state, name):
    """Each pair of state and frame closes for one reason, or is counted under one, or is simply taken."""
    net = Net()
    line = reach(net, state)
    before = list(line.node.facts)
    line.send(frames(line)[name])
    refused = [fact.reason for fact in line.node.facts[len(before) :] if isinstance(fact, Refused)]

    if (state, name) in CLOSES:
        assert_closed(line, CLOSES[state, name])
        assert refused == [CLOSES[state, name].value]
        assert line.session is None
    else:
        expected = [COUNTED[state, name].value] if (state, name) in COUNTED else []
        assert refused == expected
        assert line.closed is None
        assert line.session.state is state


def test_no_reason_is_left_out():
    """The two tables name only pairs that are tried, and none twice."""
    tried = set(itertools.product(OPEN, NAMES))

    assert set(CLOSES) <= tried
    assert set(COUNTED) <= tried
    assert not set(CLOSES) & set(COUNTED)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_moves_a_closed_connection(name):
    """After its close a connection's frames are ignored without an effect."""
    net = Net()
    line = reach(net, State.CLIENT)
    line.send(b"")
    line.node.relay.receive(line.peer, frames(line)[name], net.now)

    assert line.closed is Refusal.SHORT
    assert line.node.relay.take() == []


def test_constants_are_those_of_the_specification():
    """Deadlines in milliseconds: 5 s for the handshake, 2 s at the door and for a authentication."""
    assert (session.AUTH_DEADLINE_MS, session.CHALLENGE_DEADLINE_MS, session.HELLO_ANSWER_MS) == (5_000, 2_000, 2_000)
    assert after_ms(START, session.PEER_PROOF_MS) == START + 5 * SECOND
