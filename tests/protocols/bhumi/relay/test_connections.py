"""Laws of protocols.bhumi.connections: how connections end, and who hears of it."""

import pytest

from tests.protocols.bhumi.build import ALICE, START, limits_of
from waystation.core.effects import Close, Peer, Send
from waystation.core.facts import PeerLeft, Refused
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.connections import Connections
from waystation.protocols.bhumi.session import Session, State
from waystation.protocols.bhumi.wire import relay_frame_limits


def connected(identity=None):
    """Return connections of which one stands, and that one."""
    connections = Connections(limits_of())
    session = Session(Peer(1), 7, relay_frame_limits(64), limits_of(), START)
    session.identity = identity
    connections.sessions[session.peer] = session
    if identity is not None:
        connections.bindings[identity] = session
    connections.arm(session)
    return connections, session


def test_close_counts_tells_and_closes_in_this_order():
    """Facts first, the close last; nothing of the connection is left."""
    connections, session = connected(ALICE.public)
    connections.close(session, Refusal.BAD_SIGNATURE, START)

    assert connections.outbox == [
        Refused("bhumi", ALICE.public, "bad_signature"),
        PeerLeft("bhumi", 1, ALICE.public, "bad_signature"),
        Close(Peer(1), Refusal.BAD_SIGNATURE),
    ]
    assert (connections.sessions, connections.bindings, len(connections.alarms)) == ({}, {}, 0)
    assert session.state is State.CLOSED


@pytest.mark.parametrize("refusal", [Refusal.SHUTDOWN, Refusal.DOUBLE_LINK, Refusal.OWN_KEY])
def test_ends_that_are_nobody_s_fault_are_not_counted(refusal):
    """They are no refusals."""
    connections, session = connected()
    connections.close(session, refusal, START)

    assert [type(effect) for effect in connections.outbox] == [PeerLeft, Close]


def test_peer_that_does_not_read_is_cut():
    """A close that waits for its bytes to leave would never come."""
    connections, session = connected()
    connections.close(session, Refusal.WRITE_TIMEOUT, START)

    assert connections.outbox[-1] == Close(Peer(1), Refusal.WRITE_TIMEOUT, abort=True)


def test_end_of_an_old_connection_leaves_the_new_binding():
    """Bindings are compared by connection, not by identity (BHUMI-A7)."""
    connections, session = connected(ALICE.public)
    newer = Session(Peer(2), 8, relay_frame_limits(64), limits_of(), START)
    connections.bindings[ALICE.public] = newer
    connections.forget(session, "disconnected", START)

    assert connections.bindings == {ALICE.public: newer}


def test_who_keeps_something_of_a_connection_hears_of_its_end():
    """After it has left the tables and before anybody outside is told."""
    connections, session = connected(ALICE.public)
    heard = []
    connections.on_end.append(lambda ended, now: heard.append((ended, now, len(connections.sessions))))
    connections.on_end.append(lambda _ended, _now: heard.append(list(connections.outbox)))
    connections.forget(session, "disconnected", START)

    assert heard == [(session, START, 0), []]


def test_replies_count_until_they_are_read():
    """So that a peer that reads none is not read for long."""
    connections, session = connected()
    connections.reply(session, b"frame")

    assert connections.outbox == [Send(Peer(1), b"frame")]
    assert session.unread_replies == 1
