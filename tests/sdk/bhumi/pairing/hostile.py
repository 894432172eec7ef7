"""A relay that lies: the real machine on a real socket, with every power over what passes through it.

It knows what a relay knows: each identity, preimage and envelope that it carries, and keys of its own. ``rewrite``
changes, replaces or drops what senders send, ``answer`` what they get back; ``ask`` puts a request of its own before a
device, with any preimage that it has seen. ``Eve`` makes its forgeries.
"""

import asyncio
import random
import struct
from collections import defaultdict, deque

from tests.sdk.build import LoopbackRelay, _Relay
from waystation.core.effects import Close, Peer, Send
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import (
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MessageResponse,
    ResponseStatus,
)
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.bhumi.dialect import write_answer, write_request

HEADER = struct.Struct(">HI")
"""Type and size of a frame; the machine sends whole ones."""
OWN_NUMBERS = 1 << 31
"""Where the numbers of its own deliveries begin, so that the machine never sees their ACKs."""


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
        while data:
            frame_type, size = HEADER.unpack_from(data)
            frame, payload, data = data[: 6 + size], data[6 : 6 + size], data[6 + size :]
            if frame_type == FrameType.SEND_RESULT and self._waiting[peer]:
                result = self.answer(self._waiting[peer].popleft(), wire.decode_send_result(payload))
                frame = b"" if result is None else wire.encode(result)
            kept += frame
        return kept


def frame_of(frame_type, payload):
    return HEADER.pack(frame_type, len(payload)) + payload


class Eve:
    """The keys of the relay's owner, and what she can write with them."""

    def __init__(self):
        self.key_pair = KeyPair.from_seed(bytes([0xE5]) * 32)
        self.secrets = SharedSecrets(self.key_pair)
        self.rng = random.Random(5)

    def request(self, dialect, device, preimage, content=b"UNLOCK THE DOOR", content_type=ContentType.TEXT):
        """Return a request to a device, as well as it can be written without the root of another."""
        message = DeviceMessage(content_type, content)
        return write_request(dialect, self.secrets, device, preimage, message, self.rng, root=bytes(32))

    def handshake(self, dialect, device, preimage, sender=None):
        """Return the use of an invite, by Eve or in a legacy form in the name of another; she has no pairing secret."""
        name = sender if sender is not None and dialect.is_legacy else self.key_pair.public
        init = HandshakeInit(name, bytes([0xEE]) * 32)
        return write_request(dialect, self.secrets, device, preimage, init, self.rng, secret=bytes(32))

    def answer(self, dialect, sender, send, content=b"done"):
        """Return an answer in the place of a device."""
        response = MessageResponse(ResponseStatus.OK, bytes([0xEF]) * 32, content)
        return self._answer(dialect, sender, send, response)

    def welcome(self, dialect, sender, send):
        """Return the answer to a handshake in the place of an inviter."""
        return self._answer(dialect, sender, send, HandshakeComplete(ResponseStatus.OK, bytes([0xEF]) * 32))

    def _answer(self, dialect, sender, send, response):
        return write_answer(
            *(dialect, self.secrets, sender, send.preimage, response, self.rng),
            root=bytes(32),
            request=send.payload,
        )
