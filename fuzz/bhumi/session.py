"""Fuzz target: a whole Bhumi relay with four clients, any of which may be hostile; each send is one whole frame."""

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from fuzz.conversation import FACTS, Connection, Conversation, Do, Step
from fuzz.corpus import CLIENT_FRAMES, KEYS, i_am
from fuzz.mutate import cut, mutate_frames
from fuzz.target import expect
from waystation.core.effects import Close, Dial, Hold, Peer, Send
from waystation.core.instant import Instant
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings

ANSWER: Final = len(Do)
CLIENTS: Final = 4
_PAYLOAD_BYTES_MAX: Final = 1_024
_FRAME_OUT_BYTES_MAX: Final = 6 + 40 + _PAYLOAD_BYTES_MAX  # the largest frame that a relay sends
_SEED: Final = 99
_SETTINGS: Final = BhumiSettings(max_payload_bytes=_PAYLOAD_BYTES_MAX)


def nonces_of(relay: BhumiRelay) -> list[int]:
    """Return the nonces that a relay gives to its first connections."""
    found = []
    for number in range(1, CLIENTS + 1):
        relay.connect(Peer(number), Instant(0))
        found.append(int.from_bytes(relay.take()[0].data[7:11], "big"))  # type: ignore[union-attr]
    return found


_NONCES: Final = nonces_of(BhumiRelay(_SETTINGS, random.Random(_SEED)))


class RelayConversation(Conversation[BhumiRelay]):
    """One relay, its clients in the first slots, and in those after them what it has dialled."""

    reasons = Refusal
    effects = (*FACTS, Send, Close, Hold, Dial)
    slots_count: ClassVar[int] = CLIENTS
    payload_bytes_max: ClassVar[int]
    lasts_us: ClassVar[int]
    """For how long a relay keeps anything of its clients."""
    kept: ClassVar[Sequence[str]] = ("remembered_recipients",)
    """Tables that hold something for ever."""
    turns: ClassVar[Sequence[int]]
    """Steps after the beginning, of which one is chosen."""
    stream_bytes_max: ClassVar[int]
    """Longest stream of one step."""

    def __init__(self, relay: BhumiRelay) -> None:
        super().__init__(relay)
        self.slots: list[Connection | None] = [None] * self.slots_count

    @classmethod
    def draw_steps(cls, rng: random.Random, choice: int) -> Iterator[Step]:  # noqa: ARG003 - its base has it
        """Yield what most clients begin with, as they should, and then anything at any slot."""
        yield from cls.begin(rng)
        for _ in range(rng.randrange(1, cls.steps_max)):
            slot, kind = rng.randrange(cls.slots_count), rng.choice(cls.turns)
            if kind != Do.SEND:
                yield Step(kind, slot, bytes([rng.randrange(len(cls.waits_us))]) if kind == Do.PASS else b"")
                continue
            frames, corpus = cls.draw(rng, slot)
            frames = mutate_frames(rng, frames, corpus) if rng.random() < 0.7 else frames
            stream = b"".join(frames)[: cls.stream_bytes_max]
            at = rng.randrange(len(stream) + 1)
            # Byte by byte only where it is short: each piece is a step with all its checks.
            for piece in cut(rng, stream) if len(stream) < 150 else (stream[:at], stream[at:]):
                yield Step(Do.SEND, slot, piece)

    @classmethod
    @abstractmethod
    def begin(cls, rng: random.Random) -> Iterator[Step]:
        """Yield steps that make sense."""

    @classmethod
    @abstractmethod
    def draw(cls, rng: random.Random, slot: int) -> tuple[list[bytes], Sequence[bytes]]:
        """Return frames for a slot, and what they may be mutated with."""

    def act(self, step: Step) -> None:
        """Let a client connect, or do what every vocabulary has."""
        if step.kind != Do.CONNECT:
            super().act(step)
        elif step.place % self.slots_count < CLIENTS:
            self.connect(step.place % self.slots_count)

    def finish(self) -> str:
        """Let every connection end and time pass: nothing else may stay."""
        outcome = super().finish()
        self.machine.retire()
        self.pass_time(self.lasts_us)
        self.check_empty(self.kept)
        expect(self.machine.deadline() is None, "a deadline with nothing to wait for")
        return outcome

    def outcome(self) -> str:
        """Return how the relay closed its last connection."""
        return super().outcome() if self.ends else "accepted"

    def pick(self, place: int) -> Connection | None:
        """Return the connection in a slot, if it is open."""
        connection = self.slots[place % self.slots_count]
        return connection if connection is not None and connection.peer in self.open else None

    def connect(self, slot: int) -> None:
        """Open a connection in a slot that has none."""
        if self.pick(slot) is None:
            self.machine.connect(self.seat(slot, wire.client_frame_limits(self.payload_bytes_max)).peer, self.now)
            self.settle()

    def seat(self, slot: int, limits: dict[int, int]) -> Connection:
        """Put a new connection into a slot."""
        connection = self.slots[slot] = self.enter(reader=wire.FrameBuffer(limits))
        return connection

    def on_send(self, connection: Connection, data: bytes, *, receipt: bool) -> None:  # noqa: ARG002 - its base has it
        """Cut the frame out, and look at it."""
        connection.reader.feed(data)
        frame = connection.reader.next_frame()
        expect(frame is not None and not connection.reader.waiting, "a Send is not one whole frame")
        self.on_frame(connection, *frame)

    def on_frame(self, connection: Connection, kind: int, payload: bytes) -> None:
        """Look at a frame that the relay sends."""


class BhumiRelayTalk(RelayConversation):
    """Clients that identify themselves, most of them, and then send anything."""

    name = "session"
    turns = (*(Do.SEND,) * 4, Do.PASS, ANSWER, ANSWER, Do.CONGEST, Do.DRAIN, Do.LEAVE, Do.CONNECT)
    steps_max = 12
    stream_bytes_max = 3_000
    payload_bytes_max = _PAYLOAD_BYTES_MAX
    lasts_us = 302_000_000
    kinds = ANSWER + 1
    waits_us = (10_000, 5_000_000, 10_010_000, 30_010_000, 120_010_000, 310_000_000)

    def __init__(self, _choice: int) -> None:
        super().__init__(BhumiRelay(_SETTINGS, random.Random(_SEED)))
        for slot in range(CLIENTS):
            self.connect(slot)

    @classmethod
    def begin(cls, rng: random.Random) -> Iterator[Step]:
        """Yield what each client sends first."""
        for client in range(rng.randrange(1, CLIENTS + 1)):
            opening = [CLIENT_FRAMES[-3]] if rng.random() < 0.3 else []
            if client < len(KEYS) and rng.random() < 0.7:
                opening.append(i_am(KEYS[client % 2], _NONCES[client], carried=rng.randrange(3)))
            opening += rng.choices(CLIENT_FRAMES, k=rng.randrange(2))
            yield Step(Do.SEND, client, b"".join(opening))

    @classmethod
    def draw(cls, rng: random.Random, slot: int) -> tuple[list[bytes], Sequence[bytes]]:  # noqa: ARG003 - its base has it
        """Return frames of clients."""
        return [rng.choice(CLIENT_FRAMES) for _ in range(rng.choice((1, 2, 4, 20)))], CLIENT_FRAMES

    def act(self, step: Step) -> None:
        """Answer what was delivered, or do what any client does."""
        connection = self.pick(step.place)
        if step.kind != ANSWER:
            super().act(step)
        elif connection is not None:
            delivered, connection.sent = connection.sent, []
            for message_id in delivered:
                answer = wire.encode(messages.Ack(int.from_bytes(message_id, "big"), b"reply"))
                self.receive(connection, answer)

    def on_frame(self, connection: Connection, kind: int, payload: bytes) -> None:
        """Remember what is delivered."""
        if kind == messages.FrameType.DELIVER:
            connection.sent.append(payload[:4])

    def check(self) -> None:
        """See that bytes and tables stay within what was put in."""
        super().check()
        frames = self.bytes_in // 6 + self.steps + self.connected
        expect(self.bytes_out <= _FRAME_OUT_BYTES_MAX * frames, f"{self.bytes_out} bytes out for {frames} frames")
        sizes = self.machine.sizes()
        expect(sizes["connections"] == len(self.open) <= CLIENTS, "connections are lost or kept")
        expect(sizes["identities"] <= len(KEYS), "more identities than keys")
        expect(sizes["commits"] <= self.bytes_in // 32, "commits that no client has registered")
        expect(sizes["exchanges"] + sizes["late_acks"] <= self.bytes_in // 68 + 1, "exchanges without a request")
        expect(sizes["cached_bytes"] <= self.bytes_in, "answers that no device gave")
