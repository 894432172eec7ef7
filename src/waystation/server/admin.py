"""The admin port: health, readiness, metrics, status and the list of bans, over HTTP on loopback.

Reading needs nothing, changing needs the bearer token in ``admin.token`` of the node's home; who reads the list of
tenants without it is not told from where they speak (LPRP-TENANTS). Every answer is JSON except ``/metrics``;
every refusal has one shape: ``{"ok": false, "error": sentence, "status": code}``.
"""

import asyncio
import contextlib
import json
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import encode_id52
from waystation.engine.bans import LASTS_S_MAX, Ban, parse_subject
from waystation.server.home import Home
from waystation.server.metrics import render_metrics
from waystation.server.policy_reader import TABLES
from waystation.server.settings import Address
from waystation.transport.listen import why_not_bound

if TYPE_CHECKING:
    from waystation.server.node import NodeServer

__all__ = ["AdminServer"]

BODY_BYTES_MAX: Final = 65_536
GRACE_S: Final = 2  # how long requests under way may take once the node stops
CLOSE_S: Final = 5.0  # how long the HTTP server may take in all before it is cancelled
TENANTS_MAX: Final = 10_000  # of one answer: two megabytes, and a tenth of a second that peers wait
TENANTS_DEFAULT: Final = 1_000
_BAN_FIELDS: Final = ("subject", "reason", "expires_s")
_EXIT_PORT: Final = 4
_MICROSECONDS: Final = 1_000_000
_NAMED_CHARS: Final = 40  # how much of an unknown field's name a refusal repeats

_log = structlog.get_logger("waystation.server")


class AdminServer:
    """HTTP for operators and their tools."""

    def __init__(self, node: "NodeServer", home: Home) -> None:
        """Serve ``node``; the token is made in ``home`` when it is missing."""
        self._node = node
        self._token = home.admin_token()
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.address = ""
        """host:port once open."""

    async def open(self, address: Address) -> None:
        """Bind and serve.

        Raises:
            HostError: The port is taken or not ours to take (exit code 4).
        """
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            listening = socket.create_server((address.host, address.port), family=family)
        except OSError as error:
            raise HostError(f"cannot listen on {address}: {why_not_bound(error)}", exit_code=_EXIT_PORT) from error
        self.address = str(Address(*listening.getsockname()[:2]))
        config = uvicorn.Config(
            self._application(),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _QuietServer(config)
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listening]))

    async def close(self) -> None:
        """Stop serving; takes a few seconds at most, whatever clients do."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        try:
            await asyncio.wait_for(self._task, CLOSE_S)  # cancels what takes longer
        except TimeoutError:
            _log.warning("admin.cut", limit_s=CLOSE_S)

    def _application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._index),
                Route("/healthz", self._health),
                Route("/readyz", self._ready),
                Route("/metrics", self._metrics),
                Route("/admin/v1/status", self._status),
                Route("/admin/v1/tenants", self._tenants),
                Route("/admin/v1/bhumi", self._bhumi),
                Route("/admin/v1/bsp", self._bsp),
                Route("/admin/v1/policy", self._policy),
                Route("/admin/v1/published/{name}", self._published),
                Route("/admin/v1/bans", self._bans, methods=["GET", "POST"]),
                Route("/admin/v1/bans/{subject:path}", self._lift, methods=["DELETE"]),
            ]
        )

    async def _index(self, _request: Request) -> Response:
        return JSONResponse({"ok": True, "see": ["/healthz", "/readyz", "/metrics", "/admin/v1/status"]})

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"ok": True})

    async def _ready(self, _request: Request) -> Response:
        ready = self._node.ready()
        return JSONResponse({"ok": ready}, status_code=200 if ready else 503)

    async def _metrics(self, _request: Request) -> Response:
        return PlainTextResponse(render_metrics(self._node.status), media_type="text/plain; version=0.0.4")

    async def _status(self, _request: Request) -> Response:
        status = self._node.status()
        status["totals"] = {
            name: {f"{protocol}.{word}": number for (protocol, word), number in totals.items()}
            for name, totals in status["totals"].items()
        }
        return JSONResponse({"ok": True, **status})

    async def _tenants(self, request: Request) -> Response:
        """Answer with the tenants of the LPRP host, oldest lease first, at most ``?limit=`` of them."""
        text = request.query_params.get("limit", str(TENANTS_DEFAULT))
        limit = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(TENANTS_MAX)) else 0
        if not 0 < limit <= TENANTS_MAX:
            return _refusal(400, f'"limit" is a whole number from 1 to {TENANTS_MAX}')
        shown, count = self._node.tenants(limit)
        if not self._allowed(request):
            if "authorization" in request.headers:
                return _refusal(401, "this is not the text in admin.token of the node's home")
            shown = [{name: value for name, value in view.items() if name != "address"} for view in shown]
        return JSONResponse({"ok": True, "count": count, "tenants": shown})

    async def _bhumi(self, _request: Request) -> Response:
        """Answer with the relays that the Bhumi relay gossips with, and those it has heard of."""
        view = self._node.bhumi()
        return JSONResponse({"ok": True, **view}) if view is not None else _refusal(404, "[bhumi] is not enabled")

    async def _bsp(self, _request: Request) -> Response:
        """Answer with groups and peers of the BSP device."""
        view = self._node.bsp()
        return JSONResponse({"ok": True, **view}) if view is not None else _refusal(404, "[bsp] is not enabled")

    async def _policy(self, _request: Request) -> Response:
        """Answer with the published snapshot in force, and the first of its rules with how often each was met."""
        return JSONResponse({"ok": True, **self._node.policy()})

    async def _published(self, request: Request) -> Response:
        """Answer with one published table, byte for byte as it was signed."""
        name = request.path_params["name"]
        if name not in TABLES:
            return _refusal(404, f"there is no such table; known: {', '.join(TABLES)}")
        document = self._node.published(name)
        if document is None:
            return _refusal(404, "nothing in order is published yet; /admin/v1/policy says what is wrong")
        return Response(document, media_type="application/json")

    async def _bans(self, request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse({"ok": True, "bans": [_shown(ban) for ban in self._node.bans()]})
        if not self._allowed(request):
            return _refusal(401, "a bearer token is needed: the text in admin.token of the node's home")
        try:
            await self._node.ban(_ban_of(await _body(request)))
        except LocalError as error:
            return _refusal(400, str(error))
        except HostError as error:
            return _refusal(503, str(error))
        return JSONResponse({"ok": True}, status_code=201)

    async def _lift(self, request: Request) -> Response:
        if not self._allowed(request):
            return _refusal(401, "a bearer token is needed: the text in admin.token of the node's home")
        try:
            lifted = await self._node.lift_ban(parse_subject(request.path_params["subject"]))
        except LocalError as error:
            return _refusal(400, str(error))
        except HostError as error:
            return _refusal(503, str(error))
        return JSONResponse({"ok": True}) if lifted else _refusal(404, "there is no such ban")

    def _allowed(self, request: Request) -> bool:
        given = request.headers.get("authorization", "")
        return secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode())


class _QuietServer(uvicorn.Server):
    """A server that leaves the signals to the node."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def _body(request: Request) -> dict[str, Any]:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise LocalError(f"a body has at most {BODY_BYTES_MAX} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LocalError("the body is no JSON") from error
    if not isinstance(document, dict):
        raise LocalError("the body must be a JSON object")
    return document


def _ban_of(document: dict[str, Any]) -> Ban:
    """Read ``{"subject": text, "reason": text, "expires_s": seconds from now or null}``."""
    unknown = [key for key in document if key not in _BAN_FIELDS]
    if unknown:
        raise LocalError(f"a ban has no field {unknown[0][:_NAMED_CHARS]!r}; allowed: {', '.join(_BAN_FIELDS)}")
    subject, reason, expires_s = (document.get(key) for key in _BAN_FIELDS)
    if not isinstance(subject, str) or not isinstance(reason, str):
        raise LocalError('a ban needs "subject" and "reason", both text')
    lasts = isinstance(expires_s, int) and not isinstance(expires_s, bool) and 0 < expires_s <= LASTS_S_MAX
    if expires_s is not None and not lasts:
        raise LocalError(f'"expires_s" is a whole number of seconds from 1 to {LASTS_S_MAX}, or null for good')
    since_us = time.time_ns() // 1_000
    expires_us = since_us + expires_s * _MICROSECONDS if expires_s is not None else None
    return Ban(parse_subject(subject), reason, since_us, expires_us)


def _shown(ban: Ban) -> dict[str, Any]:
    """Return a ban as the list shows it: an identity also as its id52, the spelling that devices print."""
    kind, _, rest = ban.subject.partition(":")
    return asdict(ban) | ({"id52": encode_id52(bytes.fromhex(rest))} if kind == "id" else {})


def _refusal(status: int, sentence: str) -> Response:
    return JSONResponse({"ok": False, "error": sentence, "status": status}, status_code=status)
