"""Fuzz target: a Bhumi relay with a key and five connections that send extension frames, any of them hostile.

Slot 4 is a relay that the tested relay has dialled. Every record that the tested relay sends must be one that its
owner signed.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Final

from fuzz.bhumi.session import CLIENTS, RelayConversation, nonces_of
from fuzz.conversation import Connection, Do, Step
from fuzz.corpus import KEYS, i_am
from fuzz.target import expect
from waystation.core.effects import Dial, Peer
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import extension_messages, extension_wire, messages, wire
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bhumi.signed_records import expires_at_s, sign_advert, sign_presence

DIALLED: Final = CLIENTS
_PAYLOAD_BYTES_MAX: Final = 256
_SEED: Final = 77
_WALL_S: Final = 1_700_000_000
_SECOND: Final = 1_000_000
_RELAY: Final = KeyPair.from_seed(bytes([7]) * 32)
_OTHER_RELAYS: Final = [KeyPair.from_seed(bytes([8 + number]) * 32) for number in range(2)]
_OWNERS: Final = [*KEYS[:3], *_OTHER_RELAYS]
_SETTINGS: Final = BhumiSettings(
    max_payload_bytes=_PAYLOAD_BYTES_MAX, peers=["tls://peer.example:1"], advertise="tls://our.example:1"
)
_ALL: Final = Feature(0x3D)


def _records() -> list[bytes]:
    """Return tagged records of their owners: in order, past, future, too long, private."""
    made: list[extension_messages.SignedRecord] = []
    for owner in _OWNERS:
        for relay in (_RELAY, *_OTHER_RELAYS):
            for issued_s, ttl_s in ((0, 60), (5, 600), (300, 600), (-100, 90), (100, 601), (-700, 600), (0, 0)):
                made.append(sign_presence(owner, relay.public, _WALL_S + issued_s, ttl_s))
    for relay in _OTHER_RELAYS:
        for issued_s, ttl_s in ((0, 60), (10, 3_600), (400, 900), (0, 3_601), (-4_000, 3_600)):
            made.append(sign_advert(relay, "tls://other.example:1", _WALL_S + issued_s, ttl_s))
        made.append(sign_advert(relay, "tls://127.0.0.1:22", _WALL_S, 600))
    return [extension_wire.encode_tagged(record) for record in made]


_RECORDS: Final = _records()
_SIGNED: Final = frozenset(_RECORDS)


def _frames() -> list[bytes]:
    """Return frames that begin as valid ones; mutation does the rest."""
    plain: list[messages.Message] = [messages.Options(Feature(bits)) for bits in (0, 0x3F, 0x04, 0x34, 0x0C)]
    frames = [wire.encode(message) for message in [*plain, messages.Keepalive()]]
    questions: list[extension_messages.ExtensionMessage] = [
        extension_messages.RelaysRequest(),
        extension_messages.RevokeCommits((bytes(32), bytes(32))),
        extension_messages.BindProof(bytes(64)),
        extension_messages.QaReport(1, extension_messages.QaVerdict.OK, 5),
        *(extension_messages.Where(owner.public) for owner in _OWNERS),
    ]
    frames += [extension_wire.encode_extension(question) for question in questions]
    frames += [extension_wire.encode_extension(extension_wire.decode_tagged(tagged)) for tagged in _RECORDS[::3]]
    frames += [extension_wire.encode_gossip(_RECORDS[start : start + 9]) for start in range(0, len(_RECORDS), 9)]
    return [*frames, extension_wire.encode_gossip([])]


_FRAMES: Final = _frames()
_CHALLENGE: Final = extension_messages.BindChallenge(_OTHER_RELAYS[0].public, bytes(32))
_HELLO: Final = wire.encode(messages.Hello(5, 256))
_THEIR_FRAMES: Final = [
    _HELLO,
    wire.encode(messages.Options(_ALL)),
    extension_wire.encode_extension(_CHALLENGE),
    wire.encode(messages.Keepalive()),
    extension_wire.encode_extension(extension_messages.IAmOk(0, 0)),
    *(extension_wire.encode_gossip(_RECORDS[start : start + 5]) for start in range(0, len(_RECORDS), 5)),
]


_NONCES: Final = nonces_of(BhumiRelay(_SETTINGS, random.Random(_SEED), key_pair=_RELAY))


class BhumiExtensionsTalk(RelayConversation):
    """Devices, anonymous clients and other relays, all of which may send anything."""

    name = "bhumi_extensions"
    turns = (*(Do.SEND,) * 5, Do.PASS, Do.PASS, Do.CONGEST, Do.DRAIN, Do.LEAVE, Do.CONNECT)
    steps_max = 14
    stream_bytes_max = 6_000
    slots_count = DIALLED + 1
    payload_bytes_max = _PAYLOAD_BYTES_MAX
    lasts_us = 8_000 * _SECOND
    kept = ("addresses", "probed_devices", "remembered_recipients", "own_addresses", "gossip_addresses")
    effects_per_frame = 64
    waits_us = (100_000, 5_000_000, 11_000_000, 31_000_000, 90_100_000, 310_000_000, 900_000_000)

    def __init__(self, _choice: int) -> None:
        super().__init__(BhumiRelay(_SETTINGS, random.Random(_SEED), key_pair=_RELAY))
        self.machine.set_wall(self.now, _WALL_S * _SECOND)
        self.agreed: set[Peer] = set()
        self.dialled_count = 0
        self.reports_count = 0
        for slot in range(DIALLED):
            self.connect(slot)
        self.settle()

    @classmethod
    def begin(cls, rng: random.Random) -> Iterator[Step]:
        """Yield what each client sends first, and what the dialled relay does."""
        for client in range(rng.randrange(1, DIALLED + 1)):
            opening = [wire.encode(messages.Options(_ALL))] if rng.random() < 0.85 else []
            if rng.random() < 0.7:
                opening.append(i_am(_OWNERS[client], _NONCES[client]))
            yield Step(Do.SEND, client, b"".join(opening))
        if rng.random() < 0.5:
            yield Step(Do.SEND, DIALLED, b"".join(_THEIR_FRAMES[:3]))

    @classmethod
    def draw(cls, rng: random.Random, slot: int) -> tuple[list[bytes], Sequence[bytes]]:
        """Return frames of clients, or of a relay."""
        pool = _THEIR_FRAMES if slot == DIALLED else _FRAMES
        return [rng.choice(pool) for _ in range(rng.choice((1, 2, 4, 24)))], pool

    def on_dial(self, effect: Dial) -> None:
        """Let the first dial of the operator's peer succeed; whatever else is dialled cannot be reached."""
        expect("127.0.0.1" not in effect.url, "a private address was dialled for an unauthenticated peer")
        expect(effect.only_public or effect.url == _SETTINGS.peers[0], "an address of a peer need not be public")
        self.dialled_count += 1
        if self.dialled_count == 1:
            limits = wire.relay_frame_limits(_PAYLOAD_BYTES_MAX)
            self.machine.connect_upstream(self.seat(DIALLED, limits).peer, effect.name, self.now)
        else:
            self.machine.upstream_failed(effect.name, self.now)

    def on_frame(self, connection: Connection, kind: int, payload: bytes) -> None:
        """Check every record that a frame reports."""
        if kind == FrameType.GOSSIP:
            for tagged in extension_wire.split_gossip(payload):
                self._check_record(tagged)
        if connection is self.slots[DIALLED]:
            return
        if kind == FrameType.OPTIONS:
            self.agreed.add(connection.peer)
        elif kind >= FrameType.REVOKE_COMMITS:
            expect(connection.peer in self.agreed, "an extension frame for a connection without OPTIONS")
        if kind == FrameType.WHERE_RESULT:
            for entry in extension_wire.decode_where_result(payload).entries:
                self._check_record(extension_wire.encode_tagged(entry.presence))
        elif kind == FrameType.RELAYS:
            for advert in extension_wire.decode_relays(payload).adverts:
                self._check_record(extension_wire.encode_tagged(advert))

    def _check_record(self, tagged: bytes) -> None:
        """See that an owner has signed it, and that it has not ended; the relay's own advert is the one exception."""
        self.reports_count += 1
        record = extension_wire.decode_tagged(tagged)
        expect(expires_at_s(record) > _WALL_S + self.now // _SECOND, "a record was reported past its end")
        if record.owner != _RELAY.public:
            expect(tagged in _SIGNED, "a record was reported that its owner has not signed")
        else:
            expect(isinstance(record, extension_messages.RelayAd), "the relay has signed a presence")
            ours = sign_advert(_RELAY, _SETTINGS.advertise, record.issued_at_s, record.ttl_s)
            expect(record == ours, "the relay's advert is not signed")

    def check(self) -> None:
        """See that tables stay within what was signed."""
        super().check()
        sizes = self.machine.sizes()
        expect(sizes["presences"] <= len(_RECORDS), "more presences than were signed")
        expect(sizes["neighbours"] <= len(_OTHER_RELAYS), "more adverts than relays")
        expect(sizes["contacts"] <= self.slots_count, "more gossip peers than connections")
        expect(sizes["links"] <= 1, "more links than were dialled")
        expect(sizes["addresses"] <= 1 + len(_OTHER_RELAYS), "more addresses than were named")
        expect(sizes["connections"] <= DIALLED, "more connections than clients")

    def outcome(self) -> str:
        """Return how the relay closed its last connection, and whether it reported any record."""
        return f"{super().outcome()}, {'told' if self.reports_count else 'told nothing'}"
