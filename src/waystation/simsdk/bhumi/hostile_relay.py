"""A relay that draws from a seed what it does to each frame: every power of a relay, in any order.

It passes a frame on, drops it, delays it, sends it again, changes it, answers it itself, or breaks the connection. It
keeps all that it has seen, and makes requests and answers of it, of its own keys and of nothing, in every dialect.
``turn_honest`` ends this as a restart of an honest relay would.
"""

import asyncio
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from waystation.core.ids import PublicKey
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import CommandAnswer, encode_command_answer
from waystation.protocols.bhumi.payload.envelope import HINT_BYTES, hint_of
from waystation.protocols.bhumi.payload.suites import suite_hint_of
from waystation.sdk.bhumi.dialect import Dialect
from waystation.simsdk.bhumi.forger import Forger
from waystation.simsdk.bhumi.hosted_relay import HostedRelay, frame_of
from waystation.transport.pipe import Pipe

__all__ = ["OWN_NUMBERS", "HostileRelay"]

OWN_NUMBERS: Final = 1 << 31
"""Where the numbers of its own deliveries begin, so that the machine never sees their ACKs."""
DELAY_S: Final = 0.15
"""For how long it keeps a frame at most."""
_STATUSES: Final = (0, 0, 0, 1, 1, 2, 2, 3, 4, 9)
_CARRIED: Final = frozenset({FrameType.SEND, FrameType.DELIVER, FrameType.ACK, FrameType.SEND_RESULT})

_IN_PLAIN: Final = encode_command_answer(CommandAnswer(ok=True, data="done"))
"""What the original's plaintext takes for an answer."""

_Step = Callable[[int, bytes], None]
_Trick = tuple[_Step, ...]
"""What is done with a frame of a connection, one after the other."""


class HostileRelay(HostedRelay):
    """The real machine, all of whose traffic passes through a hand that draws."""

    def __init__(self, seed: object, note: Callable[[str], None] = lambda _: None) -> None:
        """Begin; ``note`` gets a line for each frame that comes and leaves."""
        super().__init__()
        self._note = note
        self._rng = random.Random(f"relay {seed}")  # noqa: S311 - a simulation must be repeatable
        self._calm = self._rng.uniform(0.3, 0.95)
        """Chance that a frame of a request or answer is left alone."""
        self.is_patient = self._rng.random() < 1 / 2
        """Whether it waits for the first pairing of each, before it begins."""
        self._forger = Forger()
        self._seen: list[messages.Send] = []
        """Every SEND that came, as it came."""
        self._own: dict[int, Callable[[bytes], None]] = {}
        """Who wants the answer to a delivery of its own, by number."""
        self._numbers_used = OWN_NUMBERS
        self._acks = [b""]
        self._timers: dict[asyncio.TimerHandle, None] = {}
        self._said: dict[int, bytes] = {}
        """Who each connection says it is."""
        self._stale: set[int] = set()
        """Connections of before it turned honest."""
        self._is_honest = False
        self.participants: list[PublicKey] = []
        """Identities that it may name, however it has learnt them."""
        self.tricks_count = 0
        """What it did other than pass a frame on."""

    def turn_honest(self) -> None:
        """Be an honest relay that has just restarted: whoever was connected dials again."""
        self._is_honest = True
        self._end_timers()
        self._stale = set(self.pipes)
        self._machine = self._new_machine()
        for peer in sorted(self._stale):
            self.cut(peer)

    async def has_again(self, identities: set[PublicKey]) -> None:
        """Wait until all of these have said who they are since the relay turned honest."""
        while {
            said for peer, said in self._said.items() if peer in self.pipes and peer not in self._stale
        } < identities:
            self._has_news.clear()
            await self._has_news.wait()

    def stop(self) -> None:
        """Cut everybody, and do nothing any more."""
        super().stop()
        self._end_timers()

    def lost(self, pipe: Pipe, error: Exception | None) -> None:
        """Note the end of a connection; the machine of now knows nothing of stale ones."""
        if pipe.peer in self._stale:
            self.pipes.pop(pipe.peer, None)
            del self._buffers[pipe.peer]
        else:
            super().lost(pipe, error)

    # What comes

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Draw what becomes of each frame."""
        if pipe.peer not in self._stale:
            super().received(pipe, data)

    def _take(self, peer: int, frame_type: int, payload: bytes) -> None:
        self._note(f"in {peer} {_shown(frame_type, payload)}")
        if frame_type == FrameType.I_AM:
            self._said[peer] = payload[:32]
        elif frame_type == FrameType.SEND:
            self._seen.append(wire.decode_send(payload))
        elif frame_type == FrameType.ACK:
            ack = wire.decode_ack(payload)
            self._acks.append(ack.payload)
            taken = self._own.pop(ack.message_id, None)
            if taken is not None:
                taken(ack.payload)
                return
        frame = frame_of(frame_type, payload)
        if self._leaves_alone(frame_type):
            self._pass_in(peer, frame)
        else:
            tricks = self._tricks_with_any()
            if frame_type == FrameType.SEND:
                tricks += self._tricks_with_send(payload)
            elif frame_type == FrameType.ACK:
                tricks += self._tricks_with_ack(payload)
            self._play(tricks, peer, frame)
        if not self._leaves_alone(frame_type):
            self._mischief()

    def _leaves_alone(self, frame_type: int) -> bool:
        if self._is_honest or self.is_patient:
            return True
        calm = self._calm if frame_type in _CARRIED else (self._calm + 3) / 4  # who never gets in is never deceived
        return self._rng.random() < calm

    def _play(self, tricks: Sequence[_Trick], peer: int, frame: bytes) -> None:
        self.tricks_count += 1
        number = self._rng.randrange(len(tricks))
        self._note(f"trick {number} of {len(tricks)} with {peer}")
        for step in tricks[number]:
            step(peer, frame)

    def _pass_in(self, peer: int, frame: bytes) -> None:
        if peer not in self._stale:
            super()._pass_in(peer, frame)

    def _pass_in_and_pump(self, peer: int, frame: bytes) -> None:
        self._pass_in(peer, frame)
        self._pump()

    def _tricks_with_any(self) -> list[_Trick]:
        passes = self._pass_in
        return [(), (self._pass_in_later,), (passes, self._pass_in_later), (passes, passes), (self._cut,)]

    def _tricks_with_send(self, payload: bytes) -> list[_Trick]:
        send = wire.decode_send(payload)
        other = self._rng.choice(self._seen)
        changed = [
            replace(send, payload=self._forged_request(send.recipient, send.preimage)),
            replace(send, payload=self._adapted(send.preimage)),
            replace(send, preimage=other.preimage),
            replace(send, recipient=other.recipient),
        ]
        takes_over: _Step = partial(self._take_over, send)
        answers: _Step = lambda peer, _: self._answer(peer, send)  # noqa: E731 - a step among others
        return [
            *[(takes_over,), (takes_over,), (answers,), (answers,), (self._pass_in, answers)],
            *[(self._instead(each),) for each in changed],
            (self._pass_in, self._cut_later),
        ]

    def _tricks_with_ack(self, payload: bytes) -> list[_Trick]:
        ack = wire.decode_ack(payload)
        other = replace(ack, payload=self._rng.choice(self._acks))
        changed = [other, replace(ack, message_id=ack.message_id ^ 1)]
        return [*[(self._instead(each),) for each in changed], (self._pass_in, self._cut)]

    def _instead(self, message: messages.Message) -> _Step:
        return lambda peer, _: self._pass_in(peer, wire.encode(message))

    def _pass_in_later(self, peer: int, frame: bytes) -> None:
        self._later(self._pass_in_and_pump, peer, frame)

    def _cut_later(self, peer: int, frame: bytes) -> None:
        self._later(self._cut, peer, frame)

    # What leaves

    def _put(self, peer: int, frame_type: int, payload: bytes) -> None:
        frame = frame_of(frame_type, payload)
        if self._leaves_alone(frame_type):
            self._write(peer, frame)
            return
        changes: dict[int, Callable[[bytes], bytes]] = {
            FrameType.HELLO: self._odd_hello,
            FrameType.DELIVER: self._odd_deliver,
            FrameType.SEND_RESULT: self._odd_result,
            FrameType.OPTIONS: lambda _: wire.encode(messages.Options(messages.Feature(self._rng.getrandbits(8)))),
        }
        odd = changes[frame_type](payload) if frame_type in changes else frame
        self._play(self._tricks_out(odd), peer, frame)

    def _tricks_out(self, odd: bytes) -> list[_Trick]:
        writes, later = self._write, self._write_later
        writes_odd: _Step = lambda peer, _: self._write(peer, odd)  # noqa: E731 - a step among others
        return [
            *[(), (later,), (writes, later), (writes_odd, later), (writes, writes_odd)],
            *[(writes_odd,), (writes_odd,), (self._cut,)],
        ]

    def _write_later(self, peer: int, frame: bytes) -> None:
        self._later(self._write, peer, frame)

    def _write(self, peer: int, frame: bytes) -> None:
        if peer in self.pipes and peer not in self._stale:
            self._note(f"out {peer} {_shown(int.from_bytes(frame[:2], 'big'), frame[6:])}")
            super()._write(peer, frame)

    def _odd_hello(self, payload: bytes) -> bytes:
        hello = wire.decode_hello(payload)
        size = self._rng.choice((0, 100, 1_000, 65_536))
        return wire.encode(self._rng.choice((replace(hello, max_payload_bytes=size), replace(hello, relay_nonce=7))))

    def _odd_deliver(self, payload: bytes) -> bytes:
        """Return a DELIVER of the same bytes with another number, or of the same number with other bytes."""
        number = int.from_bytes(payload[:4], "big")
        if self._rng.random() < 1 / 2:
            return frame_of(FrameType.DELIVER, (number + self._rng.randint(1, 3)).to_bytes(4, "big") + payload[4:])
        if not self._seen:
            return wire.encode(messages.Deliver(number, b"junk", self._rng.randbytes(32)))
        return wire.encode(messages.Deliver(number, *self._adverse(self._rng.choice(self._seen).recipient)))

    def _odd_result(self, payload: bytes) -> bytes:
        status = self._rng.choice((wire.decode_send_result(payload).status, *_STATUSES))
        return wire.encode(messages.SendResult(status, self._made_up_answer()))

    # What it makes

    def _take_over(self, send: messages.Send, peer: int, frame: bytes) -> None:
        """Deliver a request without the machine, maybe in several copies, and say to its sender what it likes."""

        def taken(answer: bytes) -> None:
            if self._rng.random() < 1 / 2:
                self._write(peer, wire.encode(messages.SendResult(0, answer)))

        for _ in range(self._rng.randint(1, 3)):
            self._deliver(send.recipient, send.preimage, send.payload, taken)
        draw = self._rng.random()
        if draw < 1 / 3:
            self._answer(peer, send)
        elif draw < 1 / 2:
            self._pass_in_later(peer, frame)

    def _answer(self, peer: int, send: messages.Send) -> None:
        """Give a sender a result that the device has not given."""
        status = self._rng.choice(_STATUSES)
        payload = self._made_up_answer(send) if status == 0 or self._rng.random() < 1 / 4 else b""
        self._write(peer, wire.encode(messages.SendResult(status, payload)))

    def _made_up_answer(self, send: messages.Send | None = None) -> bytes:
        send = send or (self._rng.choice(self._seen) if self._seen else None)
        dialect = self._rng.choice(list(Dialect))
        made = [self._rng.choice(self._acks), self._rng.randbytes(self._rng.randint(0, 120))]
        if send is not None and self.participants:
            sender = self._rng.choice(self.participants)
            content = self._rng.choice((b"done", _IN_PLAIN))
            made += [
                self._forger.answer(dialect, sender, send, content),
                self._forger.completion(dialect, sender, send),
            ]
            made.append(send.payload)
        return self._rng.choice(made)

    def _mischief(self) -> None:
        """Put something before a device that nobody has sent to it now."""
        if not self._seen:
            return
        known = self._rng.choice((self._seen[-1], self._rng.choice(self._seen)))
        recipient = known.recipient if self._rng.random() < 2 / 3 else self._rng.choice(self.participants)
        for _ in range(self._rng.choice((1, 1, 2, 20))):
            payload, preimage = self._adverse(recipient)
            self._deliver(recipient, preimage, payload, lambda _: None)

    def _adverse(self, recipient: PublicKey) -> tuple[bytes, bytes]:
        """Return a payload that its preimage's holder has not sent at this moment, and the preimage."""
        draw, preimage = self._rng.random(), self._rng.choice((self._seen[-1], self._rng.choice(self._seen))).preimage
        if draw < 1 / 4:
            old = self._rng.choice(self._seen)
            return old.payload, old.preimage
        if draw < 1 / 2:
            return self._adapted(preimage), preimage
        return self._forged_request(recipient, preimage), preimage

    def _forged_request(self, recipient: PublicKey, preimage: bytes) -> bytes:
        dialect = self._rng.choice(list(Dialect))
        if self._rng.random() < 1 / 3:
            sender = self._rng.choice([None, *self.participants])
            return self._forger.handshake(dialect, recipient, preimage, sender)
        return self._forger.request(dialect, recipient, preimage)

    def _adapted(self, preimage: bytes) -> bytes:
        """Return the bytes of some request under the hint of this preimage, or with one bit changed."""
        old = bytearray(self._rng.choice(self._seen).payload)
        if self._rng.random() < 1 / 3 and old:
            old[self._rng.randrange(len(old))] ^= 1 << self._rng.randrange(8)
        elif len(old) > HINT_BYTES:
            old[:HINT_BYTES] = self._rng.choice((hint_of, suite_hint_of))(preimage)
        return bytes(old)

    def _deliver(self, recipient: bytes, preimage: bytes, payload: bytes, taken: Callable[[bytes], None]) -> None:
        """Put a request before a device; ``taken`` gets its answer."""
        said = [peer for peer, said in self._said.items() if said == recipient and peer in self.pipes]
        if said:
            self._numbers_used += 1
            self._own[self._numbers_used] = taken
            named = preimage if self._rng.random() < 3 / 4 else None
            self._write(said[-1], wire.encode(messages.Deliver(self._numbers_used, payload, named)))

    def _later(self, step: _Step, peer: int, frame: bytes) -> None:
        delay_s = self._rng.uniform(0, DELAY_S)
        self._timers[asyncio.get_running_loop().call_later(delay_s, self._run, step, peer, frame)] = None

    def _run(self, step: _Step, peer: int, frame: bytes) -> None:
        if not self._is_honest:
            step(peer, frame)

    def _end_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _cut(self, peer: int, _frame: bytes = b"") -> None:
        """Break a connection that may have ended."""
        if peer in self.pipes:
            self.cut(peer)


def _shown(frame_type: int, payload: bytes) -> str:
    """Return a frame for the trace."""
    return f"{frame_type:#x} {payload[:8].hex() or '-'}..{len(payload)}/{zlib.crc32(payload):08x}"
