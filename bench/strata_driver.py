"""WebSocket clients that cost as little as Python allows, so that a benchmark measures the server.

Frames are prepared before the clock starts: text frames with a zero mask, which every server must take. Replies are cut
by their length bytes and looked at no further than a test asks.
"""

import asyncio
import base64
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import orjson
from blake3 import blake3

from waystation.core.dids import encode_did
from waystation.crypto.signing import KeyPair, sign

PACKET_BYTES = 600
AUTHORS = 64


def frame(text: bytes) -> bytes:
    """Return a client's text frame."""
    size = len(text)
    if size < 126:
        head = bytes((0x81, 0x80 | size))
    elif size < 65_536:
        head = bytes((0x81, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x81, 0xFF)) + size.to_bytes(8, "big")
    return head + b"\0\0\0\0" + text


def publish_frames(count: int, timestamp: int, first: int = 0, size: int = PACKET_BYTES) -> list[bytes]:
    """Return PUBLISH frames of signed packets whose canonical form has ``size`` bytes."""
    keys = [KeyPair.from_seed(number.to_bytes(32, "big")) for number in range(1, AUTHORS + 1)]
    heads = [b'{"author_id":"%b","content":{"text":"' % encode_did(key.public).encode() for key in keys]
    tail = b'","type":"POST"},"timestamp":%d,"version":1}' % timestamp
    frames = []
    for number in range(first, first + count):
        head = heads[number % AUTHORS]
        text = b"%d " % number
        text += b"x" * (size - 2 - 226 + 2 - len(head) - len(tail) - len(text))
        preimage = head + text + tail
        signature = sign(keys[number % AUTHORS], preimage)
        packet = b'%b,"packet_id":"0x%b","signature":"0x%b"}' % (
            preimage[:-1],
            blake3(preimage).hexdigest().encode(),
            signature.hex().encode(),
        )
        frames.append(frame(b'{"type":"PUBLISH","packet":%b}' % packet))
    return frames


class Client(asyncio.Protocol):
    """One connection; ``on_messages`` gets every batch of whole messages that one read brought."""

    def __init__(self, path: str, host: str) -> None:
        self.transport: Any = None
        self.on_messages: Callable[[list[bytes]], None] = lambda _messages: None
        self.opened = asyncio.get_running_loop().create_future()
        self.lost = False
        self._buffer = b""
        key = base64.b64encode(os.urandom(16)).decode()
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()

    def connection_made(self, transport: Any) -> None:
        """Ask for the upgrade."""
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Cut messages."""
        if not self.opened.done():
            self._buffer += data
            head, separator, rest = self._buffer.partition(b"\r\n\r\n")
            if not separator:
                return
            assert b" 101 " in head.partition(b"\r\n")[0], head
            self.opened.set_result(None)
            self._buffer, data = b"", rest
        messages = list(self._cut(self._buffer + data if self._buffer else data))
        if messages:
            self.on_messages(messages)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Note the end."""
        self.lost = True

    def _cut(self, data: bytes) -> Iterator[bytes]:
        at, end = 0, len(data)
        while end - at >= 2:
            size, body = data[at + 1], at + 2
            if size == 126:
                size, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif size == 127:
                size, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
            if body > end or body + size > end:
                break
            if data[at] == 0x81:
                yield data[body : body + size]
            at = body + size
        self._buffer = data[at:]


async def connect(url: str, count: int) -> list[Client]:
    """Return so many open connections."""
    host, _, path = url.partition("://")[2].partition("/")
    name, _, port = host.rpartition(":")
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(count):
        _, client = await loop.create_connection(lambda: Client("/" + path, host), name, int(port))
        await client.opened
        clients.append(client)
    return clients


async def publish_all(clients: list[Client], frames: list[bytes], in_flight: int) -> float:
    """Publish every frame with so many in flight on each connection; return the seconds it took."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    waiting = iter(frames)
    left = len(frames)

    def on_messages(client: Client, messages: list[bytes]) -> None:
        nonlocal left
        count = 0
        for message in messages:
            if message.startswith(b'{"type":"OK"'):
                count += 1
            elif b'"AUTH_CHALLENGE"' not in message and not done.done():
                done.set_exception(AssertionError(message))
        left -= count
        more = list(islice(waiting, count))
        if more:
            client.transport.write(b"".join(more))
        if left <= 0 and not done.done():
            done.set_result(None)

    for client in clients:
        client.on_messages = partial(on_messages, client)
    began = loop.time()
    for client in clients:
        client.transport.write(b"".join(islice(waiting, in_flight)))
    await done
    return loop.time() - began


async def read_history(client: Client) -> int:
    """Read all of history in pages of 500 and return how many packets came."""
    done = asyncio.get_running_loop().create_future()
    events = 0

    def ask(cursor: str | None) -> None:
        filters = {"limit": 500} if cursor is None else {"limit": 500, "cursor": cursor}
        text = orjson.dumps({"type": "SUBSCRIBE", "subscription_id": "h", "filters": filters, "want_eose": True})
        client.transport.write(frame(text))

    def on_messages(messages: list[bytes]) -> None:
        nonlocal events
        for message in messages:
            if message.endswith(b'"type":"EVENT"}'):
                events += 1
            elif message.startswith(b'{"type":"EOSE"'):
                end = orjson.loads(message)
                if end["has_more"]:
                    ask(end["cursor"])
                elif not done.done():
                    done.set_result(None)
            elif b'"ERROR"' in message and not done.done():
                done.set_exception(AssertionError(message))

    client.on_messages = on_messages
    ask(None)
    await done
    return events
