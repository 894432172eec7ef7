"""One WebSocket of a client: frames in, whole messages out, and one write for many messages.

A ``WebSocketPipe`` is a pipe whose chunks are messages: one ``received`` is one whole message, and each chunk written
leaves as one unfragmented frame, all chunks of a call in one system call. picows cuts the frames; fragments, limits,
control frames and the closing handshake are ours.

Spec: RFC 6455 5 and 7.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final, cast

from picows import WSCloseCode, WSFrame, WSTransport

from waystation.transport.pipe import Pipe, Sink

__all__ = ["Watch", "WebSocketPipe"]

_CONTINUATION: Final = 0x0
_TEXT: Final = 0x1
_BINARY: Final = 0x2
_CLOSE: Final = 0x8
_PING: Final = 0x9
_FIN: Final = 0x80
_LENGTH_16: Final = struct.Struct(">BBH")
_LENGTH_64: Final = struct.Struct(">BBQ")
_SHORT: Final = {kind: [bytes((_FIN | kind, size)) for size in range(126)] for kind in (_TEXT, _BINARY)}
_NORMAL: Final = 1000  # status codes of RFC 6455 7.4.1
_PROTOCOL_ERROR: Final = 1002
_TOO_BIG: Final = 1009
_NO_STATUS: Final = 0  # how picows gives a Close frame without one
_LARGE_FRAME_BYTES: Final = 65_536  # behind a larger one the read buffer is made anew


class Watch:
    """What the site's timer knows of one pipe; times are the loop's."""

    __slots__ = ("ending_since", "heard", "pinged_at", "quiet_since", "unsent_bytes")

    def __init__(self) -> None:
        self.heard = True
        """Whether any byte arrived since the last look."""
        self.quiet_since = 0.0
        self.pinged_at: float | None = None
        self.ending_since: float | None = None
        self.unsent_bytes = 0


class WebSocketPipe(Pipe):
    """One WebSocket that a client opened."""

    __slots__ = (
        "_ending",
        "_frames",
        "_kind",
        "_message",
        "_message_bytes_max",
        "_text",
        "behind_bytes",
        "held",
        "watch",
    )

    def __init__(self, sink: Sink, address: str, *, text: bool, message_bytes_max: int) -> None:
        """Make a pipe that reports to ``sink``.

        Args:
            sink: Gets whole messages; one of the other type arrives as the empty message.
            address: The other side's host.
            text: Whether messages are text; else binary.
            message_bytes_max: A larger message closes with 1009.
        """
        super().__init__(sink, address)
        self._text = text
        self._message_bytes_max = message_bytes_max
        self._frames: WSTransport | None = None
        self._kind = _TEXT
        self._message: bytearray | None = None
        self._ending = False
        self.held = False
        """True between ``pause`` and ``resume``."""
        self.behind_bytes = -1
        """How much stood in the read buffer behind the newest frame, since there was a large one; else -1."""
        self.watch = Watch()

    def stand(self, frames: WSTransport) -> None:
        """Begin: the handshake is done. Later calls only change what cuts the frames."""
        self._frames = frames
        if not self.stood:
            self.connection_made(frames.underlying_transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end."""
        self._frames = None
        self._message = None
        super().connection_lost(exc)

    @property
    def ending(self) -> bool:
        """Whether a Close frame was sent or received: no message passes any more."""
        return self._ending

    def write(self, chunks: Sequence[bytes]) -> None:
        """Write each chunk as one message, all in one go; a closed pipe swallows them."""
        if self._transport is None or self._ending:
            return
        kind = _TEXT if self._text else _BINARY
        short = _SHORT[kind]
        parts: list[bytes] = []
        for chunk in chunks:
            size = len(chunk)
            if size < 126:
                parts += (short[size], chunk)
            elif size < 65_536:
                parts += (_LENGTH_16.pack(_FIN | kind, 126, size), chunk)
            else:
                parts += (_LENGTH_64.pack(_FIN | kind, 127, size), chunk)
        self._transport.write(b"".join(parts))

    def pause(self) -> None:
        """Stop reading."""
        self.held = True
        super().pause()

    def resume(self) -> None:
        """Go on reading."""
        self.held = False
        super().resume()

    def close(self, status: int = 0) -> None:
        """Send a Close frame behind everything written, and end once the other side has answered it.

        Until then what it says is dropped. Who never answers is cut by the site's timer.

        Args:
            status: RFC 6455 7.4; 0 means 1000.
        """
        if self._frames is not None and not self._ending:
            self._ending = True
            self._message = None
            self._frames.send_close(cast("WSCloseCode", status or _NORMAL))
            self.resume()

    def abort(self) -> None:
        """Close at once and drop what waits."""
        self._ending = True
        super().abort()

    def give_up(self) -> None:
        """Stop reading: picows has found a fault, said so, and is about to close."""
        self._ending = True
        self._message = None
        self.pause()

    def ping(self) -> None:
        """Ask whether the other side is there."""
        if self._frames is not None and not self._ending:
            self._frames.send_ping()

    def frame_received(self, frame: WSFrame) -> None:
        """Take one frame; called by picows."""
        kind = int(cast("Any", frame.msg_type))
        if kind == _CLOSE:
            self._on_close(frame)
        elif self._ending:
            return
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(_PROTOCOL_ERROR)
        elif kind <= _BINARY:
            self._on_data(kind, frame)
        elif kind == _PING and not self.waits:  # else pongs would pile up for who pings and does not read
            assert self._frames is not None
            self._frames.send_pong(frame.get_payload_as_bytes())

    def _on_close(self, frame: WSFrame) -> None:
        """End after the other side's Close frame, which is answered with its own status."""
        if self._transport is None:
            return
        if not self._ending:
            status = int(cast("Any", frame.get_close_code()))
            self.close(_NORMAL if status == _NO_STATUS else status)
        self._transport.close()

    def _on_data(self, kind: int, frame: WSFrame) -> None:
        if frame.payload_size > _LARGE_FRAME_BYTES or self.behind_bytes >= 0:
            self.behind_bytes = frame.tail_size
        message = self._message
        if (kind == _CONTINUATION) is (message is None):
            self.close(_PROTOCOL_ERROR)
            return
        if message is None:
            if frame.fin:
                self._deliver(kind, frame.get_payload_as_bytes())
                return
            self._kind = kind
            message = self._message = bytearray()
        if len(message) + frame.payload_size > self._message_bytes_max:
            self.close(_TOO_BIG)
            return
        message += frame.get_payload_as_memoryview()
        if frame.fin:
            self._message = None
            self._deliver(self._kind, bytes(message))

    def _deliver(self, kind: int, message: bytes) -> None:
        self._sink.received(self, message if (kind == _TEXT) is self._text else b"")
