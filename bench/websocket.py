"""Minimal WebSocket clients for load generators: upgrade, framing and frame splitting (RFC 6455 4.1, 5.2)."""

import asyncio
import base64
import os
from collections.abc import Callable
from typing import Any, TypeVar

PING = 0x89
PONG = b"\x8a\x80\0\0\0\0"


class Client(asyncio.Protocol):
    """One connection; ``on_bytes`` gets what each read brought after the upgrade."""

    def __init__(self, path: str, host: str) -> None:
        self.transport: Any = None
        self.on_bytes: Callable[[bytes], None]
        self.on_lost: Callable[[], None] = lambda: None
        self.opened = asyncio.get_running_loop().create_future()
        self.lost = False
        self._head: bytes | None = b""
        self._request = upgrade_request(path, host)

    def connection_made(self, transport: Any) -> None:
        """Ask for the upgrade."""
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Wait for the answer to the upgrade, and hand on what comes after it."""
        if self._head is None:
            self.on_bytes(data)
            return
        self._head += data
        head, separator, rest = self._head.partition(b"\r\n\r\n")
        if separator:
            assert b" 101 " in head.partition(b"\r\n")[0], head
            self._head = None
            self.on_upgraded()
            self.on_bytes(rest)

    def on_upgraded(self) -> None:
        """Be open; a protocol that has a handshake of its own begins it here."""
        self.opened.set_result(None)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Note the end."""
        self.lost = True
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("closed during the handshake"))
        self.on_lost()


C = TypeVar("C", bound=Client)


def upgrade_request(path: str, host: str) -> bytes:
    """Return the request that opens a connection."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def client_frame(data: bytes, first_byte: int = 0x81) -> bytes:
    """Return a client's frame, masked with zeros, which every server must take."""
    size = len(data)
    if size < 126:
        head = bytes((first_byte, 0x80 | size))
    elif size < 65_536:
        head = bytes((first_byte, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((first_byte, 0xFF)) + size.to_bytes(8, "big")
    return head + b"\0\0\0\0" + data


def split_frames(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return the first byte and payload of each whole frame of a server, and what is left."""
    frames, at, end = [], 0, len(data)
    while end - at >= 2:
        size, body = data[at + 1], at + 2
        if size == 126:
            size, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        elif size == 127:
            size, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
        if body > end or body + size > end:
            break
        frames.append((data[at], data[body : body + size]))
        at = body + size
    return frames, data[at:]


async def open_connections(url: str, make: Callable[[str, str, int], C], count: int, first: int = 0) -> list[C]:
    """Return so many connections that are open, made from path, host and number."""
    host, _, path = url.partition("://")[2].partition("/")
    name, _, port = host.rpartition(":")
    loop = asyncio.get_running_loop()
    clients = []
    for number in range(first, first + count):
        client = make("/" + path, host, number)
        await loop.create_connection(lambda client=client: client, name, int(port))  # type: ignore[misc]
        await asyncio.wait_for(client.opened, 10)
        clients.append(client)
    return clients
