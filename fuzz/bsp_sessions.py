"""Target: a whole BSP device on streams, with peers and strangers, any of which may say anything.

An input is a conversation: steps of a byte for what happens, a byte for where, and bytes of what is said behind two
bytes of length. Records are real ones, bent or not; handshakes are completed by the target, because no input can sign.
"""

import random
from collections.abc import Iterator
from typing import Final

from fuzz.target import expect
from waystation.core.effects import Close, Commit, Dial, Hold, Peer, Send
from waystation.core.facts import PeerIdentified, PeerLeft, Refused
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bsp import handshake, messages
from waystation.protocols.bsp.device import WRITE_BYTES, BspDevice
from waystation.protocols.bsp.formats import deps_v1_body
from waystation.protocols.bsp.handshake import Hello, Proof, Role, Verdict, transcript
from waystation.protocols.bsp.machine import PLAIN_DOOR, BspMachine
from waystation.protocols.bsp.profile import BRIAR, SEED, Profile
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.wire import RecordReader, encode
from waystation.store.memory import MemoryStore

__all__ = ["BspMachineTarget"]

_US, _FRIEND, _OTHER, _STRANGER = (KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 5))
_CERTIFICATE: Final = b"c" * 32
_NONCE: Final = b"n" * 32
_WALL_US: Final = 1_767_225_600 * MICROSECONDS_PER_SECOND
_WAITS_US: Final = (0, 1_000, 600_000, 2_999_000, 9_000_000, 31_000_000, 61_000_000)
_STEPS_MAX: Final = 24
_SAID_MAX: Final = 1_400
_ROUNDS_MAX: Final = 200
_COME, _SAY, _PASS, _STALL, _DRAIN, _LEAVE, _HALF, _SAVE, _ADD = range(9)
_HOWS: Final = ("plain", "friend", "other", "stranger", "silent", "wrong")
_ENDS_EMPTY: Final = ("connections", "handshakes", "connected", "ending", "links")


class _Line:
    """What the target knows of one connection."""

    def __init__(self, peer: Peer, profile: Profile, key: KeyPair) -> None:
        self.peer = peer
        self.key = key
        self.heard = b""
        """Bytes of the handshake that we have not answered."""
        self.reader: RecordReader | None = None
        """Reads what follows it."""
        self.profile = profile
        self.owed = False
        self.held = False


class _World:
    """One machine under fire and its connections."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        client = b"org.example" if profile is BRIAR else b"c" * 32
        self.group = profile.group(client, b"", "deps_v1")
        self.store = MemoryStore()
        self.device = BspDevice(profile, self.store)
        self.now = Instant(1_000_000)
        self.device.set_wall(self.now, _WALL_US)
        self.device.join(self.group, self.now)
        for key in (_FRIEND, _OTHER):
            self.device.meet(key.public)
            self.device.share(self.group.group_id, key.public, self.now)
        dials = {_OTHER.public: "bsp+tls://other.example"}
        rng = random.Random(1)
        self.machine = BspMachine(self.device, _US, rng, plain_peer=_FRIEND.public, dials=dials)
        self.machine.use_certificate(_CERTIFICATE)
        self.lines: dict[Peer, _Line] = {}
        self.ends: list[Refusal] = []
        self.dials: list[Dial] = []
        self.commits: list[Commit] = []
        self._peers = 0
        self._told: dict[int, bytes] = {}
        """Identities of the connections that the journal was told of."""
        self.settle()

    def come(self, how: str) -> None:
        """Let somebody connect and go as far as ``how`` says."""
        key = {"other": _OTHER, "stranger": _STRANGER}.get(how, _FRIEND)
        line = self._enter(key)
        self.machine.connect_by(line.peer, PLAIN_DOOR if how == "plain" else "", self.now, "192.0.2.1")
        if how == "plain":
            line.reader = RecordReader(self.profile)
        self.settle()
        if how in ("plain", "silent") or line.peer not in self.lines:
            return
        hello = handshake.decode_hello(line.heard)
        certificate = _NONCE if how == "wrong" else _CERTIFICATE
        signed = transcript(Role.CLIENT, hello.nonce, _NONCE, hello.key, key.public, certificate)
        line.heard = b""
        self.send(line, handshake.encode_proof(Proof(_NONCE, key.public, sign(key, signed))))

    def answer_dials(self, *, stands: bool) -> None:
        """Let what was dialled stand and prove itself, or fail."""
        dials, self.dials = self.dials, []
        for dial in dials:
            if not stands:
                self.machine.upstream_failed(dial.name, self.now)
                continue
            line = self._enter(_OTHER)
            self.machine.connect_upstream(line.peer, dial.name, self.now, _CERTIFICATE)
            self.send(line, handshake.encode_hello(Hello(_NONCE, _OTHER.public)))
            if line.peer in self.lines:
                proof = handshake.decode_proof(line.heard)
                signed = transcript(Role.SERVER, _NONCE, proof.nonce, _OTHER.public, proof.key, _CERTIFICATE)
                line.heard, line.reader = b"", RecordReader(self.profile)
                self.send(line, handshake.encode_verdict(Verdict(sign(_OTHER, signed), 0)))
        self.settle()

    def send(self, line: _Line, data: bytes) -> None:
        """Let somebody say something."""
        self.machine.receive(line.peer, data, self.now)
        self.settle()

    def settle(self) -> None:
        """Carry out effects until none is left, and check each."""
        for _ in range(_ROUNDS_MAX):
            due = self.machine.deadline()
            if due is not None and due <= self.now:
                self.machine.wake(self.now)
            effects = self.machine.take()
            self.machine.take_events()
            if not effects and (due is None or due > self.now):
                return
            for effect in effects:
                self._carry_out(effect)
        expect(holds=False, what="a machine that does not come to rest")

    def save(self) -> None:
        """Let the disk catch up."""
        while self.commits:
            commit = self.commits.pop()
            self.store.commit(commit.changes)
            self.machine.committed(commit.ticket, self.now)
            self.settle()

    def _carry_out(self, effect: object) -> None:
        if isinstance(effect, Send):
            self._heard(effect)
        elif isinstance(effect, Close):
            expect(self.lines.pop(effect.peer, None) is not None, "who is not there was closed")
            expect(isinstance(effect.reason, Refusal), "closed for no documented reason")
            self.ends.append(Refusal(effect.reason))
        elif isinstance(effect, Commit):
            expect(not self.commits, "two commits at once")
            self.commits.append(effect)
        elif isinstance(effect, Hold):
            expect(self.lines[effect.peer].held is not effect.held, "held twice, or let go twice")
            self.lines[effect.peer].held = effect.held
        elif isinstance(effect, Dial):
            self.dials.append(effect)
        elif isinstance(effect, PeerIdentified):
            self._told[effect.peer] = effect.identity
        elif isinstance(effect, PeerLeft):
            expect(self._told.pop(effect.peer, None) == effect.identity, "somebody else left than had come")
        else:
            expect(isinstance(effect, Refused), f"a machine wants {effect!r}")

    def _heard(self, send: Send) -> None:
        line = self.lines.get(send.peer)
        expect(line is not None, "something was sent to who is not there")
        assert line is not None
        expect(not line.owed, "a write behind one that has not left")
        expect(len(send.data) <= WRITE_BYTES, "a write that is too long")
        line.owed = send.receipt
        if line.reader is None:
            line.heard += send.data
            if len(line.heard) == handshake.VERDICT_BYTES and line.heard[-1] == handshake.ACCEPTED:
                line.reader = RecordReader(self.profile)
        else:
            line.reader.feed(send.data)
            expect(line.reader.finish() is None, "something was sent that is no record")

    def _enter(self, key: KeyPair) -> _Line:
        self._peers += 1
        line = self.lines[Peer(self._peers)] = _Line(Peer(self._peers), self.profile, key)
        return line

    def check_limits(self, steps: int) -> None:
        """No table outgrows what was put in."""
        for name, size in self.machine.sizes().items():
            expect(size >= 0, f"{name} is negative")
            expect(size <= 64 * (steps + 4) or name.endswith("_bytes"), f"{name} has {size} after {steps} steps")
        expect(len(self.machine.connected()) <= 2, "more connections than peers")

    def leave(self) -> None:
        """Let everybody go; nothing may be left."""
        self.machine.retire()
        for peer in list(self.lines):
            if self.lines.pop(peer, None) is not None:
                self.machine.disconnect(peer, self.now)
                self.settle()
        self.save()
        self.now = Instant(self.now + 10 * MICROSECONDS_PER_SECOND)
        self.settle()
        self.save()
        left = {name: size for name, size in self.machine.sizes().items() if size and name in _ENDS_EMPTY}
        expect(not left, f"left behind: {left}")
        expect(not self._told, "somebody never left")
        expect(self.machine.settled(), "something is left that nobody waits for")


class BspMachineTarget:
    """Whatever is said to a machine ends in a documented way, and nothing of a connection is left in the end."""

    name = "bsp_machine"

    def make(self, rng: random.Random) -> bytes:
        """Return a conversation, bent."""
        profile = rng.choice((SEED, SEED, BRIAR))
        out = bytes([profile is BRIAR])
        weights = (5, 12, 3, 1, 2, 1, 2, 4, 2)
        for _ in range(rng.randrange(2, _STEPS_MAX)):
            (what,) = rng.choices(range(9), weights)
            said = self._said(rng, profile) if what == _SAY else bytes([rng.randrange(256)])
            out += bytes([what, rng.randrange(8)]) + len(said).to_bytes(2, "big") + said
        return out

    def _said(self, rng: random.Random, profile: Profile) -> bytes:
        group = profile.group(b"org.example" if profile is BRIAR else b"c" * 32, b"", "deps_v1").group_id
        bodies = [deps_v1_body([], b"%d" % number) for number in range(4)]
        known = [profile.message_id(group, number, body) for number, body in enumerate(bodies)]
        said = b""
        for _ in range(rng.choice((1, 1, 2, 4))):
            ids = tuple(rng.choices(known, k=rng.choice((1, 2, 5))))
            number = rng.randrange(4)
            message = messages.Message(group, number, bodies[number])
            child = messages.Message(group, 9, deps_v1_body(rng.sample(known, 2), b"child"))
            lists = (messages.Ack(ids), messages.Request(ids), messages.Offer(ids))
            said += encode(profile, rng.choice((*lists, message, message, child)))
        if rng.random() < 0.25:
            at = rng.randrange(min(len(said), 50))
            said = said[:at] + bytes([said[at] ^ 1 << rng.randrange(8)]) + said[at + 1 :]
        return said[: rng.randrange(len(said))] if rng.random() < 0.1 else said

    def run(self, data: bytes) -> str:
        """Act it out; the outcome is how the last connection that the machine closed ended."""
        world = _World(BRIAR if data[:1] == b"\x01" else SEED)
        for steps, (what, where, said) in enumerate(self._steps(data[1:]), 1):
            self._act(world, what, where, said)
            world.check_limits(steps)
        world.leave()
        return f"closed:{world.ends[-1].value}" if world.ends else "open"

    def _steps(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        at = 0
        while at + 4 <= len(data):
            size = min(int.from_bytes(data[at + 2 : at + 4], "big"), _SAID_MAX)
            yield data[at] % 9, data[at + 1], data[at + 4 : at + 4 + size]
            at += 4 + size

    def _act(self, world: _World, what: int, where: int, said: bytes) -> None:
        number = said[0] if said else 0
        lines = list(world.lines.values())
        if what == _COME:
            world.come(_HOWS[number % len(_HOWS)])
        elif what == _PASS:
            world.answer_dials(stands=bool(where & 1))
            world.now = Instant(world.now + _WAITS_US[number % len(_WAITS_US)])
        elif what == _SAVE:
            world.save()
        elif what == _ADD:
            world.device.add(world.group.group_id, number, deps_v1_body([], b"ours"), world.now)
        elif lines:
            self._touch(world, lines[where % len(lines)], what, said)
        world.settle()

    def _touch(self, world: _World, line: _Line, what: int, said: bytes) -> None:
        """Let something happen to one connection."""
        if what == _SAY:
            world.send(line, said)
        elif what == _STALL:
            world.machine.congested(line.peer, world.now)
        elif what == _DRAIN:
            line.owed = False
            world.machine.drained(line.peer, world.now)
        elif what == _HALF:
            world.machine.half_closed(line.peer, world.now)
        else:
            del world.lines[line.peer]
            world.machine.disconnect(line.peer, world.now)
