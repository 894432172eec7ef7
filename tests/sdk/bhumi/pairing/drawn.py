"""A relay that draws from a seed what it does to each frame: every power of a relay, in any order.

It passes a frame on, drops it, delays it, sends it again, changes it, answers it itself, or breaks the connection. It
keeps all that it has seen, and makes requests and answers of it, of its own keys and of nothing, in every dialect.
``turn_honest`` ends this as a restart of an honest relay would.
"""

import asyncio
import random
from dataclasses import replace

from tests.sdk.bhumi.pairing.hostile import HEADER, OWN_NUMBERS, Eve, frame_of
from tests.sdk.build import LoopbackRelay, _Relay
from waystation.core.effects import Close, Peer, Send
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.envelope import HINT_BYTES, hint_of
from waystation.protocols.bhumi.payload.suites import suite_hint_of
from waystation.protocols.bhumi.refusals import MalformedError
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sdk.bhumi import Dialect

DELAY_S = 0.15
STATUSES = (0, 0, 0, 1, 1, 2, 2, 3, 4, 9)
CARRIED = {FrameType.SEND, FrameType.DELIVER, FrameType.ACK, FrameType.SEND_RESULT}
SETTINGS = BhumiSettings(ack_timeout_ms=1_500)


class DrawnRelay(LoopbackRelay):
    """The real machine, all of whose traffic passes through a hand that draws."""

    def __init__(self, seed):
        super().__init__(SETTINGS)
        self._rng = random.Random(seed)
        self._calm = self._rng.uniform(0.3, 0.95)
        """Chance that a frame of a request or answer is left alone."""
        self.is_patient = self._rng.random() < 1 / 2
        """Whether it waits for the first pairing of each, before it begins."""
        self._eve = Eve()
        self.seen = []
        """Every SEND that came, as it came."""
        self._own = {}
        """Who wants the answer to a delivery of its own, by number."""
        self._numbers_used = OWN_NUMBERS
        self._acks = [b""]
        self._results = [b""]
        self._timers = set()
        self._stale = set()
        self._is_honest = False
        self._honest_from = 0
        self.participants = []
        """Identities that it may name, whoever told it."""
        self.tricks_count = 0
        """What it did other than pass a frame on."""

    def turn_honest(self):
        """Be an honest relay that has just restarted: whoever was connected dials again."""
        self._is_honest = True
        for timer in self._timers:
            timer.cancel()
        self._stale = set(self.pipes)
        self._honest_from = self._numbers
        self._machine = BhumiRelay(SETTINGS, random.Random(1), rate_limits=False)
        for peer in self._stale:
            self.cut(peer)

    async def has_again(self, identities):
        """Wait until all of these have said who they are since the relay turned honest."""
        async with asyncio.timeout(60):
            while {said[:32] for peer, said in self.of_type(FrameType.I_AM) if peer > self._honest_from} < identities:
                self._arrived.clear()
                await self._arrived.wait()

    def stop(self):
        super().stop()
        for timer in self._timers:
            timer.cancel()

    def lost(self, pipe, error):
        if pipe.peer not in self._stale:
            super().lost(pipe, error)
        else:
            _Relay.lost(self, pipe, error)

    # What comes

    def received(self, pipe, data):
        if pipe.peer in self._stale:
            return
        before = len(self.frames)
        try:
            _Relay.received(self, pipe, data)
        except MalformedError:  # a client that got no HELLO looks for TLS or HTTP here
            self.cut(pipe.peer)
        for peer, frame_type, payload in self.frames[before:]:
            if self._is_honest:
                self._pass_in(peer, frame_of(frame_type, payload))
            else:
                self._draw_in(peer, frame_type, payload)
        self._pump()

    def _draw_in(self, peer, frame_type, payload):
        if frame_type == FrameType.SEND:
            self.seen.append(wire.decode_send(payload))
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
            self.tricks_count += 1
            tricks = {FrameType.SEND: self._tricks_with_send, FrameType.ACK: self._tricks_with_ack}
            self._rng.choice([*self._tricks_with_any(), *tricks.get(frame_type, lambda _: [])(payload)])(peer, frame)
        if not self._leaves_alone(frame_type):
            self._mischief()

    def _leaves_alone(self, frame_type):
        if self._is_honest or self.is_patient:
            return True
        calm = self._calm if frame_type in CARRIED else (self._calm + 3) / 4  # who never gets in is never deceived
        return self._rng.random() < calm

    def _pass_in(self, peer, frame):
        if peer in self.pipes and peer not in self._stale:
            self._machine.receive(Peer(peer), frame, self._now())

    def _pass_in_and_pump(self, peer, frame):
        self._pass_in(peer, frame)
        self._pump()

    def _tricks_with_any(self):
        return [
            lambda _peer, _frame: None,
            lambda peer, frame: self._later(self._pass_in_and_pump, peer, frame),
            lambda peer, frame: [self._pass_in(peer, frame), self._later(self._pass_in_and_pump, peer, frame)],
            lambda peer, frame: [self._pass_in(peer, frame), self._pass_in(peer, frame)],
            lambda peer, _frame: self.cut(peer),
        ]

    def _tricks_with_send(self, payload):
        send = wire.decode_send(payload)
        own, other = self._forged_request(send.recipient, send.preimage), self._rng.choice(self.seen)
        return [
            lambda peer, frame: self._take_over(peer, send, frame),
            lambda peer, frame: self._take_over(peer, send, frame),
            lambda peer, _: self._answer(peer, send),
            lambda peer, _: self._answer(peer, send),
            lambda peer, frame: [self._pass_in(peer, frame), self._answer(peer, send)],
            lambda peer, _: self._pass_in(peer, wire.encode(replace(send, payload=own))),
            lambda peer, _: self._pass_in(peer, wire.encode(replace(send, payload=self._adapted(send.preimage)))),
            lambda peer, _: self._pass_in(peer, wire.encode(replace(send, preimage=other.preimage))),
            lambda peer, _: self._pass_in(peer, wire.encode(replace(send, recipient=other.recipient))),
            lambda peer, frame: [self._pass_in(peer, frame), self._later(self.cut_if_there, peer)],
        ]

    def _tricks_with_ack(self, payload):
        ack = wire.decode_ack(payload)
        other = replace(ack, payload=self._rng.choice(self._acks))
        return [
            lambda peer, _: self._pass_in(peer, wire.encode(other)),
            lambda peer, _: self._pass_in(peer, wire.encode(replace(ack, message_id=ack.message_id ^ 1))),
            lambda peer, frame: [self._pass_in(peer, frame), self.cut(peer)],
        ]

    # What leaves

    def _pump(self):
        for effect in self._machine.take():
            pipe = self.pipes.get(getattr(effect, "peer", None))
            if isinstance(effect, Send) and pipe is not None:
                self._draw_out(effect.peer, effect.data)
                if effect.receipt:
                    asyncio.get_running_loop().call_soon(self._drained, effect.peer)
            elif isinstance(effect, Close) and pipe is not None:
                pipe.close()
        self._arm()

    def _drained(self, peer):
        if peer in self.pipes and peer not in self._stale:
            super()._drained(peer)

    def _draw_out(self, peer, data):
        while data:
            frame_type, size = HEADER.unpack_from(data)
            frame, payload, data = data[: 6 + size], data[6 : 6 + size], data[6 + size :]
            if self._leaves_alone(frame_type):
                self._write(peer, frame)
                continue
            self.tricks_count += 1
            changes = {
                FrameType.HELLO: self._odd_hello,
                FrameType.DELIVER: self._odd_deliver,
                FrameType.SEND_RESULT: self._odd_result,
                FrameType.OPTIONS: lambda _: wire.encode(messages.Options(messages.Feature(self._rng.getrandbits(8)))),
            }
            odd = changes.get(frame_type, lambda _payload, as_it_is=frame: as_it_is)(payload)
            self._rng.choice(self._tricks_out(odd))(peer, frame)

    def _tricks_out(self, odd):
        return [
            lambda _peer, _frame: None,
            lambda peer, frame: self._later(self._write, peer, frame),
            lambda peer, frame: [self._write(peer, frame), self._later(self._write, peer, frame)],
            lambda peer, frame: [self._write(peer, odd), self._later(self._write, peer, frame)],
            lambda peer, frame: [self._write(peer, frame), self._write(peer, odd)],
            lambda peer, _frame: self._write(peer, odd),
            lambda peer, _frame: self._write(peer, odd),
            lambda peer, _frame: self.cut(peer),
        ]

    def _write(self, peer, frame):
        if peer in self.pipes and peer not in self._stale:
            self.pipes[peer].write([frame])

    def _odd_hello(self, payload):
        hello = wire.decode_hello(payload)
        size = self._rng.choice((0, 100, 1_000, 65_536))
        return wire.encode(self._rng.choice((replace(hello, max_payload_bytes=size), replace(hello, relay_nonce=7))))

    def _odd_deliver(self, payload):
        """Return a DELIVER of the same bytes with another number, or of the same number with other bytes."""
        number = int.from_bytes(payload[:4], "big")
        if self._rng.random() < 1 / 2:
            return frame_of(FrameType.DELIVER, (number + self._rng.randint(1, 3)).to_bytes(4, "big") + payload[4:])
        if not self.seen:
            return wire.encode(messages.Deliver(number, b"junk", self._rng.randbytes(32)))
        return wire.encode(messages.Deliver(number, *self._adverse(self._rng.choice(self.seen).recipient)))

    def _odd_result(self, payload):
        status = self._rng.choice((wire.decode_send_result(payload).status, *STATUSES))
        return wire.encode(messages.SendResult(status, self._made_up_answer()))

    # What it makes

    def _take_over(self, peer, send, frame):
        """Deliver a request without the machine, maybe in several copies, and say to its sender what it likes."""

        def taken(answer):
            if self._rng.random() < 1 / 2:
                self._write(peer, wire.encode(messages.SendResult(0, answer)))

        for _ in range(self._rng.randint(1, 3)):
            self._deliver(send.recipient, send.preimage, send.payload, taken)
        draw = self._rng.random()
        if draw < 1 / 3:
            self._answer(peer, send)
        elif draw < 1 / 2:
            self._later(self._pass_in_and_pump, peer, frame)

    def _answer(self, peer, send):
        """Give a sender a result that the device has not given."""
        status = self._rng.choice(STATUSES)
        payload = self._made_up_answer(send) if status == 0 or self._rng.random() < 1 / 4 else b""
        self._write(peer, wire.encode(messages.SendResult(status, payload)))

    def _made_up_answer(self, send=None):
        send = send or (self._rng.choice(self.seen) if self.seen else None)
        dialect = self._rng.choice(list(Dialect))
        made = [self._rng.choice(self._acks), self._rng.randbytes(self._rng.randint(0, 120))]
        if send is not None and self.participants:
            sender = self._rng.choice(self.participants)
            made += [self._eve.answer(dialect, sender, send), self._eve.welcome(dialect, sender, send), send.payload]
        return self._rng.choice(made)

    def _mischief(self):
        """Put something before a device that nobody has sent to it now."""
        if not self.seen:
            return
        known = self._rng.choice((self.seen[-1], self._rng.choice(self.seen)))
        recipient = known.recipient if self._rng.random() < 2 / 3 else self._rng.choice(self.participants)
        for _ in range(self._rng.choice((1, 1, 2, 20))):
            self._deliver(recipient, *reversed(self._adverse(recipient)), lambda _: None)

    def _adverse(self, recipient):
        """Return a payload that its preimage's holder has not sent at this moment, and the preimage."""
        draw, preimage = self._rng.random(), self._rng.choice((self.seen[-1], self._rng.choice(self.seen))).preimage
        if draw < 1 / 4:
            old = self._rng.choice(self.seen)
            return old.payload, old.preimage
        if draw < 1 / 2:
            return self._adapted(preimage), preimage
        return self._forged_request(recipient, preimage), preimage

    def _forged_request(self, recipient, preimage):
        dialect = self._rng.choice(list(Dialect))
        if self._rng.random() < 1 / 3:
            sender = self._rng.choice([None, *self.participants])
            return self._eve.handshake(dialect, recipient, preimage, sender)
        return self._eve.request(dialect, recipient, preimage)

    def _adapted(self, preimage):
        """Return the bytes of some request under the hint of this preimage, or with one bit changed."""
        old = bytearray(self._rng.choice(self.seen).payload)
        if self._rng.random() < 1 / 3:
            old[self._rng.randrange(len(old))] ^= 1 << self._rng.randrange(8)
        elif len(old) > HINT_BYTES:
            old[:HINT_BYTES] = self._rng.choice((hint_of, suite_hint_of))(preimage)
        return bytes(old)

    def _deliver(self, recipient, preimage, payload, taken):
        """Put a request before a device; ``taken`` gets its answer."""
        said = [peer for peer, said in self.of_type(FrameType.I_AM) if said[:32] == recipient and peer in self.pipes]
        if said:
            self._numbers_used += 1
            self._own[self._numbers_used] = taken
            named = preimage if self._rng.random() < 3 / 4 else None
            self._write(said[-1], wire.encode(messages.Deliver(self._numbers_used, payload, named)))

    def _later(self, what, *arguments):
        delay_s = self._rng.uniform(0, DELAY_S)
        timer = asyncio.get_running_loop().call_later(delay_s, self._run, what, arguments)
        self._timers.add(timer)

    def _run(self, what, arguments):
        if not self._is_honest:
            what(*arguments)

    def cut_if_there(self, peer):
        """Break a connection that may have ended."""
        if peer in self.pipes:
            self.cut(peer)
