"""Fuzz target: the parsers of MERK frames and of every NODE_INFO message."""

import random
from typing import Final

from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.infos import SERVERS_MAX
from waystation.protocols.merk.messages import Frame, Info, MessageType, Role, ServerEntry, Servers
from waystation.protocols.merk.refusals import MalformedError, Refusal

_KEY: Final = b"k" * 32
_NODE: Final = b"n" * 32
_HASH: Final = b"h" * 16
_SIGNATURE: Final = b"s" * 64
_CONTENT: Final = wire.encode_frame(MessageType.DATA, _KEY + b"content", sender=_NODE, signature=_SIGNATURE)

MERK_INFOS: Final[tuple[Info, ...]] = (
    messages.RequestServers(),
    Servers(()),
    Servers((ServerEntry(_NODE, "wss://relay.example/merk"), ServerEntry(_KEY, "ws://10.0.0.1:8080"))),
    messages.AddServer("ws://relay.example"),
    messages.QueryClient(_KEY),
    messages.ClientFound(_KEY, _NODE),
    messages.ClientAbsent(_KEY),
    messages.Hello(15, Role.NODE, _NODE, _KEY, "wss://relay.example/merk"),
    messages.Hello(0, Role.CLIENT, _KEY, _NODE, ""),
    messages.Auth(_SIGNATURE),
    messages.Delivery(3, _KEY, _HASH),
    messages.Deliveries(6, (_HASH,)),
    messages.Deliveries(0, tuple(bytes([number]) * 16 for number in range(messages.DELIVERIES_MAX))),
    messages.Forward(1, _HASH, _NODE, _CONTENT),
    messages.ForwardRun(1, _NODE, ((_HASH, _CONTENT), (_HASH, _CONTENT + b"!"))),
    messages.KeyAdvert(_KEY, _NODE, 1_700_000_000_000, _SIGNATURE),
    messages.KeyQuery(_KEY),
    messages.KeyUnknown(_KEY),
    messages.Gone(_KEY),
)
"""One of everything."""

_PAYLOADS: Final = tuple(wire.encode_info(info) for info in MERK_INFOS)
_FRAMES: Final = (
    _CONTENT,
    wire.encode_frame(MessageType.HANDSHAKE, bytes(32)),
    wire.encode_frame(MessageType.HANDSHAKE, messages.CONFIRMATION, sender=_NODE),
    *(wire.encode_info_frame(info, _NODE) for info in MERK_INFOS),
)


class MerkWireTarget:
    """The whole input is one WebSocket message."""

    name = "merk_wire"

    def make(self, rng: random.Random) -> bytes:
        """Return a frame mutated anywhere, or a true header around a mutated NODE_INFO."""
        if rng.random() < 0.3:
            return mutate_bytes(rng, rng.choice(_FRAMES), _FRAMES)
        payload = rng.choice(_PAYLOADS)
        if rng.random() < 0.9:
            payload = mutate_bytes(rng, payload, _PAYLOADS)
        return wire.encode_frame(MessageType.NODE_INFO, payload, sender=_NODE)

    def run(self, data: bytes) -> str:
        """Decode with both functions; what decodes must encode to the very same bytes, but for what no reader uses."""
        try:
            head = wire.read_head(data)
        except MalformedError as error:
            expect(_refusal_of(data) is error.refusal, "refused by its head alone")
            return error.refusal.value
        frame = wire.decode_frame(data)
        expect(head == (frame.kind, frame.sender), "two functions, two frames")
        again = wire.encode_frame(frame.kind, frame.payload, sender=frame.sender, signature=frame.signature)
        expect(again[:3] + again[4:8] == data[:3] + data[4:8], "another header")
        expect(again[24:] == data[24:], "decoded, but not to what was sent")
        expect(wire.target_of(data) == (frame.payload[:32] if len(frame.payload) >= 32 else None), "another target")
        return _run_info(data, frame) if frame.kind == MessageType.NODE_INFO else "accepted"


def _refusal_of(data: bytes) -> Refusal | None:
    try:
        wire.decode_frame(data)
    except MalformedError as error:
        return error.refusal
    return None


def _run_info(data: bytes, frame: Frame) -> str:
    try:
        info = wire.decode_info_frame(data)
    except MalformedError as error:
        expect(error.refusal is Refusal.MALFORMED_INFO, "refused with another word")
        return error.refusal.value
    expect(info == wire.decode_info(frame.payload), "two functions, two infos")
    if info is None:
        return "nothing said"
    payload = wire.encode_info(info)
    if isinstance(info, Servers):
        expect(len(info.entries) <= SERVERS_MAX, "more servers than anybody keeps")
        expect(frame.payload[3:].startswith(payload[3:]), "servers that were not named")
    else:
        expect(payload == frame.payload, "decoded, but not what was received")
    return type(info).__name__
