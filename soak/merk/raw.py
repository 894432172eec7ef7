"""A minimal MERK client on a raw socket for heavy load; it checks delivery notices exactly or reads nothing at all."""

import asyncio
from collections import Counter

from bench.merk.driver import BINARY, Client
from bench.websocket import PING, PONG, client_frame, open_connections, split_frames
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import Delivery, DeliveryCode, Frame, MessageType


class RawClient(Client):
    """One connection; each frame that was sent has one notice, or it is a fault."""

    def __init__(self, path: str, host: str, number: int) -> None:
        super().__init__(path, host, number)
        self.key = self.pair.public
        self.codes: Counter[str] = Counter()
        """Notices by name of their code."""
        self.faults: list[str] = []
        self._unnoticed: set[bytes] = set()
        self._changed = asyncio.Event()
        self.on_lost = self._changed.set
        self._rest = b""
        self._serial = 0

    @property
    def unnoticed_count(self) -> int:
        """How many frames have no notice yet."""
        return len(self._unnoticed)

    def send(self, target: bytes, size: int) -> None:
        """Send one DATA frame with ``size`` bytes of content, which differs from all others."""
        self._serial += 1
        content = target + self._serial.to_bytes(8, "big").ljust(size, b"x")
        frame = wire.encode_frame(MessageType.DATA, content, sender=self.key)
        self._unnoticed.add(wire.frame_hash(frame))
        self.transport.write(client_frame(frame, BINARY))

    async def until_noticed(self, count_max: int, within_s: float) -> None:
        """Return once at most ``count_max`` frames have no notice."""
        async with asyncio.timeout(within_s):
            while len(self._unnoticed) > count_max:
                assert not self.lost, f"cut with {len(self._unnoticed)} frames unnoticed, {dict(self.codes)}"
                self._changed.clear()
                await self._changed.wait()

    def take(self, data: bytes) -> None:
        """Take whole WebSocket messages of what has arrived."""
        frames, self._rest = split_frames(self._rest + data)
        for first_byte, payload in frames:
            if first_byte == PING:
                self.transport.write(PONG)
            elif first_byte == BINARY:
                self._on_frame(wire.decode_frame(payload))
        self._changed.set()

    def _on_frame(self, frame: Frame) -> None:
        info = wire.decode_info(frame.payload) if frame.kind == MessageType.NODE_INFO else None
        if isinstance(info, Delivery):
            if info.frame_hash not in self._unnoticed:
                self.faults.append(f"a second notice of {info.frame_hash.hex()}: {info.code}")
            self._unnoticed.discard(info.frame_hash)
            self.codes[DeliveryCode(info.code).name.lower()] += 1


async def connect_raw(url: str, number: int, count: int = 1) -> list[RawClient]:
    """Return clients with keys made from the numbers from ``number`` on."""
    return await open_connections(url, RawClient, count, number)
