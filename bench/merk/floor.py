"""Bare picows baselines for MERK clients: ``forward`` passes frames to their target, ``idle`` keeps no state.

Usage: python -m bench.merk.floor forward|idle

Both accept every authentication answer unchecked, so that only forwarding is compared.
"""

import os
from typing import ClassVar

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from bench.bare import run
from waystation.protocols.merk.relay.authentication import challenge_frame, confirm_frame

HANDSHAKE = 1
NODE_INFO = 3
OWN_KEY = os.urandom(32)


class Idle(WSListener):
    """Answers the handshake and forgets it."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Challenge."""
        transport.send(WSMsgType.BINARY, challenge_frame(os.urandom(32)))

    def on_ws_frame(self, transport: WSTransport, _frame: WSFrame) -> None:
        """Confirm."""
        transport.send(WSMsgType.BINARY, confirm_frame(OWN_KEY))


class Forward(Idle):
    """Hands each frame to the client its target names."""

    clients: ClassVar[dict[bytes, WSTransport]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.key = b""

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
            transport.send(WSMsgType.BINARY, confirm_frame(OWN_KEY))
        elif data[2] != NODE_INFO and data[24:56] == self.key:
            other = self.clients.get(data[120:152])
            if other is not None:
                other.send(WSMsgType.BINARY, data)


if __name__ == "__main__":
    run("merk", {"forward": Forward, "idle": Idle})
