"""Laws of server.connection_log: a line at each end, and no address where none may stand."""

import io
import json
import logging
import random

import pytest
import structlog

from waystation.core.facts import PeerIdentified, PeerLeft
from waystation.core.instant import Instant
from waystation.engine.connections import Connection, Traffic
from waystation.engine.recorder import Recorder
from waystation.server.connection_log import ConnectionLog
from waystation.server.logs import configure_logs

ALICE = b"a" * 32
ADDRESS = "203.0.113.7"


@pytest.fixture
def lines():
    """Return what was logged, one dict a line."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logs("json", "info", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def connection(protocol="merk", peer=1):
    """Return a connection that has just begun."""
    return Connection(protocol, peer, Traffic(), Instant(1_000_000), ADDRESS)


def live(mode, begun, identity=None):
    """Let a connection begin, prove an identity, carry three bytes and end after two seconds."""
    recorder = Recorder(None, random.Random(1))
    recorder.use_key(b"k" * 32)
    log = ConnectionLog(mode, recorder)
    recorder.connected(begun)
    if identity is not None:
        recorder.note(PeerIdentified(begun.protocol, begun.peer, identity), Instant(2_000_000))
    begun.traffic.bytes_in = 3
    recorder.note(PeerLeft(begun.protocol, begun.peer, identity, "idle_timeout"), Instant(3_000_000))
    return recorder, log


def test_nothing_is_logged_unless_asked(lines):
    """Off is the default: no line, and nothing is watched."""
    recorder, _ = live("off", connection())

    assert lines() == []
    assert recorder.connections.watcher is None


def test_both_ends_have_a_line(lines):
    """The second one has reason, duration and bytes; the number joins the two."""
    live("address", connection())
    opened, closed = lines()

    assert (opened["event"], closed["event"]) == ("connection.opened", "connection.closed")
    assert opened["peer"] == closed["peer"] == 1
    assert (closed["reason"], closed["lasted_s"], closed["bytes_in"], closed["bytes_out"]) == (
        "idle_timeout",
        2.0,
        3,
        0,
    )
    assert opened["address"] == closed["address"] == ADDRESS


def test_reference_stands_in_place_of_identity_and_address(lines):
    """Before the proof the network is shown, after it the journal's reference; neither key nor address is."""
    recorder, _ = live("reference", connection(), ALICE)
    opened, closed = lines()

    assert opened["network"] == "203.0.113.0/24"
    assert closed["reference"] == recorder.reference_of(ALICE).hex()
    assert ADDRESS not in str((opened, closed)) and ALICE.hex() not in str((opened, closed))


@pytest.mark.parametrize("mode", ["reference", "address"])
def test_anonymous_sender_has_neither_address_nor_network(lines, mode):
    """What Bhumi hides does not stand in the log either, whatever is configured (NODE-VIEW)."""
    live(mode, connection("bhumi"))

    assert [line["event"] for line in lines()] == ["connection.opened", "connection.closed"]
    assert "203.0.113" not in str(lines())


def test_dialled_connection_is_its_name(lines):
    """What this node dialled has the name that the relay has for it."""
    dialled = connection()
    dialled.dialled = "wss://other/merk"
    live("reference", dialled)

    assert [line["dialled"] for line in lines()] == ["wss://other/merk"] * 2


def test_mode_changes_while_connections_are_open(lines):
    """A reload switches the log on and off."""
    recorder = Recorder(None, random.Random(1))
    log = ConnectionLog("off", recorder)
    recorder.connected(connection())
    log.use("address")
    recorder.note(PeerLeft("merk", 1, None, "gone"), Instant(2_000_000))
    log.use("off")
    recorder.connected(connection(peer=2))

    assert [line["event"] for line in lines()] == ["connection.closed"]
