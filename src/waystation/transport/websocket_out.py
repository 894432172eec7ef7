"""Dialled WebSockets that cost no more than accepted ones: the same pipe, with masks.

``websocket_dial`` dials with the reference implementation and pays tens of microseconds for each message; two nodes
that carry other people's frames send thousands per second over one connection, so here picows cuts the frames, and
what one turn of the loop writes leaves in one system call.

Spec: RFC 6455 4.1 and 5.3.
"""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import aiofastnet
from picows import WSHandshakeError, WSListener
from websockets.utils import accept_key

from waystation.core.errors import HostError, LocalError
from waystation.transport.pipe import Sink
from waystation.transport.websocket_cutter import Cutter, Ears
from waystation.transport.websocket_dial import host_of, why_unreachable
from waystation.transport.websocket_liveness import Patience, Rounds
from waystation.transport.websocket_pipe import WebSocketPipe

__all__ = ["Outlet"]

ADDRESSES_MAX: Final = 4
"""Addresses of one host that are tried: two of each family."""

_PORTS: Final = {"ws": 80, "wss": 443}
_KEY: Final = b"\r\nSec-WebSocket-Key: "


class Outlet:
    """Dials binary WebSockets that are alike; one timer looks after all of them."""

    def __init__(
        self,
        *,
        message_bytes_max: int,
        patience: Patience | None = None,
        context: ssl.SSLContext | None = None,
        authority: str = "--ca FILE",
    ) -> None:
        """Prepare to dial.

        Args:
            message_bytes_max: A larger message from the other side closes with 1009.
            patience: How long the other side may be silent.
            context: TLS context for ``wss``; None means the system's authorities.
            authority: As for ``why_unreachable``.
        """
        self.message_bytes_max = message_bytes_max
        self._patience = patience or Patience()
        self._context = context
        self._authority = authority
        self.rounds = Rounds([self._patience])

    async def dial(
        self, url: str, sink: Sink, *, addresses: Sequence[str] = (), timeout_s: float = 10.0
    ) -> WebSocketPipe:
        """Open a WebSocket and return its pipe; the sink has been told ``connected`` by then.

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
            sink, host, text=False, message_bytes_max=self.message_bytes_max, patience=self._patience, masks=True
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
        transport, dialled = await aiofastnet.create_connection(
            asyncio.get_running_loop(),
            lambda: _Dialled(self, parts.netloc, _target(parts.path, parts.query), pipe),
            address,
            parts.port if parts.port is not None else _PORTS[parts.scheme],
            ssl=(self._context or ssl.create_default_context()) if secure else None,
            server_hostname=parts.hostname if secure else None,
            ssl_handshake_timeout=timeout_s if secure else None,
        )
        assert isinstance(dialled, _Dialled)
        try:
            await dialled.wait_until_handshake_complete()
            if not pipe.stood:
                raise EOFError("the other side closed the connection during the handshake")
        except BaseException:
            transport.abort()
            raise


class _Dialled(Cutter):
    """Our side of a handshake that we began, and of what becomes of it."""

    def __init__(self, outlet: Outlet, netloc: str, target: str, pipe: WebSocketPipe) -> None:
        super().__init__(
            outlet.rounds,
            pipe,
            host_port=netloc,
            ws_path=target,
            is_client_side=True,
            ws_listener_factory=self._listener,
            max_frame_size=outlet.message_bytes_max,
        )
        self._outlet = outlet

    def renewed(self) -> "_Dialled":
        """Return a fresh cutter for the same pipe."""
        assert self.pipe is not None
        return _Dialled(self._outlet, "localhost", "/", self.pipe)

    def handshake_again(self, said: bytes) -> bytes:
        """Return a response to the request ``said``."""
        key = said.partition(_KEY)[2].partition(b"\r\n")[0].decode()
        head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        return f"{head}Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end; and ask picows why, else each fault of another side would be logged as one of ours."""
        super().connection_lost(exc)
        asyncio.ensure_future(self.transport.wait_disconnected()).add_done_callback(_forget)

    def _listener(self, _request: object, _response: object) -> WSListener:
        assert self.pipe is not None
        return Ears(self.rounds, self.pipe)


def _forget(told: asyncio.Future[None]) -> None:
    if not told.cancelled():
        told.exception()


def _target(path: str, query: str) -> str:
    return (path or "/") + (f"?{query}" if query else "")
