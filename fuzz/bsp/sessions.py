"""Fuzz target: a whole BSP device on byte streams, with known and unknown peers that may send anything.

Records are valid or mutated. The target itself completes the handshakes, because fuzz input cannot contain valid
signatures.
"""

import random
from typing import Any, ClassVar, Final

from fuzz.conversation import Connection, Conversation, Do, Step
from fuzz.mutate import flip
from fuzz.target import expect
from waystation.core.effects import Close, Commit, Dial, Hold, Send
from waystation.core.facts import PeerIdentified, PeerLeft, Refused
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bsp import messages
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.sync import WRITE_BYTES, BspDevice
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.profile import BRIAR, SEED, Profile
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.stream import handshake
from waystation.protocols.bsp.stream.handshake import Hello, Proof, Role, Verdict, transcript
from waystation.protocols.bsp.stream.machine import PLAIN_LISTENER, BspMachine
from waystation.protocols.bsp.wire import RecordReader, encode
from waystation.store.memory import MemoryStore

_US, _FRIEND, _OTHER, _UNKNOWN = (KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 5))
_CERTIFICATE: Final = b"c" * 32
_NONCE: Final = b"n" * 32
_WALL_US: Final = 1_767_225_600 * MICROSECONDS_PER_SECOND
_HALF, _SAVE, _ADD = range(len(Do), len(Do) + 3)
_HOWS: Final = ("plain", "friend", "other", "unknown", "silent", "wrong")
_ENDS_EMPTY: Final = ("connections", "handshakes", "connected", "ending", "links")


class BspMachineTalk(Conversation[BspMachine]):
    """Whatever is sent to a machine ends in a documented way, and nothing of a connection is left in the end."""

    name = "bsp_machine"
    choices = (0, 0, 1)
    weights: ClassVar = {
        Do.CONNECT: 5,
        Do.SEND: 12,
        Do.PASS: 3,
        Do.CONGEST: 1,
        Do.DRAIN: 2,
        Do.LEAVE: 1,
        _HALF: 2,
        _SAVE: 4,
        _ADD: 2,
    }
    reasons = Refusal
    effects = (Send, Close, Commit, Hold, Dial, PeerIdentified, PeerLeft, Refused)
    kinds = _ADD + 1
    waits_us = (0, 1_000, 600_000, 2_999_000, 9_000_000, 31_000_000, 61_000_000)

    def __init__(self, choice: int) -> None:
        self.profile = profile = _profile(choice)
        store = MemoryStore()
        self.device = BspDevice(profile, store)
        dials = {_OTHER.public: "bsp+tls://other.example"}
        machine = BspMachine(self.device, _US, random.Random(1), plain_peer=_FRIEND.public, dials=dials)
        super().__init__(machine, store)
        self.group = _group(profile)
        self.device.set_wall(self.now, _WALL_US)
        self.device.join(self.group, self.now)
        for key in (_FRIEND, _OTHER):
            self.device.meet(key.public)
            self.device.share(self.group.group_id, key.public, self.now)
        machine.use_certificate(_CERTIFICATE)
        self.commits: list[Commit] = []
        self.owed: set[int] = set()
        """Connections with a write that has not left."""
        self.identities: dict[int, bytes] = {}
        """Of the connections that the node knows."""
        self.settle()

    @classmethod
    def draw_data(cls, rng: random.Random, kind: int, choice: int) -> bytes:
        """Return records, now and then with one wrong bit or without their end."""
        if kind != Do.SEND:
            return super().draw_data(rng, kind, choice)
        profile = _profile(choice)
        group = _group(profile).group_id
        bodies = [deps_v1_body([], b"%d" % number) for number in range(4)]
        known = [profile.message_id(group, number, body) for number, body in enumerate(bodies)]
        data = b""
        for _ in range(rng.choice((1, 1, 2, 4))):
            ids = tuple(rng.choices(known, k=rng.choice((1, 2, 5))))
            number = rng.randrange(4)
            message = messages.Message(group, number, bodies[number])
            child = messages.Message(group, 9, deps_v1_body(rng.sample(known, 2), b"child"))
            lists = (messages.Ack(ids), messages.Request(ids), messages.Offer(ids))
            data += encode(profile, rng.choice((*lists, message, message, child)))
        if rng.random() < 0.25:
            data = flip(rng, data, rng.randrange(min(len(data), 50)))
        return data[: rng.randrange(len(data))] if rng.random() < 0.1 else data

    def act(self, step: Step) -> None:
        """Do what only a BSP device knows, or what every vocabulary has."""
        number = step.data[0] if step.data else 0
        connection = self.pick(step.place)
        if step.kind == Do.CONNECT:
            self._connect(_HOWS[number % len(_HOWS)])
        elif step.kind == _SAVE:
            self.save()
        elif step.kind == _ADD:
            self.device.add(self.group.group_id, number, deps_v1_body([], b"ours"), self.now)
        elif step.kind == _HALF and connection is not None:
            self.machine.half_closed(connection.peer, self.now)
        else:
            if step.kind == Do.DRAIN and connection is not None:
                self.owed.discard(connection.peer)
            super().act(step)

    def _connect(self, how: str) -> None:
        """Let a peer connect, and go as far as ``how`` says."""
        key = {"other": _OTHER, "unknown": _UNKNOWN}.get(how, _FRIEND)
        connection = self.enter(key, RecordReader(self.profile) if how == "plain" else None)
        self.machine.connect_by(connection.peer, PLAIN_LISTENER if how == "plain" else "", self.now, "192.0.2.1")
        self.settle()
        if how in ("plain", "silent") or connection.peer not in self.open:
            return
        hello = handshake.decode_hello(b"".join(connection.sent))
        certificate = _NONCE if how == "wrong" else _CERTIFICATE
        signed = transcript(Role.CLIENT, hello.nonce, _NONCE, hello.key, key.public, certificate)
        connection.sent.clear()
        self.receive(connection, handshake.encode_proof(Proof(_NONCE, key.public, sign(key, signed))))

    def on_reached(self, dial: Dial) -> None:
        """Let a dialled device prove itself."""
        connection = self.enter(_OTHER)
        self.machine.connect_upstream(connection.peer, dial.name, self.now, _CERTIFICATE)
        self.receive(connection, handshake.encode_hello(Hello(_NONCE, _OTHER.public)))
        if connection.peer in self.open:
            proof = handshake.decode_proof(b"".join(connection.sent))
            signed = transcript(Role.SERVER, _NONCE, proof.nonce, _OTHER.public, proof.key, _CERTIFICATE)
            connection.sent, connection.reader = [], RecordReader(self.profile)
            self.receive(connection, handshake.encode_verdict(Verdict(sign(_OTHER, signed), 0)))

    def take_events(self) -> bool:
        """Forget what is reported to the owner."""
        return bool(self.machine.take_events())

    def on_commit(self, effect: Commit) -> None:
        """Let changes wait for the disk."""
        expect(not self.commits, "two commits at once")
        self.commits.append(effect)

    def save(self) -> None:
        """Let the disk catch up."""
        while self.commits:
            super().on_commit(self.commits.pop())
            self.settle()

    def on_fact(self, fact: Any) -> None:
        """Whoever leaves had come."""
        if isinstance(fact, PeerIdentified):
            self.identities[fact.peer] = fact.identity
        elif isinstance(fact, PeerLeft):
            expect(self.identities.pop(fact.peer, None) == fact.identity, "another peer left than had come")

    def on_send(self, connection: Connection, data: bytes, *, receipt: bool) -> None:
        """One write after the other, and all of records once the handshake is done."""
        expect(connection.peer not in self.owed, "a write after one that has not left")
        expect(len(data) <= WRITE_BYTES, "a write that is too long")
        if receipt:
            self.owed.add(connection.peer)
        if connection.reader is not None:
            connection.reader.feed(data)
            expect(connection.reader.finish() is None, "something was sent that is no record")
            return
        connection.sent.append(data)
        sent = b"".join(connection.sent)
        if len(sent) == handshake.VERDICT_BYTES and sent[-1] == handshake.ACCEPTED:
            connection.reader = RecordReader(self.profile)

    def check(self) -> None:
        """See that nothing outgrows what was put in."""
        super().check()
        self.check_tables()
        expect(len(self.machine.connected()) <= 2, "more connections than peers")

    def finish(self) -> str:
        """Let every connection end; nothing may be left."""
        self.machine.retire()
        outcome = super().finish()
        self.save()
        self.pass_time(10 * MICROSECONDS_PER_SECOND, late=True)
        self.save()
        self.check_empty([name for name in self.machine.sizes() if name not in _ENDS_EMPTY])
        expect(not self.identities, "a peer never left")
        expect(self.machine.settled(), "something is left that nothing waits for")
        return outcome


def _profile(choice: int) -> Profile:
    return BRIAR if choice == 1 else SEED


def _group(profile: Profile) -> Group:
    return profile.group(b"org.example" if profile is BRIAR else b"c" * 32, b"", "deps_v1")
