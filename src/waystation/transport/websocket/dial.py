"""Dials WebSockets, for nodes, clients and tests; the result is a pipe like an accepted one, with masked frames.

picows parses the frames, and all writes of one event-loop iteration are one system call. Redirects are not followed: a
relay must not direct clients to their own network, and a key pinned to one address proves nothing about another.
Proxies from the environment and WebSocket extensions are not used.

Spec: RFC 6455 4.1 and 5.3.
"""

import asyncio
import base64
import hashlib
import socket
import ssl
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from picows import WSHandshakeError, WSListener

from waystation.core.errors import HostError, LocalError
from waystation.transport.connect import connect_tcp
from waystation.transport.dial import REFUSES_ADDRESSES
from waystation.transport.pipe import Sink
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import system_context
from waystation.transport.websocket.cutter import Cutter, FrameListener
from waystation.transport.websocket.liveness import LivenessSweep, LivenessTimeouts
from waystation.transport.websocket.pipe import WebSocketPipe

__all__ = ["WebSocketDialler", "host_of", "why_unreachable"]

ADDRESSES_MAX: Final = 4
"""Most addresses of one host that are tried, where the caller names them."""

_NOT_ADMITTED: Final = "the relay does not admit this address: not on its list, banned, or too many connections of it"
_PORTS: Final = {"ws": 80, "wss": 443}
_KEY: Final = b"\r\nSec-WebSocket-Key: "
_KEY_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 1.3


class WebSocketDialler:
    """Dials WebSockets that are alike; one timer looks after all of them."""

    def __init__(
        self,
        *,
        message_bytes_max: int,
        text: bool = False,
        timeouts: LivenessTimeouts | None = None,
        context: ssl.SSLContext | None = None,
        authority: str = "--ca FILE",
        silence: Callable[[], SilencePolicy] = SilencePolicy,
    ) -> None:
        """Prepare to dial.

        Args:
            message_bytes_max: A larger message from the other side closes with 1009.
            text: Whether messages are sent as text and taken whatever their type; else both ways are binary.
            timeouts: How long the other side may take to answer pings; None for those of ``silence``.
            context: TLS context for ``wss``; None means the system's authorities.
            authority: As for ``why_unreachable``.
            silence: Returns how long the other side of a new connection may be silent.
        """
        self.message_bytes_max = message_bytes_max
        self._text = text
        self._given_timeouts = timeouts
        self._silence = silence
        self._context = context
        self._authority = authority
        self.sweep = LivenessSweep([self._timeouts])

    @property
    def _timeouts(self) -> LivenessTimeouts:
        return self._given_timeouts or LivenessTimeouts.of(self._silence())

    async def dial(
        self, url: str, sink: Sink, *, addresses: Sequence[str] = (), timeout_s: float = 10.0
    ) -> WebSocketPipe:
        """Open a WebSocket and return its pipe; the sink's ``connected`` was called by then.

        Redirects are not followed.

        Args:
            url: ``ws://host:port/path`` or ``wss://...``, in printable ASCII.
            sink: Gets everything that the pipe reports.
            addresses: IP addresses to try in turn instead of asking for those of the host; TLS still proves its name.
            timeout_s: For connecting, TLS and the handshake together; each address has its share.

        Raises:
            LocalError: The text is no address.
            HostError: Nobody listens, no answer in time, the certificate is not trusted, or the answer is a refusal.
        """
        host = host_of(url)
        places = list(addresses[:ADDRESSES_MAX]) or [host]
        pipe = WebSocketPipe(
            sink, host, text=self._text, message_bytes_max=self.message_bytes_max, timeouts=self._timeouts, masks=True
        )
        trouble: Exception | None = None
        for place in places:
            try:
                async with asyncio.timeout(timeout_s / len(places)):
                    await self._connect(url, place, pipe, timeout_s)
            except (OSError, EOFError, UnicodeError, WSHandshakeError) as error:  # TimeoutError, SSLError: OSErrors
                trouble = trouble or error
            else:
                return pipe
        assert trouble is not None
        raise HostError(why_unreachable(url, host, trouble, timeout_s, authority=self._authority)) from trouble

    async def _connect(self, url: str, address: str, pipe: WebSocketPipe, timeout_s: float) -> None:
        parts = urlsplit(url)
        if not (url.isascii() and url.isprintable()) or " " in url or parts.username is not None:
            raise LocalError(f"not a WebSocket address: {url!r}")
        secure = parts.scheme == "wss"
        transport, dialled = await connect_tcp(
            lambda: _Dialled(self, parts.netloc, _target(parts.path, parts.query), pipe),
            address,
            parts.port if parts.port is not None else _PORTS[parts.scheme],
            tls=(self._context or system_context()) if secure else None,
            tls_name=parts.hostname or "",
            tls_within_s=timeout_s,
            silence=self._silence(),
        )
        try:
            await dialled.wait_until_handshake_complete()
            if not pipe.is_established:
                raise EOFError("the other side closed the connection during the handshake")
        except BaseException:
            transport.abort()
            raise


class _Dialled(Cutter):
    """Our side of a handshake that we began, and of what becomes of it."""

    def __init__(self, dialler: WebSocketDialler, netloc: str, target: str, pipe: WebSocketPipe) -> None:
        super().__init__(
            dialler.sweep,
            pipe,
            host_port=netloc,
            ws_path=target,
            is_client_side=True,
            ws_listener_factory=self._listener,
            max_frame_size=dialler.message_bytes_max,
        )
        self._dialler = dialler

    def renewed(self) -> "_Dialled":
        """Return a fresh cutter for the same pipe."""
        assert self.pipe is not None
        return _Dialled(self._dialler, "localhost", "/", self.pipe)

    def handshake_again(self, said: bytes) -> bytes:
        """Return a response to the request ``said``."""
        key = said.partition(_KEY)[2].partition(b"\r\n")[0].decode()
        head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        return f"{head}Sec-WebSocket-Accept: {_accept_key(key)}\r\n\r\n".encode()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end; and ask picows why, else each fault of another side would be logged as one of ours."""
        super().connection_lost(exc)
        asyncio.ensure_future(self.transport.wait_disconnected()).add_done_callback(_forget)

    def _listener(self, _request: object, _response: object) -> WSListener:
        assert self.pipe is not None
        return FrameListener(self.sweep, self.pipe)


def _forget(end: asyncio.Future[None]) -> None:
    if not end.cancelled():
        end.exception()


def _target(path: str, query: str) -> str:
    return (path or "/") + (f"?{query}" if query else "")


def _accept_key(key: str) -> str:
    """Return what proves that a handshake with this key was read; RFC 6455 4.2.2."""
    return base64.b64encode(hashlib.sha1(key.encode() + _KEY_SUFFIX, usedforsecurity=False).digest()).decode()


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
    if isinstance(error, WSHandshakeError) and error.response is not None:
        return _why_refused(url, int(error.response.status))
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
    if isinstance(error, EOFError | ConnectionResetError | WSHandshakeError):
        plain, other = ("a plain", "ws") if url.lower().startswith("wss:") else ("a TLS", "wss")
        said = f"{url} does not speak WebSocket ({error}); if it is {plain} listener, try {other}://"
        return said if isinstance(error, WSHandshakeError) else f"{said}; it may also {REFUSES_ADDRESSES}"
    return f"cannot reach {url}: {error}"


def _why_refused(url: str, status: int) -> str:
    why = _NOT_ADMITTED if status == HTTPStatus.TOO_MANY_REQUESTS else "is the path right?"
    return f"{url} refused the handshake with HTTP status {status}; {why}"
