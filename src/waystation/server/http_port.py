"""A small HTTP server on one address, for ports that are served by an ASGI application beside the relays."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import structlog
import uvicorn
from starlette.applications import Starlette

from waystation.server.http_connection import HttpConnection, HttpDoor, HttpLimits, LateAnswer
from waystation.server.settings import Address
from waystation.transport.listen import Listener
from waystation.transport.tls import reload_certificate, server_context

__all__ = ["HttpPort", "TlsFiles"]

GRACE_S: Final = 2  # how long requests under way may take once the node stops
CLOSE_S: Final = 5.0  # how long the server may take in all before it is cancelled

_log = structlog.get_logger("waystation.server")


class TlsFiles(NamedTuple):
    """Where certificate and key stand, in PEM."""

    cert: Path
    key: Path


class HttpPort:
    """One bound address and who answers there."""

    def __init__(self, application: Starlette, late: LateAnswer, limits: HttpLimits | None = None) -> None:
        """Serve ``application`` once opened.

        Args:
            application: What answers.
            late: What is said to somebody whose request's head does not come.
            limits: How many connections there may be; None for the usual number.
        """
        self._application = application
        self._late = late
        self._door = HttpDoor(limits or HttpLimits())
        self._server: uvicorn.Server | None = None
        self._listener: Listener | None = None
        self._task: asyncio.Task[None] | None = None
        self._tls: ssl.SSLContext | None = None
        self.url = ""
        """Once open: http:// or https://, host and port."""

    async def open(self, address: Address, tls: TlsFiles | None = None) -> None:
        """Bind and serve, over TLS when its files are named.

        Raises:
            HostError: The port is taken or not ours to take (exit code 4), or the certificate cannot be used.
        """
        context = server_context(tls.cert, tls.key) if tls is not None else None
        config = self._config()
        server = _QuietServer(config)

        def arrive(host: str) -> HttpConnection:
            return HttpConnection(config, server.server_state, self._door, host, self._late)

        listener = Listener(None, self._door.admit, self._door.release, context, arrive)
        await listener.open(address.host, address.port)
        self._tls, self._server, self._listener = context, server, listener
        self.url = f"{'http' if context is None else 'https'}://{Address(listener.host, listener.port)}"
        self._task = asyncio.get_running_loop().create_task(server.serve(sockets=[]))  # it accepts nothing itself

    def reload_certificate(self, tls: TlsFiles) -> None:
        """Use a new certificate from the next handshake on; nothing happens without TLS.

        Raises:
            HostError: The new pair cannot be used; the old one stays in force.
        """
        if self._tls is not None:
            reload_certificate(self._tls, tls.cert, tls.key)

    async def close(self) -> None:
        """Stop serving; takes a few seconds at most, whatever clients do. Harmless when nothing was opened."""
        if self._server is None or self._listener is None or self._task is None:
            return
        self._listener.close()
        self._server.should_exit = True
        try:
            await asyncio.wait_for(self._task, CLOSE_S)  # cancels what takes longer
        except TimeoutError:
            _log.warning("http.cut", url=self.url, limit_s=CLOSE_S)

    def _config(self) -> uvicorn.Config:
        config = uvicorn.Config(
            self._application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",  # an upgrade would lead out of what counts
            timeout_graceful_shutdown=GRACE_S,
            server_header=False,
        )
        config.load()
        return config


class _QuietServer(uvicorn.Server):
    """A server that leaves the signals to the node."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
