"""Splits a byte stream into WebSocket frames with the picows parser, for servers and clients, with bounded memory.

The WebSocket dialler and site put one below each pipe. picows never shrinks its read buffer, so one large message would
occupy its size for the life of the connection. After a large message a new ``Cutter`` with a small buffer replaces the
old one. picows requires a handshake first, so the new cutter gets a simulated one that is never sent.
"""

import asyncio
import sys
from typing import Any, Final

from picows import WSFrame, WSListener, WSMsgType, WSProtocolError, WSTransport
from picows.picows import WSProtocol  # type: ignore[attr-defined] # public, but its stub leaves it out

from waystation.transport.websocket.liveness import LARGE_BYTES, LivenessSweep
from waystation.transport.websocket.pipe import WebSocketPipe

__all__ = ["Cutter", "FrameListener"]

_BINARY: Final = WSMsgType.BINARY
_READ_BUFFER_BYTES: Final = 4_096  # grows for larger frames
_GROWN_BUFFER_BYTES: Final = LARGE_BYTES  # and up to here for who fills it, so that one read brings many frames


class Cutter(WSProtocol):  # type: ignore[misc] # see its import
    """The asyncio protocol below one WebSocket, from its handshake on."""

    def __init__(self, rounds: LivenessSweep, pipe: WebSocketPipe | None, **picows: Any) -> None:
        """Make a cutter.

        Args:
            rounds: Watches the pipe once it is established.
            pipe: Gets the frames; None until the request of a new connection is read.
            picows: What differs between the sides: ``host_port``, ``ws_path``, ``is_client_side``,
                ``ws_listener_factory`` and ``max_frame_size``.
        """
        super().__init__(
            **picows,
            logger=_QUIET,
            disconnect_on_exception=True,
            websocket_handshake_timeout=None,  # the listener or dialler has a limit of its own, from TLS on
            enable_auto_ping=False,
            auto_ping_idle_timeout=0,
            auto_ping_reply_timeout=0,
            auto_ping_strategy=1,
            enable_auto_pong=False,
            extra_headers=None,
            read_buffer_init_size=_READ_BUFFER_BYTES,
        )
        self.sweep = rounds
        self.pipe = pipe
        self._offered = 0
        """Bytes there was room for at the last read."""
        self._was_filled = False

    def renewed(self) -> "Cutter":
        """Return a fresh cutter for the same pipe."""
        raise AssertionError("each side has its own")

    def handshake_again(self, said: bytes) -> bytes:
        """Return what the other side says in a handshake, when ``said`` is what we say first."""
        raise AssertionError(f"each side has its own, also for {len(said)} bytes")

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return where bytes go: not quite all room there is, because picows doubles a buffer that was filled.

        That is what who has much to say needs, up to a limit.
        """
        view: memoryview = super().get_buffer(size_hint)
        room = len(view)
        if self._was_filled and 2 * room <= _GROWN_BUFFER_BYTES and self.pipe is not None:
            self.pipe.has_grown = True
        else:
            if room > LARGE_BYTES and self.pipe is not None and room > self.pipe.room_bytes:
                self.pipe.room_bytes = room
            room -= room >> 3
        self._offered = room
        return view[:room]

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes."""
        self._was_filled = nbytes == self._offered
        super().buffer_updated(nbytes)
        pipe = self.pipe
        if pipe is not None:
            if pipe.run:
                pipe.hand_over()
            pipe.watch.received = True
            if self.transport.is_close_frame_sent and not pipe.ending:
                pipe.give_up()
            if not pipe.behind_bytes and not pipe.ending:
                pipe.renewed()
                self._renew()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end to the task that waits for it."""
        super().connection_lost(exc)
        if self.pipe is not None and self.pipe.is_established:
            self.sweep.left(self.pipe)
            self.pipe.connection_lost(exc)

    def _renew(self) -> None:
        """Put a fresh cutter in our place; nothing waits in ours."""
        transport = self.transport.underlying_transport
        transport = transport.behind if isinstance(transport, _Unheard) else transport
        if transport.is_closing():
            return
        fresh, deaf = self.renewed(), _Unheard(transport)
        fresh.connection_made(deaf)
        answer = fresh.handshake_again(deaf.unheard)
        fresh.get_buffer(-1)[: len(answer)] = answer
        WSProtocol.buffer_updated(fresh, len(answer))
        transport.set_protocol(fresh)


class FrameListener(WSListener):
    """Receives what picows reports about one connection."""

    def __init__(self, rounds: LivenessSweep, pipe: WebSocketPipe) -> None:
        """Pass everything on to ``pipe``, and its beginning to ``rounds``."""
        self._rounds = rounds
        self._pipe = pipe

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Establish the pipe, or give it the fresh cutter's transport."""
        transport.request.headers.clear()  # picows keeps both as long as the connection lives
        transport.response.headers.clear()
        if not self._pipe.is_established:
            self._rounds.joined(self._pipe)
        self._pipe.establish(transport)

    def pause_writing(self) -> None:
        """Pass on that bytes wait."""
        self._pipe.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that nothing waits."""
        self._pipe.resume_writing()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:  # noqa: ARG002 - a pipe has one transport
        """Pass a frame on; whole messages of one read are gathered and passed on together."""
        pipe = self._pipe
        if (
            frame.msg_type is _BINARY
            and frame.fin
            and pipe.gathers
            and frame.payload_size <= pipe.gathered_bytes_max
            and not (frame.rsv1 or frame.rsv2 or frame.rsv3)
        ):
            pipe.run.append(frame.get_payload_as_bytes())
            return
        if pipe.run:
            pipe.hand_over()
        pipe.frame_received(frame)


class _Unheard:
    """A transport that swallows the first write and keeps it."""

    def __init__(self, behind: asyncio.Transport) -> None:
        self.behind = behind
        self.unheard = b""
        self._is_deaf = True

    def write(self, data: bytes) -> None:
        """Write, unless it is the first time."""
        if self._is_deaf:
            self._is_deaf = False
            self.unheard = bytes(data)
        else:
            self.behind.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


class _Quiet:
    """Where picows logs: faults of peers are not logged, failures of ours go to the loop's handler."""

    def isEnabledFor(self, _level: int) -> bool:  # noqa: N802 - logging's name
        return False

    def debug(self, *_: object) -> None:
        """Say nothing."""

    info = warning = log = debug

    def error(self, message: str, *_: object) -> None:
        """Pass on what is not the fault of a peer."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, WSProtocolError):
            asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    exception = error


_QUIET: Final = _Quiet()
