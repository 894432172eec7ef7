"""One WebSocket as a pipe of messages: frames are assembled into whole messages, and many messages share one write.

``websocket.site`` makes one for an upgraded connection, ``websocket.dial`` for a dialled one. One ``received`` call has
one whole message. Each chunk written becomes one unfragmented frame, and all chunks of a call are one system call.
picows parses the frames. This module handles fragments, limits, control frames and the closing handshake.

Spec: RFC 6455 5 and 7.
"""

import asyncio
import secrets
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from picows import WSCloseCode, WSFrame, WSTransport

from waystation.transport.pipe import Pipe, Sink
from waystation.transport.websocket.liveness import LARGE_BYTES, PETTY_FRAMES_MAX, LivenessTimeouts, Watch

__all__ = ["WebSocketPipe"]

_CONTINUATION: Final = 0x0
_TEXT: Final = 0x1
_BINARY: Final = 0x2
_CLOSE: Final = 0x8
_PING: Final = 0x9
_PONG: Final = 0xA
_FIN: Final = 0x80
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_LENGTH_16: Final = struct.Struct(">BBH")
_LENGTH_64: Final = struct.Struct(">BBQ")
_SHORT: Final = {kind: [bytes((_FIN | kind, size)) for size in range(126)] for kind in (_TEXT, _BINARY)}
_NORMAL: Final = 1000  # status codes of RFC 6455 7.4.1
_PROTOCOL_ERROR: Final = 1002
_UNSUPPORTED: Final = 1003
_POLICY: Final = 1008
_TOO_BIG: Final = 1009
_NO_STATUS: Final = 0  # how picows gives a Close frame without one
_LARGE_FRAME_BYTES: Final = LARGE_BYTES  # after a larger one the read buffer is made anew
_XOR_TABLES: Final = [bytes(byte ^ other for other in range(256)) for byte in range(256)]
_XOR_BY_TABLE_BYTES: Final = 2_048  # measured: from here on four translations are faster than one large number
_TINY_BYTES: Final = 126  # as long as a control frame may be


class WebSocketPipe(Pipe):
    """One WebSocket, accepted or dialled."""

    __slots__ = (
        "_close_status",
        "_ending",
        "_frames",
        "_kind",
        "_masks",
        "_may_gather",
        "_message",
        "_message_bytes_max",
        "_pinged_at",
        "_take_run",
        "_text",
        "behind_bytes",
        "gathered_bytes_max",
        "gathers",
        "has_grown",
        "held",
        "ping_ms",
        "received_status",
        "room_bytes",
        "run",
        "watch",
    )

    def __init__(
        self,
        sink: Sink,
        address: str,
        *,
        text: bool,
        message_bytes_max: int,
        timeouts: LivenessTimeouts,
        masks: bool = False,
    ) -> None:
        """Make a pipe that reports to ``sink``.

        Args:
            sink: Gets whole messages.
            address: The other side's host.
            text: Whether messages are text; a binary one then arrives as the empty message, or as it is when we
                dialled. Else they are binary, and a text closes with 1003.
            message_bytes_max: A larger message closes with 1009.
            timeouts: How long the other side may be silent.
            masks: Whether we dialled, so that what we write must be masked.
        """
        super().__init__(sink, address)
        self._text = text
        self._masks = masks
        self._message_bytes_max = message_bytes_max
        self._take_run: Callable[[Pipe, list[bytes]], None] | None = getattr(sink, "received_many", None)
        self.run: list[bytes] = []
        """Messages of the read under way, if the sink takes many at once."""
        self._may_gather = self._take_run is not None and not text
        self.gathers = self._may_gather
        """Whether the next message may be put into ``run``."""
        self.gathered_bytes_max = min(message_bytes_max, _LARGE_FRAME_BYTES)
        self._frames: WSTransport | None = None
        self._kind = _TEXT
        self._message: bytearray | None = None
        self._ending = False
        self.received_status: int | None = None
        """What the other side closed with, if it did so before us; 0 for a Close frame without a status."""
        self._close_status: int | None = None
        self._pinged_at: float | None = None
        self.ping_ms: float | None = None
        """How long the newest ping took, in milliseconds; None before the first."""
        self.held = False
        """True between ``pause`` and ``resume``."""
        self.behind_bytes = -1
        """How much was in the read buffer after the newest frame, since there was a large one; else -1."""
        self.has_grown = False
        """Whether the read buffer has grown for many frames at once."""
        self.room_bytes = 0
        """Room in the read buffer when it was largest, since it became large; else 0."""
        self.watch = Watch(timeouts)

    def establish(self, frames: WSTransport) -> None:
        """Begin: the handshake is done. Later calls only change what cuts the frames."""
        self._frames = frames
        if not self.is_established:
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

    @property
    def close_status(self) -> int | None:
        """Status of the Close frame that came first, theirs or ours; None without one."""
        return self.received_status if self.received_status is not None else self._close_status

    @property
    def unread_bytes(self) -> int:
        """Bytes of memory that a message takes which is not whole."""
        return self.room_bytes + (len(self._message) if self._message is not None else 0)

    def write(self, chunks: Sequence[bytes]) -> None:
        """Write each chunk as one message, all in one go; a closed pipe swallows them."""
        if self._transport is None or self._ending:
            return
        kind = _TEXT if self._text else _BINARY
        self._transport.write((_masked if self._masks else _plain)(kind, chunks))

    def pause(self) -> None:
        """Stop reading."""
        self.held = True
        super().pause()

    def resume(self) -> None:
        """Go on reading."""
        self.held = False
        super().resume()

    def close(self, status: int = 0) -> None:
        """Send a Close frame after everything written, and end once the other side has answered it.

        Until then what it says is dropped. Who never answers is cut by the site's timer.

        Args:
            status: RFC 6455 7.4; 0 means 1000.
        """
        if self._frames is not None and not self._ending:
            self._ending = True
            self._close_status = status or _NORMAL
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

    def renewed(self) -> None:
        """A small read buffer has taken the place of a large one."""
        self.behind_bytes = -1
        self.has_grown = False
        self.room_bytes = 0
        if self._message is None:
            self.watch.large_since = None
        self.gathers = self._may_gather and self._message is None

    def hand_over(self) -> None:
        """Pass on what was gathered."""
        run, self.run = self.run, []
        if not self._ending:
            assert self._take_run is not None
            self._take_run(self, run)

    def ping(self) -> None:
        """Ask whether the other side is there."""
        if self._frames is not None and not self._ending:
            self._pinged_at = asyncio.get_running_loop().time()
            self._frames.send_ping()

    def frame_received(self, frame: WSFrame) -> None:
        """Take one frame; called by picows."""
        kind = int(cast("Any", frame.msg_type))
        if self.behind_bytes >= 0:
            self.behind_bytes = frame.tail_size  # of pings too: else they would keep what a large message left behind
        if kind == _CLOSE:
            self._on_close(frame)
        elif self._ending:
            return
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(_PROTOCOL_ERROR)
        elif (kind > _BINARY or not frame.fin) and frame.payload_size < _TINY_BYTES and self._is_petty():
            self.close(_POLICY)
            self.pause()  # reading on would cost what the limit is there to save
        elif kind <= _BINARY:
            self._on_data(kind, frame)
        elif kind == _PONG:
            self._on_pong(frame)
        elif kind == _PING and not self.waits:  # else pongs would pile up for who pings and does not read
            assert self._frames is not None
            self._frames.send_pong(frame.get_payload_as_bytes())

    def _is_petty(self) -> bool:
        """Count a frame that carries nothing; return whether there were too many."""
        self.watch.petty_frames += 1
        return self.watch.petty_frames > PETTY_FRAMES_MAX

    def _on_pong(self, frame: WSFrame) -> None:
        if self._pinged_at is not None:
            self.ping_ms = (asyncio.get_running_loop().time() - self._pinged_at) * 1_000
            self._pinged_at = None
        if self.has_grown:
            self.behind_bytes = frame.tail_size  # it was silent: what its buffer has grown to is not needed any more

    def _on_close(self, frame: WSFrame) -> None:
        """End after the other side's Close frame, which is answered with its own status."""
        if self._transport is None:
            return
        if not self._ending:
            self.received_status = status = int(cast("Any", frame.get_close_code()))
            self.close(_NORMAL if status == _NO_STATUS else status)
        self._transport.close()

    def _on_data(self, kind: int, frame: WSFrame) -> None:
        if frame.payload_size > _LARGE_FRAME_BYTES or self.behind_bytes >= 0:
            self.behind_bytes = frame.tail_size
            self.gathers = False
        message = self._message
        if (kind == _CONTINUATION) is (message is None):
            self.close(_PROTOCOL_ERROR)
            return
        size = frame.payload_size if message is None else len(message) + frame.payload_size
        if size > self._message_bytes_max:
            self.close(_TOO_BIG)
            return
        if message is None:
            if frame.fin:
                self._deliver(kind, frame.get_payload_as_bytes())
                return
            self._kind = kind
            self.gathers = False  # what follows belongs to this message
            message = self._message = bytearray()
        message += frame.get_payload_as_memoryview()
        if frame.fin:
            self._message = None
            self.watch.large_since = None
            self.gathers = self._may_gather and self.behind_bytes < 0
            self._deliver(self._kind, bytes(message))

    def _deliver(self, kind: int, message: bytes) -> None:
        if (kind == _TEXT) is self._text:
            self._sink.received(self, message)
        elif self._text:
            self._sink.received(self, message if self._masks else b"")
        else:
            self.close(_UNSUPPORTED)


def _plain(kind: int, chunks: Sequence[bytes]) -> bytes:
    """Return one frame per chunk, as a server sends them."""
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
    return b"".join(parts)


def _masked(kind: int, chunks: Sequence[bytes]) -> bytes:
    """Return one frame per chunk, as a client sends them: each with an unpredictable mask."""
    entropy = secrets.token_bytes(_MASK_BYTES * len(chunks))
    parts: list[bytes] = []
    for number, chunk in enumerate(chunks):
        size = len(chunk)
        if size < 126:
            head = bytes((_FIN | kind, _MASKED | size))
        elif size < 65_536:
            head = _LENGTH_16.pack(_FIN | kind, _MASKED | 126, size)
        else:
            head = _LENGTH_64.pack(_FIN | kind, _MASKED | 127, size)
        mask = entropy[number * _MASK_BYTES : (number + 1) * _MASK_BYTES]
        parts += (head, mask, _xor(chunk, mask))
    return b"".join(parts)


def _xor(data: bytes, mask: bytes) -> bytes:
    """Return ``data`` under a mask of 4 bytes; a server's frames have none, so only what we dialled pays for it."""
    size = len(data)
    if size < _XOR_BY_TABLE_BYTES:
        repeated = (mask * (size // _MASK_BYTES + 1))[:size]
        return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")
    masked = bytearray(size)
    for position, byte in enumerate(mask):
        masked[position::_MASK_BYTES] = data[position::_MASK_BYTES].translate(_XOR_TABLES[byte])
    return bytes(masked)
