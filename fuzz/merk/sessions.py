"""Fuzz target: a whole MERK relay with clients, nodes and relays of the reference implementation, all untrusted.

Frames are valid or mutated. The target itself completes the handshakes, because fuzz input cannot contain valid
signatures.
"""

import random
from typing import ClassVar, Final

from fuzz.conversation import FACTS, Connection, Conversation, Do, Step
from fuzz.mutate import flip
from fuzz.target import expect
from waystation.core.effects import Close, Commit, Dial, Send, SendMany
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.messages import MessageType, Role
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import authentication
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.store.memory import MemoryStore

_KEYS: Final = [KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 6)]
_NONCE: Final = b"q" * 32
_NODE: Final = KeyPair.from_seed(b"n" * 32)
_WALL_US: Final = 1_767_225_600 * MICROSECONDS_PER_SECOND
_SETTINGS: Final = MerkSettings(max_frame_bytes=1_024, peers=["ws://upstream.example"])
_LEFT: Final = ("addresses", "learnt_addresses", "connect_addresses", "adverts", "places", "seen_forwards")
_RUN: Final = len(Do)
_HOWS: Final = ("silent", "client", "introduced", "peer", "mesh", "downstream", "gathering")
_GATHERING: Final = 15 | messages.Feature.DELIVERIES
"""What a node says that gets one notice for many frames."""
_FORWARD_IDS: Final = [random.Random(1).randbytes(8) + number.to_bytes(8, "big") for number in range(1, 9)]
"""What the relay names its first forwards by: its source of random bytes is that of ``MerkRelayTalk``."""


def _infos() -> list[messages.Info]:
    keys = [key.public for key in _KEYS]
    frame = wire.encode_frame(MessageType.DATA, keys[1] + b"hello", sender=keys[0])
    return [
        messages.RequestServers(),
        messages.Servers(
            (messages.ServerEntry(keys[4], "ws://8.8.8.8"), messages.ServerEntry(keys[3], "ws://10.1.1.1"))
        ),
        messages.AddServer("ws://nodes.example"),
        *(messages.QueryClient(key) for key in keys[:2]),
        *(messages.ClientFound(key, server) for key in keys[:2] for server in keys[2:4]),
        *(messages.ClientAbsent(key) for key in keys[:2]),
        messages.Hello(15, Role.CLIENT, keys[0], bytes(32), ""),
        messages.Hello(15, Role.NODE, keys[2], bytes(32), "ws://nodes.example"),
        messages.Auth(bytes(64)),
        messages.Delivery(1, keys[1], wire.frame_hash(frame)),
        *(messages.Deliveries(code, (*_FORWARD_IDS, *_FORWARD_IDS)) for code in (0, 1)),
        messages.Deliveries(6, (_FORWARD_IDS[1], bytes(16), _FORWARD_IDS[0])),
        messages.Forward(1, b"i" * 16, keys[2], frame),
        messages.ForwardRun(1, keys[2], ((b"i" * 16, frame), (b"j" * 16, frame), (b"j" * 16, frame))),
        wire.make_advert(_KEYS[0], b"a" * 32, 1),
        messages.KeyQuery(keys[1]),
        messages.KeyUnknown(keys[1]),
        messages.Gone(keys[1]),
    ]


_INFOS: Final = _infos()


class MerkRelayTalk(Conversation[MerkRelay]):
    """Whatever is sent to a relay ends in a documented way, and nothing of it is left in the end."""

    name = "merk_relay"
    weights: ClassVar = dict.fromkeys(Do, 1) | {Do.CONNECT: 2, Do.SEND: 4, _RUN: 1}
    reasons = Refusal
    effects = (*FACTS, Send, SendMany, Close, Commit, Dial)
    kinds = _RUN + 1
    waits_us = (0, 1_000, 600_000, 2_000_000, 5_000_000, 61_000_000)

    def __init__(self, _choice: int) -> None:
        store = MemoryStore()
        super().__init__(MerkRelay(_SETTINGS, _NODE, store, random.Random(1)), store)
        self.machine.set_wall(self.now, _WALL_US)
        self.settle()

    @classmethod
    def draw_data(cls, rng: random.Random, kind: int, choice: int) -> bytes:
        """Return a frame, now and then with one wrong bit or without its end."""
        if kind not in (Do.SEND, _RUN):
            return super().draw_data(rng, kind, choice)
        sender = rng.choice(_KEYS).public
        if rng.random() < 0.6:
            frame = wire.encode_info_frame(rng.choice(_INFOS), sender)
        else:
            payload = rng.choice(_KEYS).public + rng.randbytes(rng.randrange(40) if rng.random() < 0.9 else 900)
            frame = wire.encode_frame(rng.choice((1, 2, 2, 2, 4, 5, 6)), payload, sender=sender)
        if rng.random() < 0.25:
            frame = flip(rng, frame, rng.randrange(len(frame)))
        return frame[: rng.randrange(len(frame))] if rng.random() < 0.05 else frame

    def act(self, step: Step) -> None:
        """Let a peer connect, send a run of frames, or do what every vocabulary has."""
        connection = self.pick(step.place)
        if step.kind == Do.CONNECT:
            self._connect(_HOWS[step.place % len(_HOWS)], _KEYS[(step.data or b"\0")[0] % len(_KEYS)])
        elif step.kind != _RUN:
            super().act(step)
        elif connection is not None:
            run = [step.data] * (2 + step.place)
            self.bytes_in += sum(map(len, run))
            self.steps += len(run)
            self.machine.receive_many(connection.peer, run, self.now)

    def _connect(self, how: str, key: KeyPair) -> None:
        """Let a peer connect, and go as far as ``how`` says."""
        connection = self.enter(key)
        if how in ("mesh", "downstream"):
            self.machine.connect_by(connection.peer, "mesh", self.now, "192.0.2.1")
            self.settle()
            if how == "downstream":
                self._confirm(connection, key)
            return
        self.machine.connect(connection.peer, self.now, "192.0.2.2")
        self.settle()
        if how != "silent" and connection.sent:
            challenge = wire.decode_frame(connection.sent[0]).payload
            self.receive(connection, authentication.answer_frame(challenge, key))
        if how in ("introduced", "peer", "gathering"):
            role = Role.CLIENT if how == "introduced" else Role.NODE
            self._introduce(connection, key, role, _GATHERING if how == "gathering" else 15)

    def _introduce(self, connection: Connection, key: KeyPair, role: Role, features: int) -> None:
        connection.sent.clear()
        hello = messages.Hello(features, role, key.public, _NONCE, "")
        self.receive(connection, wire.encode_info_frame(hello, key.public))
        infos = map(wire.decode_info_frame, connection.sent)
        theirs = next((info for info in infos if isinstance(info, messages.Hello)), None)
        if role is Role.NODE and theirs is not None:
            proof = wire.auth_message(key.public, _NODE.public, _NONCE, theirs.nonce, role, theirs.role)
            self.receive(connection, wire.encode_info_frame(messages.Auth(sign(key, proof)), key.public))

    def _confirm(self, connection: Connection, key: KeyPair) -> None:
        """Be an original relay, which confirms any challenge."""
        self.receive(connection, authentication.challenge_frame(b"\xff" * 32), authentication.confirm_frame(key.public))

    def on_reached(self, dial: Dial) -> None:
        """Let an original relay answer."""
        connection = self.enter(_KEYS[4])
        self.machine.connect_upstream(connection.peer, dial.name, self.now)
        self._confirm(connection, _KEYS[4])

    def on_send(self, connection: Connection, data: bytes, *, receipt: bool) -> None:
        """Every message is one frame."""
        wire.decode_frame(data)
        super().on_send(connection, data, receipt=receipt)

    def on_close(self, effect: Close) -> None:
        """A WebSocket is closed with a status."""
        expect(effect.status >= 1_000, "closed without a status")

    def check(self) -> None:
        """See that nothing outgrows what was put in."""
        super().check()
        self.check_tables()

    def finish(self) -> str:
        """Let every connection end; nothing may be left."""
        self.machine.retire()
        outcome = super().finish()
        self.check_empty(_LEFT)
        expect(self.machine.settled(), "a frame is left without an outcome")
        return outcome
