"""Target: a relay with a key, and five connections that speak extension frames; any of them may be anybody.

An input is a script; any bytes are one. Each step is one byte, kind in its upper and client in its lower half: data
(u16 length, bytes), time (u16, tenths of seconds), congestion, drain, end, new connection. Client 4 is a relay that we
have dialled. What the relay tells about devices and relays is judged against everything that their owners have signed.
"""

import random
from typing import Final

from fuzz.corpus import KEYS, i_am
from fuzz.mutate import cut, mutate_frames
from fuzz.target import expect
from waystation.core.effects import Close, Dial, Hold, Peer, Send
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import extension_messages, extension_wire, messages, wire
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bhumi.signed_records import expires_at_s, sign_advert, sign_presence

CLIENTS: Final = 5
DIALLED: Final = 4
DATA, TIME, CONGEST, DRAIN, END, CONNECT = range(6)
_SEED: Final = 77
_WALL_S: Final = 1_700_000_000
_SECOND: Final = 1_000_000
_RELAY: Final = KeyPair.from_seed(bytes([7]) * 32)
_OTHER_RELAYS: Final = [KeyPair.from_seed(bytes([8 + number]) * 32) for number in range(2)]
_OWNERS: Final = [*KEYS[:3], *_OTHER_RELAYS]
_SETTINGS: Final = BhumiSettings(max_payload_bytes=256, peers=["tls://peer.example:1"], advertise="tls://our.example:1")
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


def _nonces() -> list[int]:
    """Return the nonces that the relay of each play gives to its first connections."""
    relay = BhumiRelay(_SETTINGS, random.Random(_SEED), key_pair=_RELAY)
    found = []
    for number in range(1, DIALLED + 1):
        relay.connect(Peer(number), Instant(0))
        found.append(int.from_bytes(relay.take()[0].data[7:11], "big"))  # type: ignore[union-attr]
    return found


_NONCES: Final = _nonces()


class BhumiExtensionsTarget:
    """Makes scripts and plays them."""

    name = "bhumi_extensions"

    def make(self, rng: random.Random) -> bytes:
        """Return a script in which at least the beginning makes sense."""
        script = bytearray()
        for client in range(rng.randrange(1, DIALLED + 1)):
            opening = [wire.encode(messages.Options(_ALL))] if rng.random() < 0.85 else []
            if rng.random() < 0.7:
                opening.append(i_am(_OWNERS[client], _NONCES[client]))
            script += _data(client, b"".join(opening))
        if rng.random() < 0.5:
            script += _data(DIALLED, b"".join(_THEIR_FRAMES[:3]))
        for _ in range(rng.randrange(1, 14)):
            client = rng.randrange(CLIENTS)
            kind = rng.choice((DATA, DATA, DATA, DATA, DATA, TIME, TIME, CONGEST, DRAIN, END, CONNECT))
            if kind == DATA:
                pool = _THEIR_FRAMES if client == DIALLED else _FRAMES
                frames = [rng.choice(pool) for _ in range(rng.choice((1, 2, 4, 24)))]
                changed = mutate_frames(rng, frames, pool) if rng.random() < 0.5 else frames
                stream = b"".join(changed)[:6_000]
                at = rng.randrange(len(stream) + 1)
                for piece in cut(rng, stream) if len(stream) < 150 else (stream[:at], stream[at:]):
                    script += _data(client, piece)
            else:
                script.append(kind << 4 | client)
                if kind == TIME:
                    script += rng.choice((1, 50, 110, 310, 901, 3_100, 9_000)).to_bytes(2, "big")
        return bytes(script)

    def run(self, data: bytes) -> str:
        """Play a script to its end, and then everybody's end."""
        return _Play().play(data)


def _data(client: int, piece: bytes) -> bytes:
    return bytes([DATA << 4 | client]) + len(piece).to_bytes(2, "big") + piece


class _Play:
    """One relay, its clients, and what was said to it."""

    def __init__(self) -> None:
        self.relay = BhumiRelay(_SETTINGS, random.Random(_SEED), key_pair=_RELAY)
        self.now = Instant(0)
        self.relay.set_wall(self.now, _WALL_S * _SECOND)
        self.peers: list[Peer | None] = [None] * CLIENTS
        self.closed: set[Peer] = set()
        self.buffers: dict[Peer, wire.FrameBuffer] = {}
        self.agreed: dict[Peer, Feature] = {}
        self.held: dict[Peer, bytes] = {}
        self.dialled: list[str] = []
        self.connected = 0
        self.bytes_in = 0
        self.steps = 0
        self.told = 0
        self.outcome = "accepted"
        for client in range(DIALLED):
            self._connect(client)
        self._pass_us(0)

    def play(self, script: bytes) -> str:
        at = 0
        while at < len(script):
            kind, client = script[at] >> 4, (script[at] & 15) % CLIENTS
            at += 1
            argument = b""
            if kind in {DATA, TIME}:
                size = int.from_bytes(script[at : at + 2], "big")
                at += 2
                argument = script[at : at + size] if kind == DATA else size.to_bytes(2, "big")
                at += size if kind == DATA else 0
            self.steps += 1
            self._step(kind, client, argument)
            self._settle()
            self._check()
        self._finish()
        return f"{self.outcome}, {'told' if self.told else 'told nothing'}"

    def _step(self, kind: int, client: int, argument: bytes) -> None:
        peer = self.peers[client]
        if kind == TIME:
            self._pass_us(int.from_bytes(argument, "big") * 100_000)
        elif kind == CONNECT and (peer is None or peer in self.closed) and client != DIALLED:
            self._connect(client)
        elif peer is None or peer in self.closed:
            return
        elif kind == DATA:
            self._say(peer, argument)
        elif kind == CONGEST:
            self.relay.congested(peer, self.now)
        elif kind == DRAIN:
            self.relay.drained(peer, self.now)
        elif kind == END:
            self.closed.add(peer)
            self.relay.disconnect(peer, self.now)

    def _connect(self, client: int) -> None:
        peer = self._meet(client)
        self.relay.connect(peer, self.now)
        self._settle()

    def _meet(self, client: int) -> Peer:
        self.connected += 1
        peer = self.peers[client] = Peer(self.connected)
        self.buffers[peer] = wire.FrameBuffer(
            wire.relay_frame_limits(256) if client == DIALLED else wire.client_frame_limits(256)
        )
        return peer

    def _say(self, peer: Peer, data: bytes) -> None:
        if peer in self.held:
            self.held[peer] += data
        elif peer not in self.closed:
            self.bytes_in += len(data)
            self.relay.receive(peer, data, self.now)

    def _pass_us(self, duration_us: int) -> None:
        until, wakes = Instant(self.now + duration_us), 0
        while (deadline := self.relay.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.relay.wake(self.now)
            self._settle()
            wakes += 1
            expect(wakes < 2_000 + self.bytes_in, "the relay asks to be woken without end")
        self.now = until

    def _settle(self) -> None:
        while effects := self.relay.take():
            for effect in effects:
                if isinstance(effect, Send):
                    self._sent(effect)
                elif isinstance(effect, Close):
                    expect(effect.reason in Refusal, "closed for no documented reason")
                    expect(effect.peer not in self.closed, "closed twice")
                    self.closed.add(effect.peer)
                    self.outcome = f"closed:{effect.reason.value}"
                elif isinstance(effect, Hold):
                    expect(effect.peer not in self.closed, "a closed peer is held")
                    self._hold(effect)
                elif isinstance(effect, Dial):
                    self._dial(effect)

    def _hold(self, effect: Hold) -> None:
        expect(effect.held == (effect.peer not in self.held), "held twice, or let go twice")
        if effect.held:
            self.held[effect.peer] = b""
        else:
            self._say(effect.peer, self.held.pop(effect.peer))

    def _dial(self, effect: Dial) -> None:
        """Let the first dial of the operator's peer stand; whatever else is dialled cannot be reached."""
        expect("127.0.0.1" not in effect.url, "a private address was dialled for a stranger")
        expect(effect.only_public or effect.url == _SETTINGS.peers[0], "a stranger's address need not be public")
        self.dialled.append(effect.url)
        if len(self.dialled) == 1:
            self.relay.connect_upstream(self._meet(DIALLED), effect.name, self.now)
        else:
            self.relay.upstream_failed(effect.name, self.now)

    def _sent(self, effect: Send) -> None:
        expect(effect.peer not in self.closed, "something was sent behind a close")
        buffer = self.buffers[effect.peer]
        buffer.feed(effect.data)
        frame = buffer.next_frame()
        expect(frame is not None and not buffer.waiting, "a Send is not one whole frame")
        assert frame is not None
        kind, payload = frame
        if effect.peer == self.peers[DIALLED]:
            self._judge_gossip(kind, payload)
            return
        if kind == FrameType.OPTIONS:
            self.agreed[effect.peer] = wire.decode_options(payload).features
        elif kind >= FrameType.REVOKE_COMMITS:
            expect(effect.peer in self.agreed, "an extension frame for a connection without OPTIONS")
        self._judge_gossip(kind, payload)
        if kind == FrameType.WHERE_RESULT:
            for entry in extension_wire.decode_where_result(payload).entries:
                self._judge(extension_wire.encode_tagged(entry.presence))
        elif kind == FrameType.RELAYS:
            for advert in extension_wire.decode_relays(payload).adverts:
                self._judge(extension_wire.encode_tagged(advert))

    def _judge_gossip(self, kind: int, payload: bytes) -> None:
        if kind == FrameType.GOSSIP:
            for tagged in extension_wire.split_gossip(payload):
                self._judge(tagged)

    def _judge(self, tagged: bytes) -> None:
        """Check what the relay tells: an owner signed it, and it has not ended; its own advert is the one exception."""
        self.told += 1
        record = extension_wire.decode_tagged(tagged)
        expect(expires_at_s(record) > _WALL_S + self.now // _SECOND, "a record was told past its end")
        if record.owner != _RELAY.public:
            expect(tagged in _SIGNED, "a record was told that its owner has not signed")
        else:
            expect(isinstance(record, extension_messages.RelayAd), "the relay has signed a presence")
            ours = sign_advert(_RELAY, _SETTINGS.advertise, record.issued_at_s, record.ttl_s)
            expect(record == ours, "the relay's advert is not signed")

    def _check(self) -> None:
        sizes = self.relay.sizes()
        expect(sizes["presences"] <= len(_RECORDS), "more presences than were signed")
        expect(sizes["neighbours"] <= len(_OTHER_RELAYS), "more neighbours than relays")
        expect(sizes["contacts"] <= CLIENTS, "more contacts than connections")
        expect(sizes["links"] <= 1, "more links than were dialled")
        expect(sizes["addresses"] <= 1 + len(_OTHER_RELAYS), "more addresses than were named")
        expect(sizes["connections"] <= DIALLED, "more connections than clients")

    def _finish(self) -> None:
        """Let everybody go and time pass: nothing may stay but the operator's address."""
        for peer in self.peers:
            if peer is not None and peer not in self.closed:
                self.closed.add(peer)
                self.relay.disconnect(peer, self.now)
                self._settle()
        self.relay.retire()
        self._pass_us(8_000 * _SECOND)
        left = {name: size for name, size in self.relay.sizes().items() if size}
        left.pop("addresses", None)
        left.pop("probed_devices", None)
        expect(not left, f"left behind: {left}")
        expect(self.relay.deadline() is None, "a deadline with nothing to wait for")
