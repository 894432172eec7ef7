"""A reader that takes something is never cut and catches up fully; one that takes nothing for a minute is.

Both subscribe before a publisher begins, and their kernels hold as little as they can. The slow one then takes a few
bytes at a time; later it reads all. How the silent one's connection ends is looked at from its side and in the log.
"""

import asyncio
import base64
import os
import socket
import time
from pathlib import Path
from typing import Any

import orjson

from bench.strata_driver import frame, publish_frames
from soak.nodes import Publisher, StrataNode, id_of

SILENT_S = 60.0
RECEIVE_BUFFER_BYTES = 8_192
TAKE_EVERY_S = 0.5
PONG = b"\x8a\x80\0\0\0\0"
SUBSCRIBE = b'{"type":"SUBSCRIBE","subscription_id":"s"}'
_READ_BYTES = 1_048_576


def law(folder: Path, seed: int, packets: int = 40_000, slow_s: float = 130.0, bytes_per_s: int = 2_048) -> str:
    """Be slow for so long at such a rate, then read everything; return what happened."""
    frames = publish_frames(packets, int(time.time()), seed * 1_000_000)
    with StrataNode(folder / "home").start() as node:
        told = asyncio.run(_read(node, frames, slow_s, bytes_per_s))
        node.stop()
    return f"{packets} packets; {told}"


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
    behind = len(wanted) - len(slow.ids)
    while len(slow.ids) < len(wanted):
        assert await slow.take(_READ_BYTES), f"cut with {len(slow.ids)} of {len(wanted)}"
    assert len(slow.ids) == len(wanted), "a packet came twice"
    assert set(slow.ids) == wanted
    how = f"; the silent one saw {await silent.end()}" if slow_s > SILENT_S + 10 else ""
    slow.close()
    silent.close()
    await publisher.close()
    return f"the slow one was {behind} behind after {slow_s:.0f} s at {bytes_per_s} B/s and got them all{how}"


class RawReader:
    """A WebSocket client on a bare socket that takes bytes only when asked to."""

    def __init__(self, plain: socket.socket) -> None:
        self.ids: list[str] = []
        self._socket = plain
        self._buffer = bytearray()

    @classmethod
    async def connect(cls, port: int) -> "RawReader":
        """Return a subscribed reader."""
        loop = asyncio.get_running_loop()
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        plain.setblocking(False)
        await loop.sock_connect(plain, ("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET /strata HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        await loop.sock_sendall(plain, request.encode())
        reader = cls(plain)
        while b"\r\n\r\n" not in reader._buffer:
            reader._buffer += await loop.sock_recv(plain, 4_096)
        del reader._buffer[: reader._buffer.index(b"\r\n\r\n") + 4]
        await loop.sock_sendall(plain, frame(SUBSCRIBE))
        return reader

    async def take(self, count: int) -> bool:
        """Take at most so many bytes, if there are any within a second; return whether the connection stands."""
        try:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._socket, count), 1)
        except TimeoutError:
            return True
        except ConnectionError:
            return False
        self._buffer += data
        self._cut()
        return bool(data)

    async def end(self) -> str:
        """Read to the end; return the close status, or how else it ended.

        Raises:
            TimeoutError: It has not ended.
        """
        loop = asyncio.get_running_loop()
        try:
            while data := await asyncio.wait_for(loop.sock_recv(self._socket, _READ_BYTES), 20):
                self._buffer += data
                status = self._cut()
                if status:
                    return f"close status {status}"
        except ConnectionError as error:
            return type(error).__name__
        return "an end without a close frame"

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()

    def _cut(self) -> int:
        """Take whole frames; note the packets in them; return the status of a close frame, else 0."""
        data, at = self._buffer, 0
        while len(data) - at >= 2:
            size, body = data[at + 1] & 0x7F, at + 2
            if size == 126:
                size, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif size == 127:
                size, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
            if body + size > len(data):
                break
            if data[at] == 0x88:
                return int.from_bytes(data[body : body + 2], "big")
            if data[at] == 0x89:
                self._socket.send(PONG)
            elif data[at] == 0x81:
                message: dict[str, Any] = orjson.loads(bytes(data[body : body + size]))
                if message["type"] == "EVENT":
                    self.ids.append(message["packet"]["packet_id"])
            at = body + size
        del data[:at]
        return 0
