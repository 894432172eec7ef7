"""Bad input on real sockets: the connection closes, it is counted and journalled, and nobody else notices."""

import itertools
import socket
import struct
from pathlib import Path

import pytest

from tests.server.build import PREIMAGE, NodeProcess, exchange, i_am, key_pair, until
from waystation.protocols.bhumi import messages, wire

DEVICE = key_pair(1)
STRANGER = key_pair(2)
FRESH = itertools.count(1_000)
SEND = wire.encode(messages.Send(DEVICE.public, PREIMAGE, b"abc"))


def frame(frame_type, payload, length=None):
    """Return a frame whose header may lie about its length."""
    return struct.pack(">HI", frame_type, len(payload) if length is None else length) + payload


def longer(encoded):
    """Return a frame with one byte behind its structure, its header telling the truth."""
    return frame(struct.unpack_from(">H", encoded)[0], encoded[6:] + b"!")


MALFORMED = {
    "truncated": lambda nonce: frame(messages.FrameType.SEND, b"short"),
    "trailing_bytes": lambda nonce: longer(wire.encode(i_am(STRANGER, nonce))),
    "inner_length": lambda nonce: longer(SEND),
    "oversize": lambda nonce: frame(messages.FrameType.SEND, b"", length=0x7FFF_FFFF),
    "wrong_direction": lambda nonce: wire.encode(messages.SendResult(0, b"forged")),
    "unknown_type": lambda nonce: frame(0x3F, b""),
    "too_many_commits": lambda nonce: frame(
        messages.FrameType.UPDATE_COMMITS, struct.pack(">H", 4_097) + bytes(4_096 * 32)
    ),
    "bad_signature": lambda nonce: wire.encode(i_am(DEVICE, nonce, signed_by=STRANGER)),
    "ack_strikes": lambda nonce: 16 * wire.encode(messages.Ack(7, b"forged")),
}
"""Reason by what provokes it; each is said by a connection of its own."""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module; it must still be in good order at the end."""
    running = NodeProcess(tmp_path_factory.mktemp("abuse") / "home").start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def neighbours(node):
    """A device, a sender, and two preimages that were never used."""
    preimages = [next(FRESH).to_bytes(32, "big") for _ in range(2)]
    with node.client() as device, node.client() as sender:
        device.identify(DEVICE, *preimages)
        yield device, sender, preimages


def say_and_wait_for_the_end(node, reason, listener="bhumi_plain"):
    """Say what provokes ``reason`` and return what comes back until the node closes."""
    with node.client(listener) as rogue:
        rogue.say(MALFORMED[reason](rogue.hello.relay_nonce))
        return rogue.rest()


@pytest.mark.parametrize("reason", MALFORMED)
def test_offender_is_closed_and_neighbours_go_on(node, neighbours, reason):
    """The connection ends without a frame and is counted once; an exchange begun before and one after it succeed."""
    device, sender, (one, two) = neighbours
    before = node.counted(reason)
    sender.say(messages.Send(DEVICE.public, one, b"in flight"))
    delivered = device.deliver()
    said = say_and_wait_for_the_end(node, reason)
    device.say(messages.Ack(delivered.message_id, b"unmoved"))
    first = sender.result()
    second = exchange(device, sender, DEVICE, two)

    assert said == b""
    assert node.counted(reason) == before + 1
    assert (first.payload, second.payload) == (b"unmoved", b"re: ping")


def test_offender_inside_tls_is_closed_too(node):
    """The same holds behind a handshake."""
    before = node.counted("oversize")

    assert say_and_wait_for_the_end(node, "oversize", "bhumi") == b""
    assert node.counted("oversize") == before + 1


def test_end_inside_a_frame_is_counted(node):
    """Who leaves in the middle of a frame is counted as malformed."""
    before = node.counted("end_inside_frame")
    with node.client() as rogue:
        rogue.say(SEND[:-1])

    assert until(lambda: node.counted("end_inside_frame") == before + 1)


def test_frames_in_single_bytes_are_understood(node, neighbours):
    """A sender whose bytes come one by one, while the device is busy with others, gets its answer (case 21)."""
    device, sender, (one, two) = neighbours
    with node.client() as slow:
        slow.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        encoded = wire.encode(messages.Send(DEVICE.public, one, b"dripping"))
        for index in range(len(encoded) - 1):
            slow.socket.sendall(encoded[index : index + 1])
        between = exchange(device, sender, DEVICE, two)
        slow.socket.sendall(encoded[-1:])
        delivered = device.deliver()
        device.say(messages.Ack(delivered.message_id, b"whole"))
        answer = slow.result()

    assert (between.payload, delivered.payload, answer.payload) == (b"re: ping", b"dripping", b"whole")


def test_declared_length_allocates_nothing(node):
    """Headers that announce 64 KiB each and bring nothing cost the node no such memory."""
    before = resident_bytes(node)
    rogues = [node.client() for _ in range(40)]
    for rogue in rogues:
        rogue.say(frame(messages.FrameType.SEND, b"", length=65_604))
    with node.client() as probe:
        probe.identify(STRANGER)
    after = resident_bytes(node)
    for rogue in rogues:
        rogue.close()

    assert after - before < 40 * 65_604 // 2


def resident_bytes(node):
    """Return how much memory the node's process holds."""
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1_024


def test_second_connection_of_an_identity_replaces_the_first(node):
    """The newest connection of an identity is the one that counts; the old one is closed (case 7)."""
    with node.client() as old, node.client() as new, node.client() as sender:
        preimage = next(FRESH).to_bytes(32, "big")
        old.identify(STRANGER, preimage)
        new.identify(STRANGER, preimage)
        rest = old.rest()

        assert rest == b""
        assert exchange(new, sender, STRANGER, preimage).payload == b"re: ping"


def test_failed_take_over_moves_nobody(node):
    """I_AM with a bad signature closes the impostor, and the real device keeps its deliveries (case 8)."""
    with node.client() as real, node.client() as impostor, node.client() as sender:
        preimage = next(FRESH).to_bytes(32, "big")
        real.identify(DEVICE, preimage)
        impostor.say(i_am(DEVICE, impostor.hello.relay_nonce, signed_by=STRANGER))
        said = impostor.rest()

        assert said == b""
        assert exchange(real, sender, DEVICE, preimage).payload == b"re: ping"


def test_journal_holds_every_reason(tmp_path):
    """After the node has ended its journal has one row per offence with the reason, and no identity for strangers."""
    node = NodeProcess(tmp_path / "home").start()
    for reason in MALFORMED:
        say_and_wait_for_the_end(node, reason)
    code = node.stop()
    rows = [line for line in node.journal() if line["kind"] == "refused" and line["protocol"] == "bhumi"]

    assert code == 0
    assert {row["reason"]: int(row["attrs"]["n"]) for row in rows} == {
        **dict.fromkeys(MALFORMED, 1),
        "unsolicited_ack": 16,
    }
    assert not [row for row in rows if row.get("peer_ref")]
    assert PREIMAGE.hex() not in str(node.journal())
