"""An HTTP server for an ASGI application, on an address, a unix socket or both.

The admin port and the blind box each open one. Connections have the limits of ``http.connection``, and their client is
the one that a trusted proxy names.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn
from starlette.types import ASGIApp

from waystation.server.config.settings import Address
from waystation.server.http.connection import HttpAdmission, HttpConnection, HttpLimits, LateAnswer
from waystation.server.http.unix_socket import BoundSocket, bind_unix
from waystation.server.proxies.rules import ProxyRules
from waystation.transport.listen import BehindProxies, Listener
from waystation.transport.proxies import ProxyFault
from waystation.transport.tls import TlsContext

__all__ = ["HttpPort"]

GRACE_S: Final = 2  # how long requests under way may take once the node stops
CLOSE_S: Final = 5.0  # how long the server may take in all before it is cancelled

_log = structlog.get_logger("waystation.server")


class HttpPort:
    """One bound address and the application that answers there."""

    def __init__(
        self,
        application: ASGIApp,
        late: LateAnswer,
        limits: HttpLimits | None = None,
        proxies: ProxyRules | None = None,
        setting: str = "",
        *,
        reports_unnamed: bool = True,
    ) -> None:
        """Serve ``application`` once opened.

        Args:
            application: What answers.
            late: The answer to a client whose request head does not come.
            limits: How many connections there may be; None for the usual number.
            proxies: Who may name the client of a request; None for nobody.
            setting: That names the address, as "table.key"; faults of proxies count under its table.
            reports_unnamed: False where programs of a proxy's machine, too, send requests without a client.
        """
        self._application = application
        self._late = late
        self._admission = HttpAdmission(limits or HttpLimits())
        self._proxies = proxies
        self._setting = setting
        self._reports_unnamed = reports_unnamed
        self._server: _QuietServer | None = None
        self._listener: Listener | None = None
        self._unix: asyncio.Server | None = None
        self._bound: BoundSocket | None = None
        self._task: asyncio.Task[None] | None = None
        self.url = ""
        """Once open: http:// or https://, host and port."""

    async def open(self, address: Address, context: TlsContext | None = None) -> None:
        """Bind and serve, over TLS when there is a context.

        Raises:
            HostError: The port is taken or not ours to take (exit code 4).
        """
        server = self._server or _QuietServer(self._config())

        def arrive(host: str) -> HttpConnection:
            return self._connection(server, host)

        def arrive_unnamed(_proxy: str) -> HttpConnection | None:
            # Its requests name clients, each its own: it counts as a connection without an address.
            if not self._admission.admit(""):
                return None
            return self._connection(server, "")

        proxies = BehindProxies()
        if self._proxies is not None:
            proxies = self._proxies.before(self._protocol, (self._setting,), arrive_unnamed)
        # Without a limit of silence: requests and the time between them have limits of their own.
        listener = Listener(
            None, self._admission.admit, self._admission.release, context, arrive, proxies, silence=None
        )
        await listener.open(address.host, address.port)
        self._listener = listener
        self.url = f"{'http' if context is None else 'https'}://{Address(listener.host, listener.port)}"
        self._run(server)

    async def open_unix(self, path: Path) -> None:
        """Serve at a unix socket, too or alone, that only this process's user may open.

        Args:
            path: Absolute; a socket that nobody listens at any more is replaced.

        Raises:
            LocalError: The path is too long.
            HostError: Something else is there (exit code 4).
        """
        bound = bind_unix(path)
        server = self._server or _QuietServer(self._config())

        def arrive() -> asyncio.BaseProtocol:
            return self._connection(server, "") if self._admission.admit("") else _Refused()

        self._unix = await asyncio.get_running_loop().create_unix_server(arrive, sock=bound.socket)
        self._bound = bound
        self._run(server)

    async def close(self) -> None:
        """Stop serving; takes a few seconds at most, whatever clients do. Harmless when nothing was opened."""
        if self._server is None or self._task is None:
            return
        if self._listener is not None:
            self._listener.close()
        if self._unix is not None:
            self._unix.close()
        if self._bound is not None:
            self._bound.remove()
        self._server.should_exit = True
        try:
            await asyncio.wait_for(self._task, CLOSE_S)  # cancels what takes longer
        except TimeoutError:
            _log.warning("http.cut", url=self.url, limit_s=CLOSE_S)

    def _connection(self, server: "_QuietServer", host: str) -> HttpConnection:
        return HttpConnection(server.config, server.server_state, self._admission, host, self._late)

    def _run(self, server: "_QuietServer") -> None:
        if self._task is None:
            self._server = server
            self._task = asyncio.get_running_loop().create_task(server.serve(sockets=[]))  # it accepts nothing itself

    @property
    def _protocol(self) -> str:
        return self._setting.partition(".")[0]

    def _config(self) -> uvicorn.Config:
        application: Any = self._application
        if self._proxies is not None:
            report = self._proxies.reporter(self._protocol) if self._reports_unnamed else None
            application = _NamesClient(application, self._proxies, report)
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",  # an upgrade would lead out of what counts
            timeout_graceful_shutdown=GRACE_S,
            proxy_headers=False,  # uvicorn would trust every program of this machine; _NamesClient asks ProxyRules
            server_header=False,
        )
        config.load()
        return config


class _NamesClient:
    """An ASGI application whose requests have the address of the client that a trusted proxy names."""

    def __init__(self, application: Any, proxies: ProxyRules, report: Callable[[str, ProxyFault], None] | None) -> None:
        self._application = application
        self._proxies = proxies
        self._report = report

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["client"] is not None:
            host, port = scope["client"]
            trusted = self._proxies.trusted
            name = trusted.header.encode()
            values = [value.decode("latin-1") for header, value in scope["headers"] if header == name]
            client = trusted.client_of(host, values)
            if client == host and self._report is not None and trusted.trusts(host):
                self._report(host, ProxyFault.NO_CLIENT)
            scope["client"] = (client, port)
        await self._application(scope, receive, send)


class _Refused(asyncio.Protocol):
    """A connection that is closed at once."""

    def connection_made(self, transport: Any) -> None:
        """Close it, once it reads; see ``Pipe``."""
        asyncio.get_running_loop().call_soon(transport.abort)


class _QuietServer(uvicorn.Server):
    """A server that leaves the signals to the node."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
