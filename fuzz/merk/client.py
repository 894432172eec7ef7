"""Fuzz target: a MERK client with a relay that sends any frames in any order, mutated or not."""

import random
from collections import Counter
from typing import Any, Final

from fuzz.conversation import Connection, Dialogue, Step
from fuzz.mutate import flip_or_cut
from fuzz.target import expect
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.client.events import FrameOutcome, KeyFound, KeyNotFound, MessageArrived, Ready
from waystation.protocols.merk.client.machine import HOSTILE_FIRST_BYTES, MerkClient
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import MessageType, Role
from waystation.protocols.merk.payload import contents, sealing
from waystation.protocols.merk.refusals import Refusal

_US: Final = Keys.from_seeds(b"\x01" * 32, b"\x02" * 32)
_FRIEND: Final = Keys.from_seeds(b"\x03" * 32, b"\x04" * 32)
_RELAY: Final = KeyPair.from_seed(b"r" * 32)
_FRAMES_MAX: Final = 14
_SENT: Final = sealing.data_frame(_US.signing, _FRIEND.signing.public, b"ours", header_signature=True)


def _opening() -> list[bytes]:
    """What an honest relay of ours sends first; the client's nonce is the first that its generator gives."""
    ours, nonce = _US.signing.public, random.Random(1).randbytes(messages.NONCE_BYTES)
    hello = messages.Hello(15, Role.NODE, _RELAY.public, b"n" * 32, "")
    proof = wire.auth_message(_RELAY.public, ours, hello.nonce, nonce, Role.NODE, Role.CLIENT)
    return [
        wire.encode_frame(MessageType.HANDSHAKE, b"\xff" * 32),
        wire.encode_frame(MessageType.HANDSHAKE, messages.CONFIRMATION, sender=_RELAY.public),
        wire.encode_info_frame(hello, _RELAY.public),
        wire.encode_info_frame(messages.Auth(sign(_RELAY, proof)), _RELAY.public),
    ]


def _rest() -> list[bytes]:
    us, friend = _US.signing.public, _FRIEND.signing.public
    text = contents.Text("hello")
    infos: list[messages.Info] = [
        messages.Delivery(0, friend, wire.frame_hash(_SENT)),
        messages.Delivery(9, friend, wire.frame_hash(_SENT)),
        messages.Servers((messages.ServerEntry(friend, "ws://a.example"),)),
        messages.AddServer("ws://a.example"),
        wire.make_advert(_FRIEND.signing, _FRIEND.agreement_public, 1),
        messages.KeyUnknown(friend),
        messages.QueryClient(us),
        messages.Gone(us),
    ]
    return [
        *(wire.encode_info_frame(info, _RELAY.public) for info in infos),
        wire.encode_frame(MessageType.HANDSHAKE, b"\x01 I owe you a thousand pounds....."[:32]),
        sealing.data_frame(_FRIEND.signing, us, b"plain", header_signature=False),
        sealing.signed_frame(_FRIEND.signing, us, text),
        sealing.encrypted_frame(
            _FRIEND.signing, us, _US.agreement_public, text, ephemeral_secret=b"\x05" * 32, nonce=b"\x06" * 12
        ),
    ]


_OPENING: Final = _opening()
_REST: Final = _rest()


class MerkClientTalk(Dialogue[MerkClient]):
    """A client believes nothing, raises nothing, signs one challenge, and reports one outcome of each frame."""

    name = "merk_client"
    reasons = Refusal
    late_us = 1_500_000

    def __init__(self, choice: int) -> None:
        rng = random.Random(choice)
        extensions, recovers = rng.random() < 0.8, rng.random() < 0.3
        pinned = _RELAY.public if rng.random() < 0.3 else None
        client = MerkClient(_US, random.Random(1), extensions=extensions, salvage=recovers, pinned_server=pinned)
        super().__init__(client, choice)
        self.rng = rng
        self.signed = self.outcomes = self.keys_count = self.sent_count = 0
        self.asked = False
        self.events: Counter[str] = Counter()
        client.connect(self.connection.peer, self.now)
        self.settle()

    @classmethod
    def draw_frames(cls, rng: random.Random, choice: int) -> list[bytes]:  # noqa: ARG003 - its base has it
        """Return a relay's side of a conversation, mutated."""
        frames = [*_OPENING] if rng.random() < 0.8 else []
        frames += rng.choices((*_REST, *_REST, *_OPENING), k=rng.randrange(_FRAMES_MAX))
        if rng.random() < 0.15:
            rng.shuffle(frames)
        return [flip_or_cut(rng, frame) if rng.random() < 0.12 else frame for frame in frames]

    def on_send(self, connection: Connection, data: bytes, *, receipt: bool) -> None:  # noqa: ARG002 - its base has it
        frame = wire.decode_frame(data)
        if frame.kind == MessageType.HANDSHAKE:
            self.signed += 1
            expect(self.signed == 1, "a second challenge was signed")
            expect(frame.payload[0] not in HOSTILE_FIRST_BYTES, "a challenge that reads as content was signed")

    def on_event(self, event: Any) -> None:
        expect(not self.events["Ended"], "something is reported after the end")
        self.events[type(event).__name__] += 1
        if isinstance(event, Ready):
            expect(event.server == _RELAY.public or not event.authenticated, "another relay was authenticated")
            expect(self.events["Ready"] == 1 or event.authenticated, "Ready came again without a proof")
        elif isinstance(event, KeyFound):
            expect(wire.is_advert_valid(event.advert), "a forged key was reported")
        elif isinstance(event, MessageArrived):
            unproved = event.opened.auth is sealing.Auth.NONE
            expect(event.opened.sender == _FRIEND.signing.public or unproved, "a message was forged")
        self.outcomes += isinstance(event, FrameOutcome)
        self.keys_count += isinstance(event, KeyFound | KeyNotFound)
        expect(self.events["Ready"] <= 2 and self.events["Ended"] <= 1, "Ready or Ended came too often")

    def act(self, step: Step) -> None:
        if not self.events["Ended"]:
            super().act(step)

    def use(self) -> None:
        if self.events["Ended"]:
            return
        if self.rng.random() < 0.3:
            self.machine.send_frame(_SENT, self.now)
            self.sent_count += 1
        if self.rng.random() < 0.2:
            self.machine.ask_servers(self.now)
            if not self.asked:
                self.machine.ask_key(_FRIEND.signing.public, self.now)
            self.asked = True
        if self.rng.random() < 0.2:
            self.machine.drained(self.connection.peer, self.now)

    def finish(self) -> str:
        super().finish()
        expect(self.events["Ended"] == 1, "no end was reported")
        expect(self.outcomes == self.sent_count, f"{self.outcomes} outcomes of {self.sent_count} frames")
        expect(self.keys_count == self.asked, "a key was reported twice, or never")
        expect(self.machine.deadline() is None, "a deadline is left")
        return self.outcome() if self.ends else "ready" if self.events["Ready"] else "open"
