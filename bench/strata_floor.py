"""Bare picows servers: what the same library does without a relay behind it.

Usage: python -m bench.strata_floor echo|fan|idle
"""

import asyncio
import json
import sys
from typing import ClassVar

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server


class Echo(WSListener):
    """Sends every message back."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Answer with as many bytes as an OK has."""
        transport.send(WSMsgType.TEXT, frame.get_payload_as_bytes()[:118])


class Fan(WSListener):
    """Sends every message of anybody to everybody who has said nothing."""

    everybody: ClassVar[dict[WSTransport, None]] = {}

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Join the audience."""
        self.everybody[transport] = None

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Leave it."""
        self.everybody.pop(transport, None)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Copy the message."""
        self.everybody.pop(transport, None)
        data = frame.get_payload_as_bytes()
        for other in self.everybody:
            other.send(WSMsgType.TEXT, data)
        transport.send(WSMsgType.TEXT, b'{"type":"OK"}')


async def serve(kind: str) -> None:
    """Serve until killed."""
    listener = Fan if kind == "fan" else Echo

    def factory(_request: WSUpgradeRequest) -> WSListener:
        return listener()

    server = await ws_create_server(factory, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"listeners": {"strata": f"ws://127.0.0.1:{port}/strata"}}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
