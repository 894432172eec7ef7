"""The admin port's application: health, readiness, metrics, status and bans, as HTTP.

``AdminPort`` serves it; ``Operations`` does the work. ``authorisation`` stands before it, so what is here asks nobody
for a token. Every answer is JSON except ``/metrics``. Every refusal has one form: ``{"ok": false, "error": sentence,
"status": code}``.
"""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import encode_id52
from waystation.engine.bans import LASTS_S_MAX, Ban, parse_subject, why_force
from waystation.server.http.authorisation import Authorisation, refused
from waystation.server.http.metrics import render_metrics
from waystation.server.operations import Operations
from waystation.server.policy_reader import TABLES

__all__ = ["admin_application"]

BODY_BYTES_MAX: Final = 65_536
TENANTS_MAX: Final = 10_000  # of one answer: two megabytes, and a tenth of a second that peers wait
TENANTS_DEFAULT: Final = 1_000
CONNECTIONS_MAX: Final = 1_000
CONNECTIONS_DEFAULT: Final = 100
_BAN_FIELDS: Final = ("subject", "reason", "expires_s", "force")
_MICROSECONDS: Final = 1_000_000
_NAMED_CHARS: Final = 40  # how much of an unknown field's name a refusal repeats


def admin_application(operations: Operations, authorisation: Authorisation) -> Starlette:
    """Return the application that offers ``operations``; ``authorisation`` has routes too, and comes before it."""
    return _Api(operations, authorisation).application()


class _Api:
    def __init__(self, operations: Operations, authorisation: Authorisation) -> None:
        self._operations = operations
        self._authorisation = authorisation

    def application(self) -> Starlette:
        """Return the routes."""
        application = Starlette(
            exception_handlers={404: _not_found, 405: _not_allowed},
            routes=[
                Route("/", self._index),
                Route("/healthz", self._health),
                Route("/readyz", self._ready),
                Route("/metrics", self._metrics),
                Route("/admin/v1/status", self._status),
                Route("/admin/v1/limits", self._limits),
                Route("/admin/v1/connections", self._connections),
                Route("/admin/v1/tenants", self._tenants),
                *(Route(f"/admin/v1/{name}", self._view(name)) for name in self._operations.viewed()),
                Route("/admin/v1/policy", self._policy),
                Route("/admin/v1/published/{name}", self._published),
                Route("/admin/v1/bans", self._bans, methods=["GET", "POST"]),
                Route("/admin/v1/bans/{subject:path}", self._lift, methods=["DELETE"]),
                *self._authorisation.routes(),
            ],
        )
        application.router.redirect_slashes = False
        return application

    async def _index(self, _request: Request) -> Response:
        """Answer with what can be seen without a token."""
        return JSONResponse({"ok": True, "see": [path for path in self._authorisation.open_paths() if path != "/"]})

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"ok": True})

    async def _ready(self, _request: Request) -> Response:
        why = self._operations.not_ready()
        return JSONResponse({"ok": False} | why if why else {"ok": True}, status_code=503 if why else 200)

    async def _metrics(self, _request: Request) -> Response:
        text = render_metrics(self._operations.counts, self._operations.limit_uses)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _status(self, _request: Request) -> Response:
        status = self._operations.status()
        status["totals"] = {
            name: {f"{protocol}.{word}": number for (protocol, word), number in totals.items()}
            for name, totals in status["totals"].items()
        }
        return JSONResponse({"ok": True, **status})

    async def _limits(self, _request: Request) -> Response:
        """Answer with every limit: its value, its use, its refusal and the peers that met it last."""
        return JSONResponse({"ok": True, "limits": self._operations.limits()})

    async def _connections(self, request: Request) -> Response:
        """Answer with the open connections, the heaviest first, at most ``?limit=`` of them."""
        limit = _limit(request, CONNECTIONS_DEFAULT, CONNECTIONS_MAX)
        if limit is None:
            return refused(400, f'"limit" is a whole number from 1 to {CONNECTIONS_MAX}')
        return JSONResponse({"ok": True, **self._operations.connections(limit)})

    async def _tenants(self, request: Request) -> Response:
        """Answer with the tenants of the LPRP host, oldest lease first, at most ``?limit=`` of them (LPRP-TENANTS)."""
        limit = _limit(request, TENANTS_DEFAULT, TENANTS_MAX)
        if limit is None:
            return refused(400, f'"limit" is a whole number from 1 to {TENANTS_MAX}')
        shown, count = self._operations.tenants(limit)
        return JSONResponse({"ok": True, "count": count, "tenants": shown})

    def _view(self, protocol: str) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers with the view of one protocol."""

        async def answer(_request: Request) -> Response:
            view = self._operations.view(protocol)
            if view is None:
                return refused(404, f"[{protocol}] is not enabled")
            return JSONResponse({"ok": True, **view})

        return answer

    async def _policy(self, _request: Request) -> Response:
        """Answer with the published snapshot in force, and the first of its rules with how often each was met."""
        return JSONResponse({"ok": True, **self._operations.policy()})

    async def _published(self, request: Request) -> Response:
        """Answer with one published table, byte for byte as it was signed."""
        name = request.path_params["name"]
        if name not in TABLES:
            return refused(404, f"there is no such table; known: {', '.join(TABLES)}")
        document = self._operations.published(name)
        if document is None:
            return refused(404, "nothing in order is published yet; /admin/v1/policy says what is wrong")
        return Response(document, media_type="application/json")

    async def _bans(self, request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse({"ok": True, "bans": [_shown(ban) for ban in self._operations.bans()]})
        try:
            await self._operations.ban(_ban_of(await _body(request)))
        except LocalError as error:
            return refused(400, str(error))
        except HostError as error:
            return refused(503, str(error))
        return JSONResponse({"ok": True}, status_code=201)

    async def _lift(self, request: Request) -> Response:
        try:
            lifted = await self._operations.lift_ban(parse_subject(request.path_params["subject"]))
        except LocalError as error:
            return refused(400, str(error))
        except HostError as error:
            return refused(503, str(error))
        return JSONResponse({"ok": True}) if lifted else refused(404, "there is no such ban")


def _limit(request: Request, default: int, at_most: int) -> int | None:
    """Return the number in ``?limit=``, or None when it is not a whole number from 1 to ``at_most``."""
    text = request.query_params.get("limit", str(default))
    limit = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(at_most)) else 0
    return limit if 0 < limit <= at_most else None


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
    """Read ``{"subject": text, "reason": text, "expires_s": seconds from now or null, "force": true or false}``."""
    unknown = [key for key in document if key not in _BAN_FIELDS]
    if unknown:
        raise LocalError(f"a ban has no field {unknown[0][:_NAMED_CHARS]!r}; allowed: {', '.join(_BAN_FIELDS)}")
    subject, reason, expires_s, force = (document.get(key) for key in _BAN_FIELDS)
    if not isinstance(subject, str) or not isinstance(reason, str):
        raise LocalError('a ban needs "subject" and "reason", both text')
    lasts = isinstance(expires_s, int) and not isinstance(expires_s, bool) and 0 < expires_s <= LASTS_S_MAX
    if expires_s is not None and not lasts:
        raise LocalError(f'"expires_s" is a whole number of seconds from 1 to {LASTS_S_MAX}, or null for good')
    if force is not None and not isinstance(force, bool):
        raise LocalError('"force" is true or false')
    named = parse_subject(subject)
    if not force and (why := why_force(named)) is not None:
        raise LocalError(f'{why}; "force": true, or --force, bans it all the same')
    since_us = time.time_ns() // 1_000
    expires_us = since_us + expires_s * _MICROSECONDS if expires_s is not None else None
    return Ban(named, reason, since_us, expires_us)


def _shown(ban: Ban) -> dict[str, Any]:
    """Return a ban as the list shows it: an identity also as its id52, the spelling that devices print."""
    kind, _, rest = ban.subject.partition(":")
    return asdict(ban) | ({"id52": encode_id52(bytes.fromhex(rest))} if kind == "id" else {})


async def _not_found(_request: Request, _error: Exception) -> Response:
    return refused(404, "there is nothing at this path")


async def _not_allowed(_request: Request, error: Exception) -> Response:
    headers = dict(getattr(error, "headers", None) or {})
    return refused(405, f"this path takes only: {headers.get('Allow', 'other methods')}", headers)
