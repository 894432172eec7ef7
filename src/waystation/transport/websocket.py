"""WebSockets on our own listener: what a newcomer asks for, and who is still there.

A ``WebSocketSite`` leads each newcomer by its path, answers plain GETs, and looks after silent pipes with one timer.
permessage-deflate is never negotiated: what passes here is mostly ciphertext and signatures, and compressing secrets
beside a stranger's text tells about them.

Spec: RFC 6455 4.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from multidict import CIMultiDict
from picows import (
    WSFrame,
    WSListener,
    WSProtocolError,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from picows.picows import WSProtocol  # type: ignore[attr-defined] # public, but its stub leaves it out

from waystation.core.answers import HttpAnswer
from waystation.transport.pipe import Sink
from waystation.transport.websocket_pipe import WebSocketPipe

__all__ = ["MESSAGE_BYTES_MAX", "Endpoint", "WebSocketSite"]

MESSAGE_BYTES_MAX: Final = 2_097_152
PING_AFTER_S: Final = 20.0
PONG_WITHIN_S: Final = 30.0
CLOSE_WITHIN_S: Final = 10.0  # as long as the hub lets a closed pipe linger

_READ_BUFFER_BYTES: Final = 4_096  # grows for larger frames
_LOOKS_PER_PERIOD: Final = 4
_AGAIN: Final = (
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Endpoint(NamedTuple):
    """What stands behind one path."""

    sink: Sink
    text: bool = True
    """Whether its messages are text; a message of the other type arrives as the empty one."""


class WebSocketSite:
    """All WebSockets of one listener."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        answer: Callable[[str, str], HttpAnswer],
        *,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        ping_after_s: float = PING_AFTER_S,
        pong_within_s: float = PONG_WITHIN_S,
        close_within_s: float = CLOSE_WITHIN_S,
    ) -> None:
        """Describe a site; give ``arrive`` to its listener.

        Args:
            endpoints: By path, without a query.
            answer: Gets path (percent-encoded, with its query, as Latin-1) and remote host of a GET of any other path.
            message_bytes_max: A larger message closes with 1009.
            ping_after_s: Who has said nothing for so long is asked.
            pong_within_s: Who was asked, says nothing and takes nothing for so long is cut.
            close_within_s: Who does not answer a Close frame for so long is cut.
        """
        self._endpoints = dict(endpoints)
        self._answer = answer
        self.message_bytes_max = message_bytes_max
        self._ping_after_s = ping_after_s
        self._pong_within_s = pong_within_s
        self._close_within_s = close_within_s
        self._look_s = min(ping_after_s, pong_within_s, close_within_s) / _LOOKS_PER_PERIOD
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._pipes: dict[WebSocketPipe, None] = {}

    def arrive(self, address: str) -> "_Upgrade":
        """Return the asyncio protocol of a newcomer; ``Listener`` asks for it."""
        return _Upgrade(self, address)

    def route(self, request: WSUpgradeRequest, arrival: "_Upgrade") -> WSUpgradeResponseWithListener:
        """Return what a request gets: a pipe, or an answer; called by picows."""
        endpoint = self._endpoints.get(request.path.partition(b"?")[0].decode("latin-1"))
        if endpoint is None:
            return _response(self._answered(request.path.decode("latin-1"), arrival.address))
        if not _wants(request, "upgrade", "websocket"):
            return _response(HttpAnswer(HTTPStatus.UPGRADE_REQUIRED, (("Upgrade", "websocket"),)))
        if request.headers.get("sec-websocket-version") != "13":
            refusal = HttpAnswer(HTTPStatus.UPGRADE_REQUIRED, (("Sec-WebSocket-Version", "13"),))
            return _response(refusal)
        if _wants(request, "connection", "upgrade"):
            request.headers["Connection"] = "Upgrade"  # picows knows no lists here, and Firefox says keep-alive first
        request.headers["Upgrade"] = "websocket"
        arrival.pipe = WebSocketPipe(
            endpoint.sink, arrival.address, text=endpoint.text, message_bytes_max=self.message_bytes_max
        )
        return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(), _Ears(arrival))

    def joined(self, pipe: WebSocketPipe) -> None:
        """Look after a pipe that stands."""
        self._pipes[pipe] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._look_s, self._look)

    def left(self, pipe: WebSocketPipe) -> None:
        """Forget a pipe."""
        self._pipes.pop(pipe, None)
        if not self._pipes and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answered(self, path: str, address: str) -> HttpAnswer:
        try:
            return self._answer(path, address)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not be told to a stranger, as picows would
            self._loop.call_exception_handler({"message": "no answer to a GET", "exception": error})
            return HttpAnswer(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _look(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(self._look_s, self._look)
        for pipe in tuple(self._pipes):
            if self._is_dead(pipe, now):
                pipe.abort()

    def _is_dead(self, pipe: WebSocketPipe, now: float) -> bool:
        """Ping a silent pipe; return whether nothing moves in it any more."""
        watch = pipe.watch
        if pipe.ending:
            if watch.ending_since is None:
                watch.ending_since = now
            return now - watch.ending_since >= self._close_within_s
        if watch.heard or pipe.held:  # what we do not read says nothing about who is there
            watch.heard = False
            watch.quiet_since = now
            watch.pinged_at = None
        elif watch.pinged_at is None:
            if now - watch.quiet_since >= self._ping_after_s:
                pipe.ping()
                watch.pinged_at = now
                watch.unsent_bytes = pipe.untaken_bytes
        elif (untaken := pipe.untaken_bytes) != watch.unsent_bytes:
            if untaken < watch.unsent_bytes:
                watch.pinged_at = now
            watch.unsent_bytes = untaken  # what was written since must not hide what is taken from now on
        else:
            return now - watch.pinged_at >= self._pong_within_s
        return False


class _Upgrade(WSProtocol):  # type: ignore[misc] # see its import
    """A newcomer: an HTTP request that becomes a pipe, or gets an answer, or never comes."""

    def __init__(self, site: WebSocketSite, address: str, pipe: WebSocketPipe | None = None) -> None:
        super().__init__(
            host_port=None,
            ws_path=None,
            is_client_side=False,
            ws_listener_factory=self._route,
            logger=_QUIET,
            disconnect_on_exception=True,
            websocket_handshake_timeout=None,  # the listener's limit holds, from the first byte of TLS on
            enable_auto_ping=False,
            auto_ping_idle_timeout=0,
            auto_ping_reply_timeout=0,
            auto_ping_strategy=1,
            enable_auto_pong=False,
            max_frame_size=site.message_bytes_max,
            extra_headers=None,
            read_buffer_init_size=_READ_BUFFER_BYTES,
        )
        self.site = site
        self.address = address
        self.pipe = pipe
        self._settled: asyncio.Future[None] | None = (
            asyncio.get_running_loop().create_future() if pipe is None else None
        )

    @property
    def stood(self) -> bool:
        """Whether the pipe was handed to its sink."""
        return self.pipe is not None and self.pipe.stood

    async def settled(self) -> None:
        """Return once the pipe stands, or the connection is over."""
        if self._settled is not None:
            await self._settled

    def settle(self) -> None:
        """Let the listener know that it need not wait any more."""
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
        self._settled = None

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return where bytes go: not quite all room there is, because picows doubles a buffer that was filled."""
        view: memoryview = super().get_buffer(size_hint)
        return view[: len(view) - (len(view) >> 3)]

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes."""
        super().buffer_updated(nbytes)
        pipe = self.pipe
        if pipe is not None:
            pipe.watch.heard = True
            if self.transport.is_close_frame_sent and not pipe.ending:
                pipe.give_up()
            if not pipe.behind_bytes and not pipe.ending:
                pipe.behind_bytes = -1
                self._renew(pipe)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end to whoever waits for it."""
        super().connection_lost(exc)
        if self.pipe is not None and self.pipe.stood:
            self.site.left(self.pipe)
            self.pipe.connection_lost(exc)
        self.settle()

    def _route(self, request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
        if self.stood:
            return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(), _Ears(self))
        return self.site.route(request, self)

    def _renew(self, pipe: WebSocketPipe) -> None:
        """Put a fresh cutter of frames, with a small buffer, in our place; nothing waits in ours.

        picows never shrinks a buffer, so one large message would cost its size as long as the connection lives, and a
        stranger with many connections could fill the memory. The fresh one is told of a handshake that nobody sees.
        """
        transport = self.transport.underlying_transport
        transport = transport.behind if isinstance(transport, _Unheard) else transport
        if transport.is_closing():
            return
        fresh = _Upgrade(self.site, self.address, pipe)
        fresh.connection_made(_Unheard(transport))
        fresh.get_buffer(-1)[: len(_AGAIN)] = _AGAIN
        WSProtocol.buffer_updated(fresh, len(_AGAIN))
        transport.set_protocol(fresh)


class _Unheard:
    """A transport that swallows the first write."""

    def __init__(self, behind: asyncio.Transport) -> None:
        self.behind = behind
        self._heard = False

    def write(self, data: bytes) -> None:
        """Write, unless it is the first time."""
        if self._heard:
            self.behind.write(data)
        self._heard = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


class _Ears(WSListener):
    """What picows tells about one connection."""

    def __init__(self, arrival: _Upgrade) -> None:
        assert arrival.pipe is not None
        self._arrival: _Upgrade | None = arrival
        self._pipe = arrival.pipe

    def on_ws_connected(self, transport: WSTransport) -> None:
        arrival, self._arrival = self._arrival, None
        assert arrival is not None
        transport.request.headers.clear()  # picows keeps both as long as the connection lives
        transport.response.headers.clear()
        if not self._pipe.stood:
            arrival.site.joined(self._pipe)
        self._pipe.stand(transport)
        arrival.settle()

    def pause_writing(self) -> None:
        self._pipe.pause_writing()

    def resume_writing(self) -> None:
        self._pipe.resume_writing()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:  # noqa: ARG002 - a pipe has one transport
        self._pipe.frame_received(frame)


class _Quiet:
    """Where picows logs: strangers' faults are not worth a line each, failures of ours go to the loop's handler."""

    def isEnabledFor(self, _level: int) -> bool:  # noqa: N802 - logging's name
        return False

    def debug(self, *_: object) -> None:
        """Say nothing."""

    info = warning = log = debug

    def error(self, message: str, *_: object) -> None:
        """Pass on what is not a stranger's fault."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, WSProtocolError):
            asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    exception = error


_QUIET: Final = _Quiet()


def _wants(request: WSUpgradeRequest, header: str, token: str) -> bool:
    """Return whether ``token`` is in the comma-separated list of a header, whatever its case."""
    values = request.headers.getall(header, [])
    return any(part.strip().lower() == token for value in values for part in value.split(","))


def _response(answer: HttpAnswer) -> WSUpgradeResponseWithListener:
    response = WSUpgradeResponse()
    response.version = b"HTTP/1.1"
    response.status = HTTPStatus(answer.status)
    response.headers = CIMultiDict(answer.headers)
    response.body = answer.body
    if not answer.body:
        response.headers["Content-Length"] = "0"
    return WSUpgradeResponseWithListener(response, None)
