"""The load: pairs of one device and one sender over raw sockets, cheap enough to keep a server busy.

Not the SDK on purpose: no end-to-end encryption, preimages made ahead, frames cut by hand. The same pairs drive the
node and the forwarder; only the introduction differs.
"""

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import aiofastnet

from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi.messages import IAm, UpdateCommits
from waystation.protocols.bhumi.wire import decode_hello, encode, signed_bytes

__all__ = ["Pair", "Result", "connect_pairs", "run_pairs"]

PREIMAGES_AT_ONCE = 2_048
IDLE_COMMITS = 16
_HEADER_BYTES = 6
_ACK_HEAD = b"\x00\x05"


@dataclass
class Result:
    """What one run gave."""

    seconds: float
    exchanges: int
    latencies_us: list[int] = field(repr=False)

    @property
    def rate(self) -> float:
        """Exchanges per second."""
        return self.exchanges / self.seconds

    def percentile(self, share: float) -> int:
        """Return the latency in microseconds that ``share`` of the exchanges did not exceed."""
        ordered = sorted(self.latencies_us)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class _End(asyncio.Protocol):
    """A connection that hands whole frames to a callback."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.greeting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.on_frame: Callable[[int, bytes], None] = self._greeted
        self._rest = b""
        self.raw_greeting_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if self.raw_greeting_bytes:
            self.greeting.set_result(data[: self.raw_greeting_bytes])
            data = data[self.raw_greeting_bytes :]
            self.raw_greeting_bytes = 0
        start = 0
        while len(data) - start >= _HEADER_BYTES:
            end = start + _HEADER_BYTES + int.from_bytes(data[start + 2 : start + 6], "big")
            if end > len(data):
                break
            self.on_frame(data[start + 1], data[start + _HEADER_BYTES : end])
            start = end
        self._rest = data[start:]

    def _greeted(self, _kind: int, payload: bytes) -> None:
        self.greeting.set_result(payload)


async def _connect(host: str, port: int, context: ssl.SSLContext | None, *, forwarder: bool) -> _End:
    end = _End()
    end.raw_greeting_bytes = 5 if forwarder else 0
    await aiofastnet.create_connection(asyncio.get_running_loop(), lambda: end, host, port, ssl=context)
    return end


class Pair:
    """A device and the sender that asks it, one request outstanding."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.device: _End
        self.sender: _End
        self.latencies_us: list[int] = []
        self.running = False
        self._key_pair = KeyPair.from_seed(hashlib.sha256(b"bench %d" % number).digest())
        self._serial = 0
        self._preimages: list[bytes] = []
        self._asked_at = 0
        self._registers = True
        self._ack_tail = size.to_bytes(4, "big") + b"a" * size
        self._ack_head = _ACK_HEAD + (8 + size).to_bytes(4, "big")
        self._send_head = b"\x00\x03" + (68 + size).to_bytes(4, "big") + self._key_pair.public
        self._send_tail = size.to_bytes(4, "big") + b"q" * size

    async def connect_idle(self, host: str, port: int, context: ssl.SSLContext | None, *, forwarder: bool) -> None:
        """Connect a device that identifies itself with a few commits and then says nothing."""
        end = await _connect(host, port, context, forwarder=forwarder)
        self.device = end
        greeting = await end.greeting
        if forwarder:
            end.transport.write(b"R" + self.number.to_bytes(2, "big"))
        else:
            self._identify(greeting, IDLE_COMMITS)

    async def connect(self, host: str, port: int, context: ssl.SSLContext | None, *, forwarder: bool) -> None:
        """Connect both ends and introduce them."""
        for name in ("device", "sender"):
            end = await _connect(host, port, context, forwarder=forwarder)
            setattr(self, name, end)
            greeting = await end.greeting
            if forwarder:
                end.transport.write((b"R" if name == "device" else b"L") + self.number.to_bytes(2, "big"))
            elif name == "device":
                self._identify(greeting, PREIMAGES_AT_ONCE)
        self._registers = not forwarder
        if forwarder:
            self._make_preimages()
        self.device.on_frame = self._on_device_frame
        self.sender.on_frame = self._on_sender_frame

    def start(self) -> None:
        """Ask for the first time."""
        self.running = True
        self._ask()

    def _identify(self, greeting: bytes, commit_count: int) -> None:
        nonce = decode_hello(greeting).relay_nonce
        signature = sign(self._key_pair, signed_bytes(nonce, self._key_pair.public))
        commits = self._make_preimages()[:commit_count]
        self.device.transport.write(encode(IAm(self._key_pair.public, signature, commits)))

    def _make_preimages(self) -> tuple[bytes, ...]:
        fresh = [
            hashlib.sha256(b"%d %d" % (self.number, self._serial + step)).digest() for step in range(PREIMAGES_AT_ONCE)
        ]
        self._serial += PREIMAGES_AT_ONCE
        self._preimages = fresh[::-1] + self._preimages
        return tuple(hashlib.sha256(preimage).digest() for preimage in fresh)

    def _ask(self) -> None:
        self._asked_at = time.perf_counter_ns()
        self.sender.transport.write(self._send_head + self._preimages.pop() + self._send_tail)

    def _on_device_frame(self, _kind: int, payload: bytes) -> None:
        if len(self._preimages) == PREIMAGES_AT_ONCE // 2:
            commits = self._make_preimages()
            if self._registers:
                self.device.transport.write(encode(UpdateCommits(commits)))
        self.device.transport.write(self._ack_head + payload[:4] + self._ack_tail)

    def _on_sender_frame(self, _kind: int, payload: bytes) -> None:
        if self._registers and payload[0]:
            raise RuntimeError(f"status {payload[0]}")
        self.latencies_us.append((time.perf_counter_ns() - self._asked_at) // 1_000)
        if self.running:
            self._ask()


async def connect_pairs(
    url: str, count: int, size: int, context: ssl.SSLContext | None, *, forwarder: bool
) -> list[Pair]:
    """Connect ``count`` pairs that exchange ``size`` bytes each way."""
    host, _, port = url.partition("://")[2].rpartition(":")
    pairs = [Pair(number, size) for number in range(count)]
    for pair in pairs:
        await pair.connect(host, int(port), context, forwarder=forwarder)
    await asyncio.sleep(0.3)  # the last introductions are on their way
    return pairs


async def run_pairs(pairs: list[Pair], seconds: float, warmup_seconds: float) -> Result:
    """Let all pairs exchange as fast as they get answers; the warm-up is not counted."""
    for pair in pairs:
        pair.start()
    await asyncio.sleep(warmup_seconds)
    for pair in pairs:
        pair.latencies_us.clear()
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    latencies = [latency for pair in pairs for latency in pair.latencies_us]
    for pair in pairs:
        pair.running = False
    await asyncio.sleep(0.2)
    return Result(took, len(latencies), latencies)
