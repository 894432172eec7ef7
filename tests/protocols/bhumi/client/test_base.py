"""Laws of protocols.bhumi.client_base: every state, every message, any chunking, whatever the role."""

import itertools
import random

import pytest

from tests.protocols.bhumi.clients import (
    CONVERSATION,
    DELIVER_FULL,
    DELIVER_PLAIN,
    HELLO,
    KEEPALIVE,
    KEY_PAIR,
    OPTIONS_YES,
    P0,
    RELAY,
    START,
    VECTORS,
    connected,
    device,
    open_device,
    open_sender,
)
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import after_ms
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.client.base import HELLO_TIMEOUT_MS
from waystation.protocols.bhumi.client.sender import SenderClient
from waystation.protocols.bhumi.refusals import Refusal

FRAMES = {
    "HELLO": HELLO,
    "I_AM": VECTORS["I_AM 0 0"],
    "SEND": VECTORS["SEND"],
    "DELIVER": DELIVER_PLAIN,
    "ACK": VECTORS["ACK"],
    "KEEPALIVE": KEEPALIVE,
    "SEND_RESULT": VECTORS["SEND_RESULT ok"],
    "UPDATE_COMMITS": VECTORS["UPDATE_COMMITS"],
    "OPTIONS": OPTIONS_YES,
    "extension": bytes.fromhex("005f00000001ff"),
    "unknown": bytes.fromhex("003f00000000"),
}


LEGAL = {
    "device waiting": {"HELLO", "extension"},
    "sender waiting": {"HELLO", "extension"},
    "device open": {"DELIVER", "KEEPALIVE", "OPTIONS", "extension"},
    "sender open": {"SEND_RESULT", "KEEPALIVE", "OPTIONS", "extension"},
    "closed": set(FRAMES),
}


@pytest.mark.parametrize("version", [0, 2, 255])
def test_other_version_closes(version):
    """A relay of another protocol version is left at once, with nothing sent."""
    machine = device()

    machine.receive(RELAY, wire.encode(messages.Hello(1, 100, version)), START)

    assert machine.take() == [Close(RELAY, Refusal.BAD_VERSION)]


@pytest.mark.parametrize("make", [device, lambda: connected(SenderClient())])
def test_no_hello_is_death(make):
    """Without HELLO the connection is given up after ten seconds."""
    machine = make()

    assert machine.deadline() == after_ms(START, HELLO_TIMEOUT_MS)
    machine.wake(after_ms(START, HELLO_TIMEOUT_MS))

    assert machine.take() == [Close(RELAY, Refusal.FRAME_TIMEOUT)]


def in_state(name):
    """Return a machine in a state of the table above."""
    if name == "closed":
        machine = open_device()
        machine.disconnect(RELAY, START)
        return machine
    machine = {
        "device waiting": device,
        "sender waiting": lambda: connected(SenderClient()),
        "device open": open_device,
        "sender open": open_sender,
    }[name]()
    if name == "sender open":
        machine.send(KEY_PAIR.public, P0, b"", START)
        machine.take()
    return machine


@pytest.mark.parametrize(("state", "frame"), list(itertools.product(LEGAL, FRAMES)))
def test_every_state_and_message(state, frame):
    """A message that is not legal in a state closes with a refusal; a legal one does not; a closed one is deaf."""
    machine = in_state(state)

    machine.receive(RELAY, FRAMES[frame], START)

    closes = [effect for effect in machine.take() if isinstance(effect, Close)]
    assert bool(closes) == (frame not in LEGAL[state])
    assert all(isinstance(close.reason, Refusal) for close in closes)
    if state == "closed":
        assert machine.take_events() == []


@pytest.mark.parametrize("seed", range(20))
def test_any_chunking_tells_the_same(seed):
    """However the bytes are cut, effects and events are the same."""
    whole, pieces = device(), device()
    rng = random.Random(seed)
    whole.receive(RELAY, CONVERSATION, START)
    at = 0
    while at < len(CONVERSATION):
        size = rng.choice([1, 1, 2, 7, 30])
        pieces.receive(RELAY, CONVERSATION[at : at + size], START)
        at += size

    assert pieces.take() == whole.take()
    assert pieces.take_events() == whole.take_events()


def test_a_frame_cut_short_says_nothing():
    """At every length short of its end, DELIVER tells nothing and does not close."""
    for length in range(len(DELIVER_FULL)):
        machine = open_device(always_preimage=True)

        machine.receive(RELAY, DELIVER_FULL[:length], START)

        assert (machine.take(), machine.take_events()) == ([], [])


@pytest.mark.parametrize("delta", [-1, 1, 1_000_000])
def test_inner_length_lies_close(delta):
    """An inner length that disagrees with its frame closes."""
    machine = open_device()
    lie = DELIVER_PLAIN[:10] + (7 + delta).to_bytes(4, "big") + DELIVER_PLAIN[14:]

    machine.receive(RELAY, lie, START)

    assert machine.take() == [Close(RELAY, Refusal.INNER_LENGTH)]


@pytest.mark.parametrize("make", [device, lambda: connected(SenderClient())])
def test_garbage_never_raises(make):
    """Random and bit-flipped bytes end in nothing or in a close with a refusal, and never in an exception."""
    rng = random.Random(4)
    for _ in range(400):
        machine = make()
        data = bytearray(CONVERSATION)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        machine.receive(RELAY, bytes(data), START)
        machine.receive(RELAY, rng.randbytes(20), START)

        assert all(isinstance(e, Send) or isinstance(e.reason, Refusal) for e in machine.take())


def test_another_peer_is_ignored():
    """A machine knows one connection; what is said of another one changes nothing."""
    machine = device()

    machine.receive(Peer(8), HELLO, START)
    machine.disconnect(Peer(8), START)

    assert not machine.is_open
    assert machine.deadline() == after_ms(START, HELLO_TIMEOUT_MS)
    assert machine.take() == []


def test_congestion_changes_nothing():
    """What a client sends is bounded by its windows, so waiting bytes are no event for it."""
    machine = open_device()

    machine.congested(RELAY, START)
    machine.drained(RELAY, START)

    assert (machine.take(), machine.take_events()) == ([], [])
