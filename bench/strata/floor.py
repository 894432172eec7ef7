"""Bare picows baselines for the Strata benchmark: ``echo``, ``fan`` (broadcast to all clients) and ``idle``.

Usage: python -m bench.strata.floor echo|fan|idle
"""

from typing import ClassVar

from picows import WSFrame, WSListener, WSMsgType, WSTransport

from bench.bare import run

OK = b'{"type":"OK"}'


class Echo(WSListener):
    """Answers every message."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Take the message, and answer with as many bytes as an OK of a node has."""
        frame.get_payload_as_bytes()
        transport.send(WSMsgType.TEXT, OK.ljust(118))


class Fan(WSListener):
    """Sends every message of any client to all clients that have sent nothing."""

    silent: ClassVar[dict[WSTransport, None]] = {}

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Add the client."""
        self.silent[transport] = None

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Forget the client."""
        self.silent.pop(transport, None)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Copy the message."""
        self.silent.pop(transport, None)
        data = frame.get_payload_as_bytes()
        for other in self.silent:
            other.send(WSMsgType.TEXT, data)
        transport.send(WSMsgType.TEXT, OK)


if __name__ == "__main__":
    run("strata", {"echo": Echo, "fan": Fan, "idle": Echo})
