"""Bare picows servers that let MERK clients in: ``forward`` hands frames on by their target, ``idle`` keeps nothing.

Usage: python -m bench.merk_floor forward|idle

They believe every answer to a challenge, so that only forwarding is compared.
"""

import asyncio
import json
import os
import sys
from typing import ClassVar

import uvloop
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

HANDSHAKE = 1
NODE_INFO = 3
OWN_KEY = os.urandom(32)


def make_frame(kind: int, payload: bytes, sender: bytes = bytes(32)) -> bytes:
    """Return a frame without a signature."""
    return b"X\1%c\0" % kind + len(payload).to_bytes(4, "big") + bytes(16) + sender + bytes(64) + payload


class Idle(WSListener):
    """Answers the handshake and forgets it."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Challenge."""
        transport.send(WSMsgType.BINARY, make_frame(HANDSHAKE, os.urandom(32)))

    def on_ws_frame(self, transport: WSTransport, _frame: WSFrame) -> None:
        """Confirm."""
        transport.send(WSMsgType.BINARY, make_frame(HANDSHAKE, b"\1", OWN_KEY))


class Forward(WSListener):
    """Hands each frame to the client its target names."""

    clients: ClassVar[dict[bytes, WSTransport]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.key = b""

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Challenge."""
        transport.send(WSMsgType.BINARY, make_frame(HANDSHAKE, os.urandom(32)))

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        """Forget the client."""
        self.clients.pop(self.key, None)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Parse the header and forward, or let the client in."""
        data = frame.get_payload_as_bytes()
        if data[:2] != b"X\1" or int.from_bytes(data[4:8], "big") != len(data) - 120:
            transport.send_close(WSCloseCode.PROTOCOL_ERROR)
        elif data[2] == HANDSHAKE:
            self.key = data[24:56]
            self.clients[self.key] = transport
            transport.send(WSMsgType.BINARY, make_frame(HANDSHAKE, b"\1", OWN_KEY))
        elif data[2] != NODE_INFO and data[24:56] == self.key:
            other = self.clients.get(data[120:152])
            if other is not None:
                other.send(WSMsgType.BINARY, data)


async def serve(kind: str) -> None:
    """Serve until killed."""
    listener: type[WSListener] = Forward if kind == "forward" else Idle

    def factory(_request: WSUpgradeRequest) -> WSListener:
        return listener()

    server = await ws_create_server(factory, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"listeners": {"merk": f"ws://127.0.0.1:{port}/merk"}}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
