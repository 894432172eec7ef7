"""What tests of Bhumi clients share: the vectors, and machines in each state."""

import json
from pathlib import Path

from waystation.core.effects import Peer, Send
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.client.device import (
    DeviceClient,
)
from waystation.protocols.bhumi.client.sender import SenderClient

VECTORS = {
    entry["name"]: bytes.fromhex(entry["hex"])
    for kind in ("deterministic", "spec_letter_only")
    for entry in json.loads(Path("tests/vectors/bhumi.json").read_text())[kind]
}


KEY_PAIR = KeyPair.from_seed(bytes([0xA1]) * 32)


RELAY = Peer(7)


START = Instant(5_000_000)


P0, P1 = bytes([0x10]) * 32, bytes([0x11]) * 32


KEEPALIVE = VECTORS["KEEPALIVE"]


HELLO = VECTORS["HELLO"]


OPTIONS_YES = wire.encode(messages.Options(messages.Feature.DELIVER_WITH_PREIMAGE))


OPTIONS_NO = wire.encode(messages.Options(messages.Feature(0)))


DELIVER_PLAIN = VECTORS["DELIVER seed layout (no preimage), msg_id 7, 'request'"]


DELIVER_FULL = VECTORS["DELIVER upstream layout"]


def connected(machine):
    """Return the machine, connected at START."""
    machine.connect(RELAY, START)
    return machine


def device(**options):
    return connected(DeviceClient(KEY_PAIR, **options))


def open_device(**options):
    """Return a device that has introduced itself."""
    machine = device(**options)
    machine.receive(RELAY, HELLO, START)
    machine.take()
    machine.take_events()
    return machine


def open_sender():
    """Return a sender that may send."""
    machine = connected(SenderClient())
    machine.receive(RELAY, HELLO, START)
    machine.take_events()
    return machine


def sent(machine):
    """Return what the machine wants on the wire, as one run of bytes."""
    return b"".join(effect.data for effect in machine.take() if isinstance(effect, Send))


CONVERSATION = (
    HELLO + OPTIONS_YES + KEEPALIVE + DELIVER_FULL + bytes.fromhex("0050000000020102") + KEEPALIVE + DELIVER_FULL
)
