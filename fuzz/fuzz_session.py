"""Target: a whole relay with four clients, one of whom may be anybody.

An input is a script; any bytes are one. Each step is one byte, kind in its upper and client in its lower half: data
(u16 length, bytes), time (u16, tens of milliseconds), honest answers, congestion, drain, end, new connection.
"""

import random
from typing import Final

from fuzz.corpus import CLIENT_FRAMES, KEYS, i_am
from fuzz.mutate import cut, mutate_frames
from fuzz.target import expect
from waystation.core.effects import Close, Hold, Peer, Send
from waystation.core.instant import Instant
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings

CLIENTS: Final = 4
MAX_PAYLOAD: Final = 1_024
FRAME_OUT_MAX: Final = 6 + 40 + MAX_PAYLOAD  # the largest frame a relay says
EFFECTS_PER_FRAME: Final = 12  # a frame causes an answer, a hold, a close and a handful of facts
DATA, TIME, ANSWER, CONGEST, DRAIN, END, CONNECT = range(7)
_SEED: Final = 99
_SETTINGS: Final = BhumiSettings(max_payload_bytes=MAX_PAYLOAD)


def _nonces() -> list[int]:
    rng = random.Random(_SEED)
    return [rng.getrandbits(32) for _ in range(CLIENTS)]


_NONCES: Final = _nonces()


class SessionTarget:
    """Makes scripts and plays them."""

    name = "session"

    def make(self, rng: random.Random) -> bytes:
        """Return a script in which at least the beginning makes sense."""
        script = bytearray()
        for client in range(rng.randrange(1, CLIENTS + 1)):
            opening = [CLIENT_FRAMES[-3]] if rng.random() < 0.3 else []
            if client < len(KEYS) and rng.random() < 0.7:
                opening.append(i_am(KEYS[client % 2], _NONCES[client], carried=rng.randrange(3)))
            opening += rng.choices(CLIENT_FRAMES, k=rng.randrange(2))
            script += _data(client, b"".join(opening))
        for _ in range(rng.randrange(1, 12)):
            client = rng.randrange(CLIENTS)
            kind = rng.choice((DATA, DATA, DATA, DATA, TIME, ANSWER, ANSWER, CONGEST, DRAIN, END, CONNECT))
            if kind == DATA:
                frames = [rng.choice(CLIENT_FRAMES) for _ in range(rng.choice((1, 2, 4, 20)))]
                stream = b"".join(mutate_frames(rng, frames, CLIENT_FRAMES))[:3_000]
                at = rng.randrange(len(stream) + 1)
                # Byte by byte only where it is short: each piece is a step with all its checks.
                for piece in cut(rng, stream) if len(stream) < 150 else (stream[:at], stream[at:]):
                    script += _data(client, piece)
            else:
                script.append(kind << 4 | client)
                if kind == TIME:
                    script += rng.choice((1, 500, 1_001, 3_001, 12_001, 31_000)).to_bytes(2, "big")
        return bytes(script)

    def run(self, data: bytes) -> str:
        """Play a script to its end, and then everybody's end."""
        return _Play().play(data)


def _data(client: int, piece: bytes) -> bytes:
    return bytes([DATA << 4 | client]) + len(piece).to_bytes(2, "big") + piece


class _Play:
    """One relay, its clients, and the budget of what was said to it."""

    def __init__(self) -> None:
        self.relay = BhumiRelay(_SETTINGS, random.Random(_SEED))
        self.now = Instant(0)
        self.peers: list[Peer | None] = [None] * CLIENTS
        self.closed: set[Peer] = set()
        self.owed: dict[Peer, list[tuple[int, bytes]]] = {}
        self.buffers: dict[Peer, wire.FrameBuffer] = {}
        self.held: dict[Peer, bytes] = {}
        self.connected = 0
        self.bytes_in = 0
        self.steps = 0
        self.bytes_out = 0
        self.effects = 0
        self.outcome = "accepted"
        for client in range(CLIENTS):
            self._connect(client)

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
        return self.outcome

    def _step(self, kind: int, client: int, argument: bytes) -> None:
        peer = self.peers[client]
        if kind == TIME:
            self._pass_us(int.from_bytes(argument, "big") * 10_000)
        elif kind == CONNECT and (peer is None or peer in self.closed):
            self._connect(client)
        elif peer is None or peer in self.closed:
            return
        elif kind == DATA:
            self._say(peer, argument)
        elif kind == ANSWER:
            for message_id, payload in self.owed.pop(peer, []):
                self._say(peer, wire.encode(messages.Ack(message_id, payload)))
                self._settle()
        elif kind == CONGEST:
            self.relay.congested(peer, self.now)
        elif kind == DRAIN:
            self.relay.drained(peer, self.now)
        elif kind == END:
            self.relay.disconnect(peer, self.now)
            self.closed.add(peer)

    def _connect(self, client: int) -> None:
        self.connected += 1
        peer = self.peers[client] = Peer(self.connected)
        self.buffers[peer] = wire.FrameBuffer(wire.client_frame_limits(MAX_PAYLOAD))
        self.relay.connect(peer, self.now)
        self._settle()

    def _say(self, peer: Peer, data: bytes) -> None:
        """Let bytes arrive, or wait unread while the relay holds the connection, as a server would."""
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
                self.effects += 1
                if isinstance(effect, Send):
                    self._sent(effect)
                elif isinstance(effect, Close):
                    expect(effect.reason in Refusal, "closed for no documented reason")
                    self.closed.add(effect.peer)
                    self.outcome = f"closed:{effect.reason.value}"
                elif isinstance(effect, Hold):
                    expect(effect.peer not in self.closed, "a closed peer is held")
                    self._hold(effect)

    def _hold(self, effect: Hold) -> None:
        expect(effect.held == (effect.peer not in self.held), "held twice, or let go twice")
        if effect.held:
            self.held[effect.peer] = b""
        else:
            self._say(effect.peer, self.held.pop(effect.peer))

    def _sent(self, effect: Send) -> None:
        expect(effect.peer not in self.closed, "something was sent behind a close")
        self.bytes_out += len(effect.data)
        buffer = self.buffers[effect.peer]
        buffer.feed(effect.data)
        frame = buffer.next_frame()
        expect(frame is not None and not buffer.waiting, "a Send is not one whole frame")
        if frame is not None and frame[0] == messages.FrameType.DELIVER:
            message_id = int.from_bytes(frame[1][:4], "big")
            self.owed.setdefault(effect.peer, []).append((message_id, b"reply"))

    def _check(self) -> None:
        frames = self.bytes_in // 6 + self.steps + self.connected
        expect(self.effects <= EFFECTS_PER_FRAME * frames, f"{self.effects} effects for {frames} frames")
        expect(self.bytes_out <= FRAME_OUT_MAX * frames, f"{self.bytes_out} bytes out for {frames} frames")
        sizes = self.relay.sizes()
        expect(sizes["connections"] == self.connected - len(self.closed), "connections are lost or kept")
        expect(sizes["connections"] <= CLIENTS, "more connections than clients")
        expect(sizes["identities"] <= len(KEYS), "more identities than keys")
        expect(sizes["commits"] <= self.bytes_in // 32, "commits that nobody registered")
        expect(sizes["exchanges"] + sizes["late_acks"] <= self.bytes_in // 68 + 1, "exchanges that nobody asked for")
        expect(sizes["cached_bytes"] <= self.bytes_in, "answers that nobody gave")

    def _finish(self) -> None:
        """Let everybody go and time pass: nothing may stay."""
        for peer in self.peers:
            if peer is not None and peer not in self.closed:
                self.relay.disconnect(peer, self.now)
                self.closed.add(peer)
                self._settle()
        self._pass_us(302_000_000)
        expect(not any(self.relay.sizes().values()), f"left behind: {self.relay.sizes()}")
        expect(self.relay.deadline() is None, "a deadline with nothing to wait for")
