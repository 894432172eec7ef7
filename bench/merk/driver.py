"""Generates the load for MERK relays: raw sockets, prebuilt frames, and replies compared as bytes.

A sender repeats one run of ``BATCH`` frames that differ in their serial numbers. The receiver compares every read with
the expected bytes of that run. Each frame is thus checked completely at the cost of a memory comparison, and the driver
uses far less CPU than any server. A receiver says nothing itself, so a relay asks it with a ping after ten seconds,
which is answered and taken out of what is compared.
"""

import asyncio
import time
from functools import partial

from bench import websocket
from bench.websocket import PING, PONG, client_frame, open_connections
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.messages import MessageType, Role
from waystation.protocols.merk.relay.authentication import answer_frame

PAYLOAD_BYTES = 256
"""Target and content, as in the figures of the original (specs/merk.md 9)."""
HEADER_BYTES = 120
FRAME_BYTES = HEADER_BYTES + PAYLOAD_BYTES
ARRIVING_BYTES = 4 + FRAME_BYTES
BATCH = 64
IN_FLIGHT = 32 * BATCH
_READ_BYTES = 1 << 18
BINARY = 0x82


def data_frame(sender: bytes, target: bytes, serial: int) -> bytes:
    """Return a DATA frame."""
    content = serial.to_bytes(8, "big") + b"x" * (PAYLOAD_BYTES - 32 - 8)
    return wire.encode_frame(MessageType.DATA, target + content, sender=sender)


class Client(websocket.Client):
    """One connection, which is open once it is authenticated."""

    def __init__(self, path: str, host: str, number: int) -> None:
        super().__init__(path, host)
        self.pair = KeyPair.from_seed(number.to_bytes(32, "big"))
        self.on_bytes = self._on_challenge
        self._waiting = b""

    def on_upgraded(self) -> None:
        """Wait for the challenge."""

    def take(self, data: bytes) -> None:
        """Take what arrives once the connection is open."""

    def ask_for_notices(self) -> None:
        """Send EXT_HELLO, so that a node of ours reports what became of each frame."""
        hello = messages.Hello(1, Role.CLIENT, self.pair.public, bytes(32), "")
        self.transport.write(client_frame(wire.encode_info_frame(hello, self.pair.public), BINARY))

    def _on_challenge(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) < 4 + HEADER_BYTES + 32:
            return
        challenge, self._waiting = self._waiting[-32:], b""
        self.on_bytes = self._on_confirmation
        self.transport.write(client_frame(answer_frame(challenge, self.pair), BINARY))

    def _on_confirmation(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) >= 2 + HEADER_BYTES + 1:
            assert self._waiting[2 + HEADER_BYTES] == 1, self._waiting
            self.on_bytes = self.take
            self.opened.set_result(None)


class Flow:
    """Frames from one client to another, with a bounded number on the way."""

    def __init__(self, sender: Client, receiver: Client) -> None:
        frames = [data_frame(sender.pair.public, receiver.pair.public, serial) for serial in range(BATCH)]
        self._frames = [client_frame(frame, BINARY) for frame in frames]
        self._batch = b"".join(self._frames)
        arriving = b"".join(b"\x82\x7e" + FRAME_BYTES.to_bytes(2, "big") + frame for frame in frames)
        self._period = len(arriving)
        self._expected = memoryview(arriving * (_READ_BYTES // len(arriving) + 2))
        self._sender = sender
        self._receiver = receiver
        self._held = b""
        self._at = 0
        self._bytes = 0
        self._wanted = 0
        self._unsent = 0
        self._next_batch = 0
        self._done: asyncio.Future[None] | None = None
        receiver.on_bytes, receiver.on_lost = self._on_bytes, partial(self._fail, "connection lost")

    async def run(self, count: int) -> float:
        """Send ``count`` frames, a multiple of ``BATCH``, as fast as they arrive; return the seconds it took."""
        assert count % BATCH == 0
        began = time.perf_counter()
        self._start(count * ARRIVING_BYTES)
        at_once = min(count, IN_FLIGHT)
        self._unsent = count - at_once
        self._next_batch = self._bytes + BATCH * ARRIVING_BYTES
        self._sender.transport.write(self._batch * (at_once // BATCH))
        assert self._done is not None
        await self._done
        return time.perf_counter() - began

    async def run_one_by_one(self, rounds: int) -> list[float]:
        """Send ``rounds`` batches frame by frame, each after the one before has arrived; return seconds of each."""
        taken = []
        for _ in range(rounds):
            for frame in self._frames:
                began = time.perf_counter()
                self._start(ARRIVING_BYTES)
                self._sender.transport.write(frame)
                assert self._done is not None
                await self._done
                taken.append(time.perf_counter() - began)
        return taken

    def _on_bytes(self, data: bytes) -> None:
        """Compare what arrived, and send more."""
        data, self._held = self._held + data, b""
        size = len(data)
        if data != self._expected[self._at : self._at + size]:
            data = self._without_pings(data)
            size = len(data)
        if data != self._expected[self._at : self._at + size]:
            self._fail("what arrived is not what was sent")
            return
        self._at = (self._at + size) % self._period
        self._bytes += size
        while self._unsent and self._bytes >= self._next_batch:
            self._unsent -= BATCH
            self._next_batch += BATCH * ARRIVING_BYTES
            self._sender.transport.write(self._batch)
        if self._bytes >= self._wanted and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _without_pings(self, data: bytes) -> bytes:
        """Answer the pings that stand between frames, and return the rest; a ping that is not whole is held back."""
        kept, at = [], -self._at % ARRIVING_BYTES
        kept.append(data[:at])
        while at < len(data):
            if data[at] != PING:
                kept.append(data[at : at + ARRIVING_BYTES])
                at += ARRIVING_BYTES
                continue
            end = at + 2 + (data[at + 1] if at + 1 < len(data) else 0)
            if at + 1 >= len(data) or end > len(data):
                self._held = data[at:]
                break
            self._receiver.transport.write(PONG)
            at = end
        return b"".join(kept)

    def _fail(self, why: str) -> None:
        """End the run that is under way."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(AssertionError(why))

    def _start(self, size: int) -> None:
        self._wanted = self._bytes + size
        self._unsent = 0
        self._done = asyncio.get_running_loop().create_future()


async def connect(url: str, count: int, first: int = 1) -> list[Client]:
    """Return so many authenticated clients, whose keys come from the numbers from ``first`` on."""
    return await open_connections(url, Client, count, first)
