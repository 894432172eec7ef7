"""Dialling a WebSocket: a link of whole messages, and a pipe over it for whoever drives machines.

The client is the `websockets` library: what dials has few connections, and the reference implementation is worth more
there than speed. It would follow redirects; we do not: a relay must not send its clients to their own network, and what
is known of an address (its key, who named it) says nothing about another one.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from picows import WSHandshakeError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from waystation.core.errors import HostError, LocalError
from waystation.transport.pipe import Pipe, Sink
from waystation.transport.websocket import MESSAGE_BYTES_MAX

__all__ = ["LinkPipe", "WebSocketLink", "dial_websocket", "host_of", "why_unreachable"]

PING_EVERY_S: Final = 20.0
PONG_WITHIN_S: Final = 30.0
_NORMAL: Final = 1000
_UNSUPPORTED: Final = 1003


class WebSocketLink:
    """A WebSocket that we opened; made by ``dial_websocket``."""

    def __init__(self, connection: ClientConnection, host: str, *, text: bool = True) -> None:
        """Take over a connection that stands; ``text`` as in ``dial_websocket``."""
        self._connection = connection
        self._text = text
        self.host = host
        """The name or address that was dialled."""

    @property
    def status(self) -> int | None:
        """Status that the other side closed with, else ours, 1006 without any; None while the link stands."""
        protocol = self._connection.protocol
        close = protocol.close_rcvd or protocol.close_sent
        return protocol.close_code if close is None or protocol.close_code is None else int(close.code)

    @property
    def ping_ms(self) -> float | None:
        """How long the newest ping took, in milliseconds; None before the first."""
        return self._connection.latency * 1_000 or None

    @property
    def transport(self) -> asyncio.Transport:
        """The connection below, for those who pause it or watch its buffer."""
        return self._connection.transport

    async def send(self, message: bytes) -> None:
        """Send one message; returns when it may be forgotten.

        Raises:
            HostError: The link is over.
        """
        try:
            await self._connection.send(message, text=self._text)
        except ConnectionClosed as error:
            raise HostError(f"the connection to {self.host} is over: {error}") from error

    async def receive(self) -> bytes | None:
        """Return the next message, or None when there will be none; ``status`` says why.

        A text link takes messages of either type; a binary one closes with 1003 when it is sent text.
        """
        try:
            message: bytes | str = await self._connection.recv(decode=False if self._text else None)
            if isinstance(message, bytes):
                return message
            await self._connection.close(_UNSUPPORTED)
        except (ConnectionClosed, UnicodeDecodeError):
            pass
        return None

    async def close(self, status: int = _NORMAL) -> None:
        """Close and wait for the other side's answer, 10 s at most; safe to call twice."""
        await self._connection.close(status)


async def dial_websocket(
    url: str,
    *,
    text: bool = True,
    context: ssl.SSLContext | None = None,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    open_timeout_s: float = 10.0,
    extra_headers: Mapping[str, str] | None = None,
    authority: str = "--ca FILE",
) -> WebSocketLink:
    """Open a WebSocket. Redirects are not followed.

    Args:
        url: ``ws://host:port/path`` or ``wss://...``.
        text: Whether messages are sent as text and taken whatever their type; else both ways are binary.
        context: TLS context for ``wss`` (None means the system's authorities); not used for ``ws``.
        message_bytes_max: A larger message from the other side closes with 1009.
        open_timeout_s: For name lookup, connecting, TLS and the handshake together.
        extra_headers: Of the request.
        authority: As for ``why_unreachable``.

    Raises:
        LocalError: The text is no address.
        HostError: Nobody listens, no answer in time, the certificate is not trusted, or the answer is a refusal.
    """
    host = host_of(url)
    secure = url.lower().startswith("wss:")
    try:
        connection = await _Connect(
            url,
            ssl=(context or ssl.create_default_context()) if secure else None,
            additional_headers=extra_headers,
            compression=None,
            proxy=None,
            max_size=message_bytes_max,
            open_timeout=open_timeout_s,
            ping_interval=PING_EVERY_S,
            ping_timeout=PONG_WITHIN_S,
        )
    except InvalidURI as error:
        raise LocalError(f"not a WebSocket address: {url!r}") from error
    except (OSError, EOFError, UnicodeError, InvalidHandshake) as error:  # TimeoutError and SSLError are OSErrors
        raise HostError(why_unreachable(url, host, error, open_timeout_s, authority=authority)) from error
    carrier = connection.transport.get_extra_info("socket")
    if carrier is not None:
        carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return WebSocketLink(connection, host, text=text)


class _Connect(connect):
    """The library's client without redirects."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the refusal that a redirect is."""
        return exc


class LinkPipe(Pipe):
    """A link with the face of a pipe: messages in, messages out, and word of what waits."""

    __slots__ = ("_closing", "_link", "_may_read", "_queue", "_reading", "_unsent", "_wake", "_writing")

    def __init__(self, sink: Sink, link: WebSocketLink) -> None:
        """Make a pipe over a link that nobody else uses; ``stand`` begins."""
        super().__init__(sink, link.host)
        self._link = link
        self._queue: list[bytes] = []
        self._unsent = 0
        self._closing: int | None = None
        self._wake = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._reading: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None

    def stand(self) -> None:
        """Tell the sink that the pipe stands, and begin to read and write."""
        self._transport = self._link.transport
        self.stood = True
        self._sink.connected(self)
        loop = asyncio.get_running_loop()
        self._writing = loop.create_task(self._write_on())
        self._reading = loop.create_task(self._read_on())

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait in this process."""
        return self._unsent + super().unsent_bytes if self._transport is not None else 0

    def write(self, chunks: Sequence[bytes]) -> None:
        """Send each chunk as one message, in order, as fast as the other side takes them."""
        if self._transport is None or self._closing is not None:
            return
        self._queue += chunks
        self._unsent += sum(map(len, chunks))
        self._wake.set()
        if self.unsent_bytes and not self.waits:
            self.pause_writing()

    def pause(self) -> None:
        """Stop taking messages; the link stops reading once its own queue is full."""
        self._may_read.clear()

    def resume(self) -> None:
        """Go on taking messages."""
        self._may_read.set()

    def close(self, status: int = 0) -> None:
        """Send what waits, then close with ``status`` (0 means 1000)."""
        if self._closing is None:
            self._closing = status or _NORMAL
            self._wake.set()
            self._may_read.set()  # a paused reader would never hear of the end

    def abort(self) -> None:
        """Close at once and drop what waits."""
        self._closing = self._closing or _NORMAL
        self._may_read.set()
        super().abort()

    async def _write_on(self) -> None:
        with contextlib.suppress(HostError):  # the reader hears of the end
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    message = self._queue.pop(0)
                    await self._link.send(message)
                    self._unsent -= len(message)
                if self.waits:
                    self.resume_writing()
                if self._closing is not None:
                    await self._link.close(self._closing)
                    return

    async def _read_on(self) -> None:
        try:
            while (message := await self._link.receive()) is not None:
                await self._may_read.wait()
                if self._closing is None:
                    self._sink.received(self, message)
        finally:
            if self._writing is not None:
                self._writing.cancel()
            if self._transport is not None:
                self._transport.abort()
            self.connection_lost(None)


def host_of(url: str) -> str:
    """Return the name or address in a WebSocket URL, without brackets.

    Raises:
        LocalError: The text is no such URL.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise LocalError(f"not a WebSocket address: {url!r} ({error})") from error
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise LocalError(f"not a WebSocket address: {url!r}; expected ws://host:port/path or wss://host:port/path")
    return parts.hostname


def why_unreachable(url: str, host: str, error: Exception, timeout_s: float, *, authority: str = "--ca FILE") -> str:
    """Return in words why dialling failed, and what may be done about it.

    Args:
        url: What was dialled.
        host: The host in it.
        error: What came of it.
        timeout_s: How long was waited.
        authority: Where whoever dials names an authority that it trusts.
    """
    status = _status_of(error)
    if status is not None:
        return f"{url} refused the handshake with HTTP status {status}; is the path right?"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        return f"{url} shows a certificate that is not trusted ({why}); name its authority with {authority}"
    if isinstance(error, TimeoutError):
        # A plain listener reads the beginning of TLS as a request that does not end.
        hint = "; if it is a plain listener, try ws://" if url.lower().startswith("wss:") else ""
        return f"{url} did not answer within {timeout_s:g} s{hint}"
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens on {url}; is the relay running?"
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"cannot find the host {host}: {error}"
    if isinstance(error, ssl.SSLError):
        return f"{url} did not complete the TLS handshake ({error}); if it is a plain listener, try ws://"
    if isinstance(error, EOFError | ConnectionResetError | InvalidHandshake | WSHandshakeError):
        plain, other = ("a plain", "ws") if url.lower().startswith("wss:") else ("a TLS", "wss")
        return f"{url} does not speak WebSocket ({error}); if it is {plain} listener, try {other}://"
    return f"cannot reach {url}: {error}"


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status of an answer that is no handshake, in the words of either library."""
    if isinstance(error, InvalidStatus):
        return error.response.status_code
    if isinstance(error, WSHandshakeError) and error.response is not None:
        return int(error.response.status)
    return None
