"""A relay that lies: the real machine on a real socket, with every power over what passes through it.

It knows what a relay knows: each identity, preimage and envelope that it carries, and keys of its own. ``rewrite``
changes, replaces or drops what senders send, ``answer`` what they get back; ``ask`` puts a request of its own before a
device, with any preimage that it has seen. Its forgeries are those of ``simsdk.bhumi.forger``.
"""

import asyncio
from collections import defaultdict, deque

from tests.sdk.build import LoopbackRelay, _Relay
from waystation.core.effects import Close, Peer, Send
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.simsdk.bhumi.hosted_relay import frame_of, frames_in
from waystation.simsdk.bhumi.hostile_relay import OWN_NUMBERS


class HostileRelay(LoopbackRelay):
    """The real relay machine in the hands of somebody who wants to act as another."""

    def __init__(self, settings=None):
        super().__init__(settings)
        self.seen = []
        """Every SEND that came, as it came."""
        self.rewrite = lambda send: send
        """Returns what the machine gets in place of a SEND; None drops it."""
        self.answer = lambda _send, result: result
        """Returns the SEND_RESULT that a sender gets in place of the machine's; None drops it."""
        self._waiting = defaultdict(deque)
        self._own = {}
        self._numbers_used = OWN_NUMBERS

    def preimages(self):
        """Return every preimage that passed through, in its order, once."""
        return list(dict.fromkeys(send.preimage for send in self.seen))

    def connection_of(self, identity):
        """Return the newest connection of a device."""
        said = [peer for peer, payload in self.of_type(FrameType.I_AM) if payload[:32] == identity]
        return next(peer for peer in reversed(said) if peer in self.pipes)

    async def ask(self, identity, preimage, payload):
        """Put a request before a device that nobody has sent; return the payload of its ACK."""
        self._numbers_used += 1
        answered = self._own[self._numbers_used] = asyncio.get_running_loop().create_future()
        message = messages.Deliver(self._numbers_used, payload, preimage)
        self.pipes[self.connection_of(identity)].write([wire.encode(message)])
        async with asyncio.timeout(10):
            return await answered

    def received(self, pipe, data):
        before = len(self.frames)
        _Relay.received(self, pipe, data)
        for peer, frame_type, payload in self.frames[before:]:
            for frame in self._inbound(peer, frame_type, payload):
                self._machine.receive(Peer(peer), frame, self._now())
        self._pump()

    def _inbound(self, peer, frame_type, payload):
        if frame_type == FrameType.SEND:
            send = wire.decode_send(payload)
            self.seen.append(send)
            changed = self.rewrite(send)
            if changed is None:
                return []
            self._waiting[peer].append(send)
            return [wire.encode(changed)]
        if frame_type == FrameType.ACK:
            ack = wire.decode_ack(payload)
            if (own := self._own.pop(ack.message_id, None)) is not None:
                own.set_result(ack.payload)
                return []
        return [frame_of(frame_type, payload)]

    def _pump(self):
        for effect in self._machine.take():
            pipe = self.pipes.get(getattr(effect, "peer", None))
            if isinstance(effect, Send) and pipe is not None:
                pipe.write([self._outbound(effect.peer, effect.data)])
                if effect.receipt:
                    asyncio.get_running_loop().call_soon(self._drained, effect.peer)
            elif isinstance(effect, Close) and pipe is not None:
                pipe.close()
        self._arm()

    def _outbound(self, peer, data):
        kept = b""
        for frame_type, payload in frames_in(data):
            frame = frame_of(frame_type, payload)
            if frame_type == FrameType.SEND_RESULT and self._waiting[peer]:
                result = self.answer(self._waiting[peer].popleft(), wire.decode_send_result(payload))
                frame = b"" if result is None else wire.encode(result)
            kept += frame
        return kept
