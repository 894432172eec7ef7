"""The HTTP side of a web port: it routes WebSocket upgrades by request path, and answers plain GETs.

``server.listeners`` makes one for each web port. ``Listener`` calls ``arrive`` for each connection, and
``arrive_unnamed`` for one of a trusted proxy: the client that its request names must pass ``admit``, else the answer is
429. An upgraded connection becomes a pipe of its path's ``Endpoint``; other GETs get ``answer(path, address, host)``.

permessage-deflate is never negotiated. Most messages are ciphertext and signatures, and compressing secrets together
with a peer's text leaks them. picows accepts only GET, so other methods are handled before it. HEAD is answered like
GET without a body, all others get 405.

Spec: RFC 6455 4; RFC 9110 9.3.2 (HEAD), 15.5.6 (405).
"""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from multidict import CIMultiDict
from picows import WSTransport, WSUpgradeRequest, WSUpgradeResponse, WSUpgradeResponseWithListener
from picows.picows import WSProtocol  # type: ignore[attr-defined] # public, but its stub leaves it out

from waystation.core.answers import HttpAnswer
from waystation.transport.pipe import Sink
from waystation.transport.proxies import Proxies, ProxyFault
from waystation.transport.proxy_header import PEEKED_BYTES, is_header
from waystation.transport.silence import SilencePolicy
from waystation.transport.websocket.cutter import Cutter, FrameListener
from waystation.transport.websocket.liveness import LivenessSweep, LivenessTimeouts
from waystation.transport.websocket.pipe import WebSocketPipe

__all__ = ["MESSAGE_BYTES_MAX", "Endpoint", "WebSocketSite"]

MESSAGE_BYTES_MAX: Final = 2_097_152

_HEAD: Final = b"HEAD "
_OTHER_METHODS: Final = tuple(
    method + b" " for method in (b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT")
)
_NOT_ALLOWED: Final = (
    b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_TLS_RECORD: Final = b"\x16\x03"
"""How a TLS handshake begins, RFC 8446 5.1; picows would wait for the end of such a request line."""
_PLAIN_HERE: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 45\r\nConnection: close\r\n\r\n"
    b"this port does not speak TLS: try ws or http\n"
)
_AGAIN: Final = (
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


_NOT_ADMITTED: Final = HttpAnswer(HTTPStatus.TOO_MANY_REQUESTS, body=b'{"error": "not admitted"}')
"""What a proxy's client gets where any other connection is closed before TLS."""


class Endpoint(NamedTuple):
    """The WebSocket of one path."""

    sink: Sink
    text: bool = True
    """Whether its messages are text; ``WebSocketPipe`` says what becomes of a message of the other type."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    """A larger message closes with 1009."""
    timeouts: LivenessTimeouts | None = None
    """How long the other side may take; None for the policy of the site."""
    has_page: bool = False
    """Whether a plain GET of its path is answered as that of any other; else it gets 426."""


class WebSocketSite:
    """All WebSockets of one listener."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        answer: Callable[[str, str, str], HttpAnswer],
        proxies: Callable[[], Proxies] = Proxies,
        admit: Callable[[str, str], bool] = lambda _host, _path: True,
        report: Callable[[str, ProxyFault], None] = lambda _host, _fault: None,
        silence: Callable[[], SilencePolicy] = SilencePolicy,
    ) -> None:
        """Describe a site; give ``arrive`` to its listener, and ``arrive_unnamed`` for connections of proxies.

        Args:
            endpoints: By path, without a query; at least one.
            answer: Gets path (percent-encoded, with its query, as Latin-1), remote host, and ``Host`` of a GET of any
                other path. ``Host`` is empty where a proxy asks, since its client may have named another.
            proxies: Returns those whose requests name their clients.
            admit: Asked about each client that a proxy names, with the path that it asks for.
            report: Called with the address of a connection and what its proxy does wrong.
            silence: Returns how long the other side of a new connection may be silent.
        """
        self._endpoints = dict(endpoints)
        self._answer = answer
        self._proxies = proxies
        self._admit = admit
        self.report = report
        self._silence = silence
        self.frame_bytes_max = max(endpoint.message_bytes_max for endpoint in endpoints.values())
        """Larger frames are refused before anybody knows which endpoint they are for."""
        self.sweep = LivenessSweep(self._timeouts(endpoint) for endpoint in endpoints.values())
        self._loop = asyncio.get_running_loop()

    def arrive(self, address: str) -> "_Upgrade":
        """Return the asyncio protocol of a new connection; ``Listener`` calls it."""
        return _Upgrade(self, address)

    def arrive_unnamed(self, address: str) -> "_Upgrade":
        """Return the asyncio protocol of a new connection of a trusted proxy; its request names the client."""
        arrival = _Upgrade(self, address)
        arrival.admitted, arrival.is_of_proxy = None, True
        return arrival

    def route(self, request: WSUpgradeRequest, arrival: "_Upgrade") -> WSUpgradeResponseWithListener:
        """Return what a request gets: a pipe, or an answer; called by picows."""
        upgrades = _wants(request, "upgrade", "websocket") and not arrival.is_head
        if arrival.admitted is None and not self._admits_client(request, arrival, upgrades=upgrades):
            return _response(_NOT_ADMITTED)
        endpoint = self._endpoints.get(_path_of(request))
        if endpoint is None or (endpoint.has_page and not upgrades):
            host = "" if arrival.is_of_proxy else request.headers.get("host", "")
            answer = self._answered(request.path.decode("latin-1"), arrival.address, host)
            return _response(answer, has_body=not arrival.is_head)
        if not upgrades:
            return _response(HttpAnswer(HTTPStatus.UPGRADE_REQUIRED, (("Upgrade", "websocket"),)))
        if request.headers.get("sec-websocket-version") != "13":
            refusal = HttpAnswer(HTTPStatus.UPGRADE_REQUIRED, (("Sec-WebSocket-Version", "13"),))
            return _response(refusal)
        if _wants(request, "connection", "upgrade"):
            request.headers["Connection"] = "Upgrade"  # picows knows no lists here, and Firefox says keep-alive first
        request.headers["Upgrade"] = "websocket"
        arrival.pipe = WebSocketPipe(
            endpoint.sink,
            arrival.address,
            text=endpoint.text,
            message_bytes_max=endpoint.message_bytes_max,
            timeouts=self._timeouts(endpoint),
        )
        return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(), _Arrived(arrival))

    def _timeouts(self, endpoint: Endpoint) -> LivenessTimeouts:
        return endpoint.timeouts or LivenessTimeouts.of(self._silence())

    def _admits_client(self, request: WSUpgradeRequest, arrival: "_Upgrade", *, upgrades: bool) -> bool:
        """Admit the client that the request of a proxy names; the connection has that client's address from then on."""
        proxies, proxy = self._proxies(), arrival.address
        arrival.address = proxies.client_of(proxy, request.headers.getall(proxies.header, []))
        if upgrades and arrival.address == proxy:  # a plain GET may be the proxy's own, to see whether we are there
            self.report(proxy, ProxyFault.NO_CLIENT)
        if not self._admit(arrival.address, _path_of(request)):
            return False
        arrival.admitted = arrival.address
        return True

    def _answered(self, path: str, address: str, host: str) -> HttpAnswer:
        try:
            return self._answer(path, address, host)
        except Exception as error:  # noqa: BLE001 - a client must not see a bug of ours, as with picows alone
            self._loop.call_exception_handler({"message": "no answer to a GET", "exception": error})
            return HttpAnswer(HTTPStatus.INTERNAL_SERVER_ERROR)


class _Upgrade(Cutter):
    """A new connection: its HTTP request becomes a pipe, or gets an answer, or never comes."""

    def __init__(self, site: WebSocketSite, address: str, pipe: WebSocketPipe | None = None) -> None:
        super().__init__(
            site.sweep,
            pipe,
            host_port=None,
            ws_path=None,
            is_client_side=False,
            ws_listener_factory=self._route,
            max_frame_size=site.frame_bytes_max,
        )
        self._site = site
        self.address = address
        self.admitted: str | None = address
        """What the listener, or ``route``, admitted the connection under; None until then."""
        self.is_head = self.is_of_proxy = False
        """Whether the answer has no body, and whether a trusted proxy has dialled."""
        self._is_silent = pipe is None
        self._settled: asyncio.Future[None] | None = (
            asyncio.get_running_loop().create_future() if pipe is None else None
        )

    @property
    def is_established(self) -> bool:
        """Whether the pipe was handed to its sink."""
        return self.pipe is not None and self.pipe.is_established

    async def settled(self) -> None:
        """Return once the pipe is established, or the connection is over."""
        if self._settled is not None:
            await self._settled

    def settle(self) -> None:
        """Let the listener know that it need not wait any more."""
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
        self._settled = None

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes; those of a new connection begin with a method, which picows must not see unless it is GET."""
        if self._is_silent:
            self._is_silent = False
            said = WSProtocol.get_buffer(self, -1)[:nbytes]
            method = bytes(said[:PEEKED_BYTES])
            if is_header(method):
                self._site.report(self.address, ProxyFault.HEADER_NOT_READ)
            refusal = _PLAIN_HERE if method.startswith(_TLS_RECORD) else _NOT_ALLOWED
            if refusal is _PLAIN_HERE or method.startswith(_OTHER_METHODS):
                transport = self.transport.underlying_transport
                transport.write(refusal)
                transport.close()
                return
            if method.startswith(_HEAD):
                self.is_head = True
                said[: nbytes - 1] = b"GET" + bytes(said[4:])
                nbytes -= 1
        super().buffer_updated(nbytes)

    def renewed(self) -> "_Upgrade":
        """Return a fresh cutter for the same pipe."""
        return _Upgrade(self._site, self.address, self.pipe)

    def handshake_again(self, said: bytes) -> bytes:  # noqa: ARG002 - it is the client who speaks first
        """Return a request."""
        return _AGAIN

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end to the task that waits for it."""
        super().connection_lost(exc)
        self.settle()

    def _route(self, request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
        if self.is_established:
            return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(), _Arrived(self))
        return self._site.route(request, self)


class _Arrived(FrameListener):
    """Reports to a new connection when it is established."""

    def __init__(self, arrival: _Upgrade) -> None:
        assert arrival.pipe is not None
        super().__init__(arrival.sweep, arrival.pipe)
        self._settle: Callable[[], None] | None = arrival.settle

    def on_ws_connected(self, transport: WSTransport) -> None:
        super().on_ws_connected(transport)
        settle, self._settle = self._settle, None  # the old cutter need not outlive its place
        if settle is not None:
            settle()


def _path_of(request: WSUpgradeRequest) -> str:
    """Return the path without its query."""
    return request.path.partition(b"?")[0].decode("latin-1")


def _wants(request: WSUpgradeRequest, header: str, token: str) -> bool:
    """Return whether ``token`` is in the comma-separated list of a header, whatever its case."""
    values = request.headers.getall(header, [])
    return any(part.strip().lower() == token for value in values for part in value.split(","))


def _response(answer: HttpAnswer, *, has_body: bool = True) -> WSUpgradeResponseWithListener:
    response = WSUpgradeResponse()
    response.version = b"HTTP/1.1"
    response.status = HTTPStatus(answer.status)
    response.headers = CIMultiDict(answer.headers)
    response.body = answer.body if has_body else b""
    if not response.body:  # else picows adds its length
        response.headers["Content-Length"] = str(len(answer.body))
    return WSUpgradeResponseWithListener(response, None)
