"""One TCP or TLS connection as a pipe of bytes, accepted or dialled.

Its sink is the hub's (``server.sinks``) or an SDK connection. A pipe reports received bytes and its write backlog to
its sink, and makes no decisions. Its high-water mark is zero: ``congested`` means that bytes wait in this process,
``drained`` that the kernel has taken all of them.
"""

import array
import asyncio
import fcntl
import hashlib
import socket
import termios
from collections.abc import Callable, Sequence
from typing import Protocol, cast, runtime_checkable

__all__ = ["Pipe", "Sink", "TakesHalfClose"]


class Sink(Protocol):
    """What a pipe reports to; all calls come from the event loop's thread."""

    def connected(self, pipe: "Pipe") -> None:
        """The pipe is established (after the TLS handshake, if there is one)."""

    def received(self, pipe: "Pipe", data: bytes) -> None:
        """Bytes arrived."""

    def congested(self, pipe: "Pipe") -> None:
        """Bytes have begun to wait in this process."""

    def drained(self, pipe: "Pipe") -> None:
        """No byte waits in this process any more."""

    def lost(self, pipe: "Pipe", error: Exception | None) -> None:
        """The connection is gone; last call for this pipe."""


@runtime_checkable
class TakesHalfClose(Protocol):
    """What a sink may have besides: word that the other side has ended its half."""

    def half_closed(self, pipe: "Pipe") -> bool:
        """No more bytes will arrive; return whether the pipe stays open for those that we still write.

        Over TLS it does not, whatever is returned: the transport shuts down right after this call, and only what was
        written until then leaves. A TLS connection whose other side ends without saying so is lost at once.
        """


class Pipe(asyncio.Protocol):
    """The asyncio protocol of one connection.

    ``address`` is the other side's host, or "" when the transport has none.
    """

    __slots__ = ("_is_half", "_is_new", "_sink", "_transport", "address", "is_established", "peer", "waits")

    def __init__(self, sink: Sink, address: str) -> None:
        """Make a pipe that reports to ``sink``."""
        self._sink = sink
        self._transport: asyncio.Transport | None = None
        self._is_half = False
        self._is_new = False
        self.address = address
        self.peer = -1
        """Free for the owner: the number by which it knows this pipe."""
        self.is_established = False
        """True from ``connected`` on; ``lost`` will be or was called for such a pipe, and for no other."""
        self.waits = False
        """True between ``congested`` and ``drained``."""

    async def settled(self) -> None:
        """Return at once: a pipe has no handshake of its own after TLS; see ``listen.Arrival``."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport over; called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self.is_established = True
        self._is_new = True
        try:
            self._sink.connected(self)
        finally:
            self._is_new = False

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; called by the event loop."""
        self._sink.received(self, data)

    def eof_received(self) -> bool:
        """Report that the other side has ended its half, and say whether to stay; called by the event loop."""
        self._is_half = True
        stays = isinstance(self._sink, TakesHalfClose) and self._sink.half_closed(self)
        return stays and not self.is_tls

    def pause_writing(self) -> None:
        """Note that bytes wait; called by the event loop."""
        self.waits = True
        self._sink.congested(self)

    def resume_writing(self) -> None:
        """Note that nothing waits; called by the event loop."""
        self.waits = False
        self._sink.drained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end; called by the event loop."""
        self._transport = None
        self._sink.lost(self, exc)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait in this process."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def untaken_bytes(self) -> int:
        """Bytes that the other side's host has not taken: those that wait here, and those in the kernel.

        The kernel holds megabytes and asks for more only once a third of them has left, so that ``unsent_bytes`` alone
        makes no progress for minutes while a slow peer takes something all the time.
        """
        if self._transport is None:
            return 0
        waiting = array.array("i", [0])
        try:
            fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, waiting)
        except OSError:  # not on every system
            waiting[0] = 0
        return self.unsent_bytes + waiting[0]

    @property
    def is_tls(self) -> bool:
        """Whether it speaks TLS itself; False once it is lost."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def tls_version(self) -> str:
        """Name of the TLS version, or "" on a plain pipe."""
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return str(tls.version()) if tls is not None else ""

    @property
    def certificate_sha256(self) -> bytes:
        """SHA-256, 32 bytes, of the certificate that the other side has shown; nothing when it has shown none."""
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        shown = tls.getpeercert(binary_form=True) if tls is not None else None
        return hashlib.sha256(shown).digest() if shown else b""

    @property
    def close_status(self) -> int | None:
        """Status of the closing handshake, where the transport has one; None without it."""
        return None

    def write(self, chunks: Sequence[bytes]) -> None:
        """Write all chunks in one go; a lost pipe swallows them, its ``lost`` was or will be called."""
        if self._transport is not None:
            self._transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def ack_now(self) -> None:
        """Let the kernel acknowledge what it has received; without it a small write may wait 40 ms for the next one."""
        if self._transport is not None and hasattr(socket, "TCP_QUICKACK"):  # Linux alone has it
            self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def pause(self) -> None:
        """Stop reading."""
        if self._transport is not None and not self._is_half and not self._transport.is_closing():
            self._act(self._transport.pause_reading)

    def resume(self) -> None:
        """Go on reading."""
        if self._transport is not None and not self._is_half and not self._transport.is_closing():
            self._act(self._transport.resume_reading)

    def close(self, status: int = 0) -> None:  # noqa: ARG002 - plain bytes have no closing handshake
        """Close once everything written has left.

        Args:
            status: What the closing handshake says, where the transport has one (RFC 6455 7.4); 0 for a plain end.
        """
        if self._transport is not None:
            self._act(self._transport.close)

    def abort(self) -> None:
        """Close at once and drop what waits."""
        if self._transport is not None:
            self._act(self._transport.abort)

    def _act(self, change: Callable[[], None]) -> None:
        """Change the transport now, or once it reads.

        It begins to read right after ``connection_made``, even one that was closed or paused there, and would leave a
        closed descriptor with the loop: the next connection that gets this number would never be read.
        """
        if self._is_new:
            asyncio.get_running_loop().call_soon(change)
        else:
            change()
