"""Generates the load for the Bhumi benchmark: device and sender pairs on raw sockets that use little CPU themselves.

It does not use the SDK: there is no end-to-end encryption, request secrets are precomputed, and frames are split by
hand. The same pairs drive the node and the bare forwarder; only the opening messages differ.
"""

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple, cast

import aiofastnet

from tools.served import ServedProcess
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi.messages import IAm, UpdateCommits
from waystation.protocols.bhumi.wire import decode_hello, encode, signed_bytes

PREIMAGES_AT_ONCE = 2_048
IDLE_COMMITS = 16
SIZE = 256
_HEADER_BYTES = 6
_ACK_HEAD = b"\x00\x05"


class _End(asyncio.Protocol):
    """A connection that hands whole frames to a callback."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.hello: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.on_frame: Callable[[int, bytes], None] = lambda _kind, payload: self.hello.set_result(payload)
        self.lost = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        start = 0
        while len(data) - start >= _HEADER_BYTES:
            end = start + _HEADER_BYTES + int.from_bytes(data[start + 2 : start + 6], "big")
            if end > len(data):
                break
            self.on_frame(data[start + 1], data[start + _HEADER_BYTES : end])
            start = end
        self._rest = data[start:]

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost = True


class Server(NamedTuple):
    """Where pairs connect."""

    process: ServedProcess
    context: ssl.SSLContext
    forwards: bool
    """Whether it passes bytes on, and is no node."""

    async def connect(self) -> _End:
        """Return a connection that has got its HELLO."""
        host, _, port = self.process.address_of("bhumi").partition("://")[2].rpartition(":")
        loop = asyncio.get_running_loop()
        end = _End()
        await aiofastnet.create_connection(loop, lambda: end, host, int(port), ssl=self.context)
        await end.hello
        return end


class Pair:
    """A device and the sender that asks it, one request outstanding."""

    def __init__(self, number: int, server: Server, size: int = SIZE) -> None:
        self.number = number
        self._server = server
        self.device: _End
        self.sender: _End
        self.latencies_us: list[int] = []
        self._key_pair = KeyPair.from_seed(hashlib.sha256(b"bench %d" % number).digest())
        self._serial = 0
        self._preimages: list[bytes] = []
        self._asked_at = 0
        self._ack_tail = size.to_bytes(4, "big") + b"a" * size
        self._ack_head = _ACK_HEAD + (8 + size).to_bytes(4, "big")
        self._send_head = b"\x00\x03" + (68 + size).to_bytes(4, "big") + self._key_pair.public
        self._send_tail = size.to_bytes(4, "big") + b"q" * size

    async def connect_device(self, commit_count: int = PREIMAGES_AT_ONCE) -> _End:
        """Connect the device, which identifies itself with so many commits."""
        self.device = await self._server.connect()
        self.device.on_frame = self._on_device_frame
        commits = self._make_preimages()[:commit_count]
        if self._server.forwards:
            self.device.transport.write(b"R" + self.number.to_bytes(2, "big"))
        else:
            nonce = decode_hello(self.device.hello.result()).relay_nonce
            signature = sign(self._key_pair, signed_bytes(nonce, self._key_pair.public))
            self.device.transport.write(encode(IAm(self._key_pair.public, signature, commits)))
        return self.device

    async def connect(self) -> None:
        """Connect both ends."""
        await self.connect_device()
        self.sender = await self._server.connect()
        self.sender.on_frame = self._on_sender_frame
        if self._server.forwards:
            self.sender.transport.write(b"L" + self.number.to_bytes(2, "big"))

    def _make_preimages(self) -> tuple[bytes, ...]:
        fresh = [
            hashlib.sha256(b"%d %d" % (self.number, self._serial + step)).digest() for step in range(PREIMAGES_AT_ONCE)
        ]
        self._serial += PREIMAGES_AT_ONCE
        self._preimages = fresh[::-1] + self._preimages
        return tuple(hashlib.sha256(preimage).digest() for preimage in fresh)

    def ask(self) -> None:
        """Ask; each answer leads to the next question."""
        self._asked_at = time.perf_counter_ns()
        self.sender.transport.write(self._send_head + self._preimages.pop() + self._send_tail)

    def _on_device_frame(self, _kind: int, payload: bytes) -> None:
        if len(self._preimages) == PREIMAGES_AT_ONCE // 2:
            commits = self._make_preimages()
            if not self._server.forwards:
                self.device.transport.write(encode(UpdateCommits(commits)))
        self.device.transport.write(self._ack_head + payload[:4] + self._ack_tail)

    def _on_sender_frame(self, _kind: int, payload: bytes) -> None:
        if payload[0] and not self._server.forwards:
            raise RuntimeError(f"status {payload[0]}")
        self.latencies_us.append((time.perf_counter_ns() - self._asked_at) // 1_000)
        self.ask()


async def run_pairs(server: Server, count: int, seconds: float) -> tuple[list[int], float, float]:
    """Let pairs exchange as fast as they get answers, after a warm-up that is not counted.

    Returns:
        The microseconds of every exchange, the seconds of all of them, and the CPU seconds of the server.
    """
    pairs = [Pair(number, server) for number in range(count)]
    for pair in pairs:
        await pair.connect()
    await asyncio.sleep(0.3)  # the last introductions are on their way
    for pair in pairs:
        pair.ask()
    await asyncio.sleep(min(1.0, seconds / 4))
    for pair in pairs:
        pair.latencies_us.clear()
    began, before = time.perf_counter(), server.process.cpu_s()
    await asyncio.sleep(seconds)
    took, spent = time.perf_counter() - began, server.process.cpu_s() - before
    for pair in pairs:
        pair.device.transport.abort()
        pair.sender.transport.abort()
    return [latency for pair in pairs for latency in pair.latencies_us], took, spent
