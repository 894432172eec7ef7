"""The load for MERK relays: raw sockets, frames made before the clock starts, replies compared as bytes.

A sender repeats one run of ``BATCH`` frames that differ in their serial numbers; the receiver compares every read with
what that run must look like when it arrives. So each frame is verified whole, at the speed of a comparison of memory,
and the driver costs far less than any server.
"""

import asyncio
import base64
import os
import time
from functools import partial
from typing import Any

from waystation.crypto.signing import KeyPair, sign

__all__ = ["FRAME_BYTES", "Client", "Flow", "connect"]

PAYLOAD_BYTES = 256
"""Target and content, as in the figures of the original (specs/merk.md 9)."""
HEADER_BYTES = 120
FRAME_BYTES = HEADER_BYTES + PAYLOAD_BYTES
ARRIVING_BYTES = 4 + FRAME_BYTES
BATCH = 64
IN_FLIGHT = 32 * BATCH
_READ_BYTES = 1 << 18
_DATA = 2
_NODE_INFO = 3


def masked(frame: bytes) -> bytes:
    """Return a client's binary message, masked with zeros, which every server must take."""
    return b"\x82\xfe" + len(frame).to_bytes(2, "big") + bytes(4) + frame


def data_frame(sender: bytes, target: bytes, serial: int) -> bytes:
    """Return a DATA frame."""
    content = serial.to_bytes(8, "big") + b"x" * (PAYLOAD_BYTES - 32 - 8)
    size = PAYLOAD_BYTES.to_bytes(4, "big")
    return b"X\1%c\0" % _DATA + size + bytes(16) + sender + bytes(64) + target + content


class Client(asyncio.BufferedProtocol):
    """One authenticated connection; once ``flow`` is set, everything that arrives goes there."""

    def __init__(self, path: str, host: str, pair: KeyPair) -> None:
        self.transport: Any = None
        self.flow: Flow | None = None
        self.pair = pair
        self.ready = asyncio.get_running_loop().create_future()
        self.lost = False
        self._buffer = bytearray(4_096)
        self._view = memoryview(self._buffer)
        self._head = bytearray()
        self._steps = [self._on_upgraded, self._on_challenge, self._on_confirmed]
        key = base64.b64encode(os.urandom(16)).decode()
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()

    def connection_made(self, transport: Any) -> None:
        """Ask for the upgrade."""
        self.transport = transport
        transport.write(self._request)

    def get_buffer(self, _sizehint: int) -> bytearray:
        """Return where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        if self.flow is not None:
            self.flow.on_bytes(self._view[:nbytes])
            return
        if not self._steps:
            return  # answers that nobody waits for
        self._head += self._view[:nbytes]
        while self._steps and self._steps[0]():
            self._steps.pop(0)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Note the end."""
        self.lost = True
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("closed during the handshake"))
        elif self.flow is not None:
            self.flow.fail("connection lost")

    def ask_for_notices(self) -> None:
        """Say EXT_HELLO, so that a node of ours tells what became of each frame; nobody reads it."""
        hello = b"\x80\1" + (1).to_bytes(4, "big") + b"\0" + self.pair.public + bytes(32) + b"\0"
        head = b"X\1%c\0" % _NODE_INFO + len(hello).to_bytes(4, "big") + bytes(16) + self.pair.public + bytes(64)
        self.transport.write(masked(head + hello))

    def receive_for(self, flow: "Flow") -> None:
        """Hand everything from now on to a flow, in large reads."""
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)
        self.flow = flow

    def _on_upgraded(self) -> bool:
        head, separator, rest = self._head.partition(b"\r\n\r\n")
        if separator:
            assert b" 101 " in head.partition(b"\r\n")[0], bytes(head)
            self._head = rest
        return bool(separator)

    def _on_challenge(self) -> bool:
        if len(self._head) < 4 + HEADER_BYTES + 32:
            return False
        challenge = bytes(self._head[4 + HEADER_BYTES : 4 + HEADER_BYTES + 32])
        del self._head[: 4 + HEADER_BYTES + 32]
        signature = sign(self.pair, challenge)
        head = b"X\1\1\0" + (32).to_bytes(4, "big") + bytes(16) + self.pair.public + signature
        answer = head + challenge
        self.transport.write(b"\x82\xfe" + len(answer).to_bytes(2, "big") + bytes(4) + answer)
        return True

    def _on_confirmed(self) -> bool:
        size = self._head[1] + 2 if len(self._head) > 1 else 2  # a confirmation has 121 bytes
        if len(self._head) < size:
            return False
        assert self._head[size - 1] == 1, bytes(self._head)
        del self._head[:]
        self.ready.set_result(None)
        return True


class Flow:
    """Frames from one client to another, with a bounded number on the way."""

    def __init__(self, sender: Client, receiver: Client) -> None:
        frames = [data_frame(sender.pair.public, receiver.pair.public, serial) for serial in range(BATCH)]
        self._frames = [masked(frame) for frame in frames]
        self._batch = b"".join(self._frames)
        arriving = b"".join(b"\x82\x7e" + FRAME_BYTES.to_bytes(2, "big") + frame for frame in frames)
        self._period = len(arriving)
        self._expected = memoryview(arriving * (_READ_BYTES // len(arriving) + 2))
        self._sender = sender
        self._at = 0
        self._bytes = 0
        self._wanted = 0
        self._unsent = 0
        self._next_batch = 0
        self._done: asyncio.Future[None] | None = None
        receiver.receive_for(self)

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

    def on_bytes(self, data: memoryview) -> None:
        """Compare what arrived, and send more."""
        size = len(data)
        if data != self._expected[self._at : self._at + size]:
            self.fail("what arrived is not what was sent")
            return
        self._at = (self._at + size) % self._period
        self._bytes += size
        while self._unsent and self._bytes >= self._next_batch:
            self._unsent -= BATCH
            self._next_batch += BATCH * ARRIVING_BYTES
            self._sender.transport.write(self._batch)
        if self._bytes >= self._wanted and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def fail(self, why: str) -> None:
        """End the run that is under way."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(AssertionError(why))

    def _start(self, size: int) -> None:
        self._wanted = self._bytes + size
        self._unsent = 0
        self._done = asyncio.get_running_loop().create_future()


async def connect(url: str, count: int, first: int = 1) -> list[Client]:
    """Return so many authenticated clients, whose keys come from the numbers from ``first`` on."""
    host, _, path = url.partition("://")[2].partition("/")
    name, _, port = host.rpartition(":")
    loop = asyncio.get_running_loop()
    clients = []
    for number in range(first, first + count):
        pair = KeyPair.from_seed(number.to_bytes(32, "big"))
        _, client = await loop.create_connection(partial(Client, "/" + path, host, pair), name, int(port))
        await asyncio.wait_for(client.ready, 10)
        clients.append(client)
    return clients
