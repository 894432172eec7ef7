"""A relay that answers WHERE with what the test wants, and entries to answer with."""

import time

from tests.sdk.build import ALICE, ScriptedRelay
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import extension_wire, messages
from waystation.protocols.bhumi.extension_messages import WhereEntry, WhereResult
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.signed_records import sign_presence
from waystation.transport.dial import RelayUrl

RELAY = KeyPair.from_seed(bytes([0xC3]) * 32)
OTHER = KeyPair.from_seed(bytes([0xC4]) * 32)
THERE = "tls://relay.example:8443"


class Telling(ScriptedRelay):
    """A relay that says of whoever is asked for what the test wants."""

    def __init__(self, *entries):
        super().__init__()
        self._entries = entries
        self.asked_count = 0

    def received(self, pipe, data):
        before = len(self.frames)
        super().received(pipe, data)
        for peer, kind, payload in self.frames[before:]:
            if kind == FrameType.OPTIONS:
                self.send(peer, messages.Options(Feature.PRESENCE))
            elif kind == FrameType.WHERE:
                self.asked_count += 1
                identity = extension_wire.decode_where(payload).identity
                answer = extension_wire.encode_extension(WhereResult(identity, self._entries))
                self.pipes[peer].write([answer])

    @property
    def place(self):
        """Where it listens."""
        return RelayUrl.parse(self.url)


def said(address=THERE, key_pair=ALICE, relay=RELAY, age_s=0):
    """Return an entry of an answer: somebody is at a relay, whose address is hearsay."""
    return WhereEntry(sign_presence(key_pair, relay.public, int(time.time()) - age_s, 300), address)
