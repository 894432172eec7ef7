"""Fuzz target: Bhumi's frame buffer and every frame decoder, in both directions."""

import random
from collections.abc import Callable, Mapping
from typing import Final

from fuzz.corpus import CLIENT_FRAMES, RELAY_FRAMES
from fuzz.mutate import cut, mutate_frames
from fuzz.target import expect
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType, Message
from waystation.protocols.bhumi.refusals import MalformedError

_LIMITS: Final = (wire.relay_frame_limits(1_024), wire.client_frame_limits(1_024))
_CORPUS: Final = CLIENT_FRAMES + RELAY_FRAMES


def _keepalive(payload: bytes) -> Message:
    expect(not payload, "a KEEPALIVE with a body")
    return messages.Keepalive()


_DECODERS: Final[Mapping[int, Callable[[bytes], Message]]] = {
    FrameType.HELLO: wire.decode_hello,
    FrameType.I_AM: wire.decode_i_am,
    FrameType.SEND: wire.decode_send,
    FrameType.ACK: wire.decode_ack,
    FrameType.KEEPALIVE: _keepalive,
    FrameType.SEND_RESULT: wire.decode_send_result,
    FrameType.UPDATE_COMMITS: wire.decode_update_commits,
    FrameType.OPTIONS: wire.decode_options,
}


class WireTarget:
    """The first byte of an input chooses direction and chunking; the rest is the stream."""

    name = "wire"

    def make(self, rng: random.Random) -> bytes:
        """Return a few frames, mutated."""
        choice = rng.randrange(256)
        corpus = _CORPUS if rng.random() < 0.1 else (RELAY_FRAMES if choice & 1 else CLIENT_FRAMES)
        frames = mutate_frames(rng, rng.choices(corpus, k=rng.randrange(1, 6)), corpus)
        return bytes([choice]) + b"".join(frames)

    def run(self, data: bytes) -> str:
        """Cut and decode; whatever decodes must encode to the very same bytes."""
        choice, stream = (data[0] if data else 0), data[1:]
        rng = random.Random(choice)
        buffer, fed, taken = wire.FrameBuffer(_LIMITS[choice & 1]), 0, 0
        try:
            for chunk in cut(rng, stream):
                buffer.feed(chunk)
                fed += len(chunk)
                while (found := buffer.next_frame()) is not None:
                    taken += wire.FRAME_HEADER_BYTES + len(found[1])
                    self._decode(*found, with_preimage=bool(choice & 2))
                expect(buffer.waiting == fed - taken, "bytes lost or held twice")
        except MalformedError as error:
            return error.refusal.value
        return "partial" if buffer.waiting else "accepted"

    def _decode(self, frame_type: int, payload: bytes, *, with_preimage: bool) -> None:
        if frame_type == FrameType.DELIVER:
            message: Message = wire.decode_deliver(payload, with_preimage=with_preimage)
        elif frame_type in _DECODERS:
            message = _DECODERS[frame_type](payload)
        else:
            expect(frame_type >= wire.EXTENSION_TYPES_FROM, "an unknown type passed")
            return
        again = wire.encode(message)[wire.FRAME_HEADER_BYTES :]
        expect(again == payload, "decoded, but not to what was sent")
