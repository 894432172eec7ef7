"""A MERK client on a raw socket that reads notices exactly, or nothing at all, at a rate that loads a node."""

import asyncio
from collections import Counter
from typing import Final

from bench.merk_driver import Client, connect
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import Delivery, DeliveryCode, MessageType

PONG: Final = b"\x8a\x80\0\0\0\0"
_BINARY: Final = 0x82
_PING: Final = 0x89


class RawClient:
    """One connection; what arrives is counted, and each frame that was sent has one notice, or it is a fault."""

    def __init__(self, connection: Client) -> None:
        """Take over a connection that has been authenticated."""
        self.key = connection.pair.public
        self.codes: Counter[str] = Counter()
        """Notices by name of their code."""
        self.arrived_count = 0
        """Frames of others."""
        self.faults: list[str] = []
        self._connection = connection
        self._untold: set[bytes] = set()
        self._changed = asyncio.Event()
        self._head = bytearray()
        self._serial = 0
        connection.receive_for(self)  # type: ignore[arg-type] # what a Flow does, in another way

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        return self._connection.lost

    @property
    def untold_count(self) -> int:
        """How many frames have no notice yet."""
        return len(self._untold)

    def ask_for_notices(self) -> None:
        """Say HELLO."""
        self._connection.ask_for_notices()

    def stop_reading(self) -> None:
        """Take nothing any more."""
        self._connection.transport.pause_reading()

    def close(self) -> None:
        """Cut the connection."""
        self._connection.transport.abort()

    def send(self, target: bytes, size: int) -> None:
        """Send one DATA frame with ``size`` bytes of content, which differs from all others."""
        self._serial += 1
        content = target + self._serial.to_bytes(8, "big").ljust(size, b"x")
        frame = wire.encode_frame(MessageType.DATA, content, sender=self.key)
        self._untold.add(wire.frame_hash(frame))
        self._connection.transport.write(_masked(frame))

    async def until_told(self, count_max: int, within_s: float) -> None:
        """Return once at most ``count_max`` frames have no notice."""
        async with asyncio.timeout(within_s):
            while len(self._untold) > count_max:
                assert not self.lost, f"cut with {len(self._untold)} frames untold, {dict(self.codes)}"
                self._changed.clear()
                await self._changed.wait()

    def on_bytes(self, data: memoryview) -> None:
        """Take whole WebSocket messages of what has arrived."""
        head, at = self._head, 0
        head += data
        while len(head) - at >= 2:
            size, body = head[at + 1], at + 2
            if size == 126:
                size, body = int.from_bytes(head[at + 2 : at + 4], "big"), at + 4
            elif size == 127:
                size, body = int.from_bytes(head[at + 2 : at + 10], "big"), at + 10
            if len(head) < body + size:
                break
            self._on_message(head[at], bytes(head[body : body + size]))
            at = body + size
        del head[:at]
        self._changed.set()

    def fail(self, _why: str) -> None:
        """The connection is gone."""
        self._changed.set()

    def _on_message(self, kind: int, data: bytes) -> None:
        if kind == _PING:
            self._connection.transport.write(PONG)
        if kind != _BINARY:
            return
        frame = wire.decode_frame(data)
        if frame.kind != MessageType.NODE_INFO:
            self.arrived_count += 1
            return
        info = wire.decode_info(frame.payload)
        if isinstance(info, Delivery):
            if info.frame_hash not in self._untold:
                self.faults.append(f"a second notice of {info.frame_hash.hex()}: {info.code}")
            self._untold.discard(info.frame_hash)
            self.codes[DeliveryCode(info.code).name.lower()] += 1


async def connect_raw(url: str, number: int, count: int = 1) -> list[RawClient]:
    """Return clients with keys made from the numbers from ``number`` on."""
    return [RawClient(each) for each in await connect(url, count, number)]


def key_of(number: int) -> bytes:
    """Return the public key of the client with this number."""
    return KeyPair.from_seed(number.to_bytes(32, "big")).public


def _masked(frame: bytes) -> bytes:
    """Return a client's binary message, masked with zeros, which every server must take."""
    if len(frame) < 126:
        return b"\x82" + bytes((0x80 | len(frame),)) + bytes(4) + frame
    if len(frame) < 65_536:
        return b"\x82\xfe" + len(frame).to_bytes(2, "big") + bytes(4) + frame
    return b"\x82\xff" + len(frame).to_bytes(8, "big") + bytes(4) + frame
