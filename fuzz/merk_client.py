"""Target: a MERK client, with a relay that may say anything.

An input is what the relay says: its first byte chooses what the user does between the frames, the rest is frames, each
behind two bytes of length. They are real ones in an honest or a strange order, bent or not.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

from fuzz.target import expect
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.merk import contents, messages, sealing, wire
from waystation.protocols.merk.client import HOSTILE_FIRST_BYTES, MerkClient
from waystation.protocols.merk.client_events import FrameOutcome, KeyTold, KeyUnknownTold, MessageArrived, Ready
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import MessageType, Role
from waystation.protocols.merk.refusals import Refusal

__all__ = ["MerkClientTarget"]

_US: Final = Keys.from_seeds(b"\x01" * 32, b"\x02" * 32)
_FRIEND: Final = Keys.from_seeds(b"\x03" * 32, b"\x04" * 32)
_RELAY: Final = KeyPair.from_seed(b"r" * 32)
_PEER: Final = Peer(1)
_STEP_US: Final = 1_500_000
_FRAMES_MAX: Final = 14
_SENT: Final = sealing.data_frame(_US.signing, _FRIEND.signing.public, b"ours", header_signature=True)


def _client(rng: random.Random) -> MerkClient:
    return MerkClient(
        _US,
        random.Random(1),
        extensions=rng.random() < 0.8,
        salvage=rng.random() < 0.3,
        pinned_server=_RELAY.public if rng.random() < 0.3 else None,
    )


def _opening() -> list[bytes]:
    """What an honest relay of ours says first; the client's nonce is the first that its generator gives."""
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


class _Watch:
    """What the client has said and told so far."""

    def __init__(self) -> None:
        self.signed = 0
        self.closed: Refusal | None = None
        self.told: Counter[str] = Counter()
        self.outcomes = 0
        self.keys_told = 0

    def look(self, client: MerkClient) -> None:
        """Check what has come out since the last look."""
        for effect in client.take():
            expect(self.closed is None, "something happens behind a close")
            if isinstance(effect, Close):
                expect(isinstance(effect.reason, Refusal), "closed for no documented reason")
                self.closed = Refusal(effect.reason)
            else:
                expect(isinstance(effect, Send), f"a client wants {effect!r}")
                self._look_at(effect)
        for event in client.take_events():
            expect(not self.told["Ended"], "something is told behind the end")
            self.told[type(event).__name__] += 1
            if isinstance(event, Ready):
                expect(event.server == _RELAY.public or not event.authenticated, "somebody else was authenticated")
                expect(self.told["Ready"] == 1 or event.authenticated, "Ready came again without a proof")
            elif isinstance(event, KeyTold):
                expect(wire.is_advert_valid(event.advert), "a forged key was told")
            elif isinstance(event, MessageArrived):
                expect(event.opened.sender == _FRIEND.signing.public or not _is_proved(event), "a message was forged")
            self.outcomes += isinstance(event, FrameOutcome)
            self.keys_told += isinstance(event, KeyTold | KeyUnknownTold)
        expect(self.told["Ready"] <= 2 and self.told["Ended"] <= 1, "Ready or Ended came too often")

    def _look_at(self, effect: object) -> None:
        assert isinstance(effect, Send)
        frame = wire.decode_frame(effect.data)
        if frame.kind == MessageType.HANDSHAKE:
            self.signed += 1
            expect(self.signed == 1, "a second challenge was signed")
            expect(frame.payload[0] not in HOSTILE_FIRST_BYTES, "a challenge that reads as content was signed")


def _is_proved(event: MessageArrived) -> bool:
    return event.opened.auth is not sealing.Auth.NONE


class MerkClientTarget:
    """A client believes nothing, raises nothing, signs one challenge, and tells one outcome of each frame."""

    name = "merk_client"

    def make(self, rng: random.Random) -> bytes:
        """Return a relay's side of a conversation, bent."""
        frames = [*_OPENING] if rng.random() < 0.8 else []
        frames += [rng.choice((*_REST, *_REST, *_OPENING)) for _ in range(rng.randrange(_FRAMES_MAX))]
        if rng.random() < 0.15:
            rng.shuffle(frames)
        out = bytes([rng.randrange(256)])
        for frame in frames:
            bent = self._bend(rng, frame) if rng.random() < 0.12 else frame
            out += len(bent).to_bytes(2, "big") + bent
        return out

    def _bend(self, rng: random.Random, frame: bytes) -> bytes:
        at = rng.randrange(len(frame))
        if rng.random() < 0.2:
            return frame[:at]
        return frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]

    def run(self, data: bytes) -> str:
        """Let the relay speak while the user sends and asks."""
        rng = random.Random(data[0] if data else 0)
        client, watch, now = _client(rng), _Watch(), Instant(0)
        client.connect(_PEER, now)
        sent, asked = 0, False
        for frame in self._frames(data):
            client.receive(_PEER, frame, now)
            watch.look(client)
            if watch.told["Ended"]:
                break
            if rng.random() < 0.3:
                client.send_frame(_SENT, now)
                sent += 1
            if rng.random() < 0.2:
                client.ask_servers(now)
                if not asked:
                    client.ask_key(_FRIEND.signing.public, now)
                asked = True
            if rng.random() < 0.2:
                client.drained(_PEER, now)
                now = Instant(now + _STEP_US)
                client.wake(now)
            watch.look(client)
        client.disconnect(_PEER, now)
        watch.look(client)
        expect(watch.told["Ended"] == 1, "no end was told")
        expect(watch.outcomes == sent, f"{watch.outcomes} outcomes of {sent} frames")
        expect(watch.keys_told == asked, "a key was told twice, or never")
        expect(client.deadline() is None, "a deadline is left")
        return f"closed:{watch.closed.value}" if watch.closed else ("ready" if watch.told["Ready"] else "open")

    def _frames(self, data: bytes) -> Iterator[bytes]:
        at = 1
        while at + 2 <= len(data):
            size = int.from_bytes(data[at : at + 2], "big")
            yield data[at + 2 : at + 2 + size]
            at += 2 + size
