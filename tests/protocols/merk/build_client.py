"""A client machine and, on the other side of it, frames of a relay made by hand."""

import random

from tests.protocols.merk.build import ALICE, BOB, NODE
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import sign
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.client.events import MessageArrived, MessageDropped
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.messages import CONFIRMATION, Feature, MessageType, Role
from waystation.protocols.merk.payload.contents import Extended, Text
from waystation.protocols.merk.payload.sealing import encrypted_frame, signed_frame

PEER = Peer(7)
START = Instant(1_000_000)
CHALLENGE = b"\x80" + bytes(range(31))
FEATURES = Feature.DELIVERY_NOTICES | Feature.KEY_DIRECTORY | Feature.HEADER_SIGNATURES | Feature.MESH
RELAY_NONCE = b"n" * 32


class Pair:
    """Alice's client machine, connected, and what a relay with the key of ``NODE`` may say to it."""

    def __init__(self, keys=ALICE, **options):
        self.keys = keys
        self.machine = MerkClient(keys, random.Random(1), **options)
        self.now = START
        self.events = []
        self.sent = []
        """Frames that left, decoded."""
        self.closes = []
        self.machine.connect(PEER, self.now)
        self.collect()

    def collect(self):
        """Take what the machine has, and return the new events."""
        for effect in self.machine.take():
            if isinstance(effect, Send):
                self.sent.append(wire.decode_frame(effect.data))
            elif isinstance(effect, Close):
                self.closes.append(effect)
        fresh = self.machine.take_events()
        self.events += fresh
        return fresh

    def say(self, frame):
        """Let the relay send a whole frame; return the events."""
        self.machine.receive(PEER, frame, self.now)
        return self.collect()

    def tell(self, info, sender=NODE.public):
        """Let the relay send a NODE_INFO; return the events."""
        return self.say(wire.encode_info_frame(info, sender))

    def pass_ms(self, duration_ms):
        """Let time go by; return the events."""
        self.now = after_ms(self.now, duration_ms)
        self.machine.wake(self.now)
        return self.collect()

    def challenge(self, challenge=CHALLENGE, **header):
        return self.say(wire.encode_frame(MessageType.HANDSHAKE, challenge, **header))

    def confirm(self, payload=CONFIRMATION, *, sender=NODE.public, **header):
        return self.say(wire.encode_frame(MessageType.HANDSHAKE, payload, sender=sender, **header))

    def hello(self, key=NODE.public, role=Role.NODE, features=FEATURES):
        return self.tell(messages.Hello(int(features), role, key, RELAY_NONCE, ""))

    def auth(self, key_pair=NODE, roles=(Role.NODE, Role.CLIENT)):
        nonce = next(info for info in self.infos() if isinstance(info, messages.Hello)).nonce
        ours = self.keys.signing.public
        signed = wire.auth_message(key_pair.public, ours, RELAY_NONCE, nonce, *roles)
        return self.tell(messages.Auth(sign(key_pair, signed)))

    def infos(self):
        """Return every NODE_INFO that left."""
        return [wire.decode_info(frame.payload) for frame in self.sent if frame.kind == MessageType.NODE_INFO]

    def notice(self, frame, code=0):
        """Let the relay tell what became of a frame."""
        return self.tell(messages.Delivery(code, BOB.signing.public, wire.frame_hash(frame)))

    def arrived(self):
        """Return the contents that were taken."""
        return [event.opened.content for event in self.events if isinstance(event, MessageArrived)]

    def opened(self):
        """Return the messages that were taken, with what is known about them."""
        return [event.opened for event in self.events if isinstance(event, MessageArrived)]

    def dropped(self):
        """Return why frames were not taken."""
        return [event.refusal for event in self.events if isinstance(event, MessageDropped)]

    @property
    def refusal(self):
        """Why the machine closed, or None."""
        return self.closes[0].reason if self.closes else None


def ready_pair(**options):
    """Return a pair behind its handshake with a relay of ours; its events are forgotten."""
    pair = Pair(**options)
    pair.challenge()
    pair.confirm()
    pair.hello()
    pair.auth()
    pair.events.clear()
    return pair


def original_pair(**options):
    """Return a pair behind its handshake with an original relay."""
    pair = Pair(**options)
    pair.challenge()
    pair.confirm()
    pair.pass_ms(2_000)
    pair.events.clear()
    return pair


def text_for_bob(text="hi", number=0):
    """Return an encrypted frame from Alice to Bob."""
    secret, nonce = bytes([number + 1]) * 32, bytes(12)
    return encrypted_frame(
        ALICE.signing, BOB.signing.public, BOB.agreement_public, Text(text), ephemeral_secret=secret, nonce=nonce
    )


def text_for_alice(text="hi", *, target=ALICE):
    """Return a signed frame from Bob to Alice."""
    return signed_frame(BOB.signing, target.signing.public, Text(text))


def encrypted_for_alice(text="hi"):
    """Return an encrypted frame from Bob to Alice."""
    secret, nonce = b"\x01" * 32, bytes(12)
    return encrypted_frame(
        BOB.signing, ALICE.signing.public, ALICE.agreement_public, Text(text), ephemeral_secret=secret, nonce=nonce
    )


def bound_for_alice(text="hi", *, number=0, time_ms=0, content=None):
    """Return an encrypted frame in the bound form from Bob to Alice."""
    inside = Extended(time_ms, number.to_bytes(16, "big"), content or Text(text))
    secret, nonce = b"\x01" * 32, bytes(12)
    return encrypted_frame(
        BOB.signing, ALICE.signing.public, ALICE.agreement_public, inside, ephemeral_secret=secret, nonce=nonce
    )
