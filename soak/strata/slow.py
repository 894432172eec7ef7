"""Tests that a Strata node keeps a slow reader, which catches up fully, and disconnects one that reads nothing.

Both subscribe before publishing begins, with minimal kernel buffers. The slow reader takes a few bytes at a time and
later reads everything. The silent reader must be disconnected after about a minute; its socket and the log are checked.
"""

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import orjson

from bench.strata.driver import Publisher, publish_frames
from bench.websocket import PING, PONG, client_frame, split_frames, upgrade_request
from soak.invariants import ended_well
from soak.strata.nodes import StrataNode, id_of

SILENT_S = 60.0
RECEIVE_BUFFER_BYTES = 8_192
STREAM_BYTES = 1_024
"""What this process takes by itself is at most a few times this."""
TAKE_EVERY_S = 0.5
SUBSCRIBE = b'{"type":"SUBSCRIBE","subscription_id":"s"}'
_READ_BYTES = 1_048_576


def check(folder: Path, seed: int, packets: int = 40_000, slow_s: float = 130.0, bytes_per_s: int = 2_048) -> str:
    """Be slow for so long at such a rate, then read everything; return what happened."""
    frames = publish_frames(packets, int(time.time()), seed * 1_000_000)
    node = StrataNode(folder / "home")
    with ended_well(node):
        found = asyncio.run(_read(node.start(), frames, slow_s, bytes_per_s))
    return f"{packets} packets; {found}"


async def _read(node: StrataNode, frames: list[bytes], slow_s: float, bytes_per_s: int) -> str:
    slow, silent = await RawReader.connect(node.port), await RawReader.connect(node.port)
    publisher = Publisher(frames, 64)
    await publisher.begin(node.url, 2)
    ends_at = time.monotonic() + slow_s
    while time.monotonic() < ends_at:
        await asyncio.sleep(TAKE_EVERY_S)
        assert await slow.take(int(bytes_per_s * TAKE_EVERY_S)), f"cut {ends_at - time.monotonic():.0f} s too early"
    await asyncio.wait_for(publisher.done.wait(), 300)
    wanted = {id_of(each) for each in frames}
    missing = len(wanted) - len(slow.ids)
    while len(slow.ids) < len(wanted):
        assert await slow.take(_READ_BYTES), f"cut with {len(slow.ids)} of {len(wanted)}"
    assert len(slow.ids) == len(wanted), "a packet came twice"
    assert set(slow.ids) == wanted
    how = f"; the silent one saw {await silent.end()}" if slow_s > SILENT_S + 10 else ""
    slow.close()
    silent.close()
    await publisher.close()
    return f"the slow one was {missing} short after {slow_s:.0f} s at {bytes_per_s} B/s and got them all{how}"


class RawReader:
    """A WebSocket client that takes bytes from its connection only when asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ids: list[str] = []
        self._reader = reader
        self._writer = writer
        self._buffer = b""

    @classmethod
    async def connect(cls, port: int) -> "RawReader":
        """Return a subscribed reader."""
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=plain, limit=STREAM_BYTES)
        writer.write(upgrade_request("/strata", f"127.0.0.1:{port}"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(client_frame(SUBSCRIBE))
        return cls(reader, writer)

    async def take(self, count: int) -> bool:
        """Take at most so many bytes, if there are any within a second; return whether the connection is open."""
        try:
            data = await asyncio.wait_for(self._reader.read(count), 1)
        except TimeoutError:
            return True
        except ConnectionError:
            return False
        self._cut(data)
        return bool(data)

    async def end(self) -> str:
        """Read to the end; return the close status, or how else it ended.

        Raises:
            TimeoutError: It has not ended.
        """
        try:
            while data := await asyncio.wait_for(self._reader.read(_READ_BYTES), 20):
                if status := self._cut(data):
                    return f"close status {status}"
        except ConnectionError as error:
            return type(error).__name__
        return "an end without a close frame"

    def close(self) -> None:
        """Drop the connection."""
        self._writer.transport.abort()

    def _cut(self, data: bytes) -> int:
        """Take whole frames; note the packets in them; return the status of a close frame, else 0."""
        frames, self._buffer = split_frames(self._buffer + data)
        for first_byte, payload in frames:
            if first_byte == 0x88:
                return int.from_bytes(payload[:2], "big")
            if first_byte == PING:
                self._writer.write(PONG)
            elif first_byte == 0x81:
                message: dict[str, Any] = orjson.loads(payload)
                if message["type"] == "EVENT":
                    self.ids.append(message["packet"]["packet_id"])
        return 0
