"""Target: a whole MERK relay with clients, nodes of ours and original relays, any of which may say anything.

An input is a conversation: steps of a byte for what happens, a byte for where, and bytes of what is said behind two
bytes of length. Frames are real ones, bent or not; handshakes are completed by the target, because no input can sign.
"""

import random
from collections.abc import Iterator
from typing import Final

from fuzz.target import expect
from waystation.core.effects import Close, Commit, Dial, Peer, Send, SendMany
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.merk import greeting, messages, wire
from waystation.protocols.merk.messages import MessageType, Role
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.store.memory import MemoryStore

__all__ = ["MerkRelayTarget"]

_KEYS: Final = [KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 6)]
_NODE: Final = KeyPair.from_seed(b"n" * 32)
_WALL_US: Final = 1_767_225_600 * MICROSECONDS_PER_SECOND
_SETTINGS: Final = MerkSettings(max_frame_bytes=1_024, peers=["ws://upstream.example"])
_WAITS_US: Final = (0, 1_000, 600_000, 2_000_000, 5_000_000, 61_000_000)
_STEPS_MAX: Final = 24
_SAID_MAX: Final = 1_400
_EFFECTS_PER_STEP: Final = 80
_LEFT: Final = ("addresses", "adverts", "places", "seen_forwards")
_COME, _SAY, _PASS, _STALL, _DRAIN, _LEAVE, _RUN = range(7)
_HOWS: Final = ("stranger", "client", "greeted", "peer", "door", "downstream")


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
        messages.Forward(1, b"i" * 16, keys[2], frame),
        wire.make_advert(_KEYS[0], b"a" * 32, 1),
        messages.KeyQuery(keys[1]),
        messages.KeyUnknown(keys[1]),
        messages.Gone(keys[1]),
    ]


_INFOS: Final = _infos()


class _Line:
    """What the target knows of one connection."""

    def __init__(self, peer: Peer, key: KeyPair) -> None:
        self.peer = peer
        self.key = key
        self.heard: list[bytes] = []
        self.nonce = b"q" * 32


class _World:
    """One relay under fire and its connections."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.relay = MerkRelay(_SETTINGS, _NODE, self.store, random.Random(1))
        self.now = Instant(1_000_000)
        self.relay.set_wall(self.now, _WALL_US)
        self.lines: dict[Peer, _Line] = {}
        self.ends: list[Refusal] = []
        self.dials: list[Dial] = []
        self._peers = 0
        self.settle()

    def come(self, how: str, key: KeyPair) -> None:
        """Let somebody connect and go as far as ``how`` says."""
        line = self._enter(key)
        if how in ("door", "downstream"):
            self.relay.connect_by(line.peer, "mesh", self.now, "192.0.2.1")
            self.settle()
            if how == "downstream":
                self.send(line, greeting.challenge_frame(b"\xff" * 32), greeting.confirm_frame(key.public))
            return
        self.relay.connect(line.peer, self.now, "192.0.2.2")
        self.settle()
        if how != "stranger" and line.heard:
            self.send(line, greeting.answer_frame(wire.decode_frame(line.heard[0]).payload, key))
        if how in ("greeted", "peer"):
            self._greet(line, Role.NODE if how == "peer" else Role.CLIENT)

    def _greet(self, line: _Line, role: Role) -> None:
        line.heard.clear()
        key = line.key.public
        self.send(line, wire.encode_info_frame(messages.Hello(15, role, key, line.nonce, ""), key))
        heard = map(wire.decode_info_frame, line.heard)
        theirs = next((info for info in heard if isinstance(info, messages.Hello)), None)
        if role is Role.NODE and theirs is not None:
            proof = wire.auth_message(key, _NODE.public, line.nonce, theirs.nonce, role, theirs.role)
            self.send(line, wire.encode_info_frame(messages.Auth(sign(line.key, proof)), key))

    def answer_dials(self, *, stands: bool) -> None:
        """Let what was dialled stand, and be an original relay, or fail."""
        dials, self.dials = self.dials, []
        for dial in dials:
            if stands:
                line = self._enter(_KEYS[4])
                self.relay.connect_upstream(line.peer, dial.name, self.now)
                self.send(line, greeting.challenge_frame(b"\xff" * 32), greeting.confirm_frame(line.key.public))
            else:
                self.relay.upstream_failed(dial.name, self.now)
        self.settle()

    def send(self, line: _Line, *frames: bytes) -> None:
        """Let somebody say something."""
        for frame in frames:
            self.relay.receive(line.peer, frame, self.now)
        self.settle()

    def settle(self) -> None:
        """Carry out effects until none is left, and check each."""
        for _ in range(_EFFECTS_PER_STEP):
            due = self.relay.deadline()
            if due is not None and due <= self.now:
                self.relay.wake(self.now)
            effects = self.relay.take()
            if not effects and (due is None or due > self.now):
                return
            for effect in effects:
                self._carry_out(effect)
        expect(holds=False, what="a relay that does not come to rest")

    def _carry_out(self, effect: object) -> None:
        if isinstance(effect, Send | SendMany):
            expect(effect.peer in self.lines, "something was sent to who is not there")
            for data in (effect.data,) if isinstance(effect, Send) else effect.messages:
                wire.decode_frame(data)
                self.lines[effect.peer].heard.append(data)
        elif isinstance(effect, Close):
            expect(self.lines.pop(effect.peer, None) is not None, "who is not there was closed")
            expect(isinstance(effect.reason, Refusal), "closed for no documented reason")
            expect(effect.status >= 1_000, "closed without a status")
            self.ends.append(Refusal(effect.reason))
        elif isinstance(effect, Commit):
            self.store.commit(effect.changes)
            self.relay.committed(effect.ticket, self.now)
        elif isinstance(effect, Dial):
            self.dials.append(effect)
        else:
            expect(hasattr(effect, "protocol"), f"a relay wants {effect!r}")

    def _enter(self, key: KeyPair) -> _Line:
        self._peers += 1
        line = self.lines[Peer(self._peers)] = _Line(Peer(self._peers), key)
        return line

    def check_limits(self, steps: int) -> None:
        """No table outgrows what was put in."""
        for name, size in self.relay.sizes().items():
            expect(size >= 0, f"{name} is negative")
            expect(size <= 64 * (steps + 4) or name.endswith("_bytes"), f"{name} has {size} after {steps} steps")

    def leave(self) -> None:
        """Let everybody go; nothing may be left."""
        self.relay.retire()
        for peer in list(self.lines):
            del self.lines[peer]
            self.relay.disconnect(peer, self.now)
            self.settle()
        left = {name: size for name, size in self.relay.sizes().items() if size and name not in _LEFT}
        expect(not left, f"left behind: {left}")
        expect(self.relay.settled(), "a frame is left without an outcome")


class MerkRelayTarget:
    """Whatever is said to a relay ends in a documented way, and nothing of it is left in the end."""

    name = "merk_relay"

    def make(self, rng: random.Random) -> bytes:
        """Return a conversation, bent."""
        out = b""
        for _ in range(rng.randrange(2, _STEPS_MAX)):
            what = rng.choice((_COME, _COME, _SAY, _SAY, _SAY, _SAY, _RUN, _PASS, _STALL, _DRAIN, _LEAVE))
            said = self._frame(rng) if what in (_SAY, _RUN) else bytes([rng.randrange(256)])
            out += bytes([what, rng.randrange(8)]) + len(said).to_bytes(2, "big") + said
        return out

    def _frame(self, rng: random.Random) -> bytes:
        sender = rng.choice(_KEYS).public
        if rng.random() < 0.6:
            frame = wire.encode_info_frame(rng.choice(_INFOS), sender)
        else:
            payload = rng.choice(_KEYS).public + rng.randbytes(rng.randrange(40) if rng.random() < 0.9 else 900)
            frame = wire.encode_frame(rng.choice((1, 2, 2, 2, 4, 5, 6)), payload, sender=sender)
        if rng.random() < 0.25:
            at = rng.randrange(len(frame))
            frame = frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]
        return frame[: rng.randrange(len(frame))] if rng.random() < 0.05 else frame

    def run(self, data: bytes) -> str:
        """Act it out; the outcome is how the last connection that the relay closed ended."""
        world = _World()
        for steps, (what, where, said) in enumerate(self._steps(data), 1):
            self._act(world, what, where, said)
            world.check_limits(steps)
        world.leave()
        return f"closed:{world.ends[-1].value}" if world.ends else "open"

    def _steps(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        at = 0
        while at + 4 <= len(data):
            size = min(int.from_bytes(data[at + 2 : at + 4], "big"), _SAID_MAX)
            yield data[at] % 7, data[at + 1], data[at + 4 : at + 4 + size]
            at += 4 + size

    def _act(self, world: _World, what: int, where: int, said: bytes) -> None:
        number = said[0] if said else 0
        lines = list(world.lines.values())
        if what == _COME:
            world.come(_HOWS[where % len(_HOWS)], _KEYS[number % len(_KEYS)])
        elif what == _PASS:
            world.answer_dials(stands=bool(where & 1))
            world.now = Instant(world.now + _WAITS_US[number % len(_WAITS_US)])
            world.settle()
        elif lines:
            line = lines[where % len(lines)]
            if what == _SAY:
                world.send(line, said)
            elif what == _RUN:
                world.relay.receive_many(line.peer, [said] * (2 + where), world.now)
            elif what == _STALL:
                world.relay.congested(line.peer, world.now)
            elif what == _DRAIN:
                world.relay.drained(line.peer, world.now)
            else:
                del world.lines[line.peer]
                world.relay.disconnect(line.peer, world.now)
            world.settle()
