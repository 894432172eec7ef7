"""Checks each request to the admin port: the token or a session is required, except for a closed list of paths.

``AdminPort`` puts it before the application. The order of the checks: Host and origin (``origins``), then the path,
then token or session. Paths that need neither are a closed list, so a new route is closed from its first day. What a
session may do, a page may do, so a request that changes something with a session also needs an Origin, which is then
the port's own. The same holds over the unix socket.

Choices NODE-SESSION, NODE-SOCKET.
"""

from collections.abc import Callable
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waystation.core.errors import HostError
from waystation.core.instant import Instant
from waystation.engine.admission import address_key
from waystation.server.bursts import Bursts
from waystation.server.config.settings import AdminSettings
from waystation.server.http.credentials import SESSION_S, FailedTries, Sessions, is_equal
from waystation.server.http.origins import HostNames, origin_refusal

__all__ = ["COOKIE", "OPEN_PATHS", "SESSION_PATH", "TOKEN_PATH", "Authorisation", "refused"]

COOKIE: Final = "waystation-"
"""Begins the name of the cookie; a part of the node's key follows, because cookies of all ports of a host are one."""
OPEN_PATHS: Final = frozenset({"/", "/healthz", "/readyz"})
METRICS_PATH: Final = "/metrics"
SESSION_PATH: Final = "/admin/v1/session"
TOKEN_PATH: Final = "/admin/v1/token"  # noqa: S105 - a path
_READS: Final = ("GET", "HEAD")
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
_ANY_ADDRESS: Final = ("0.0.0.0", "::", "*")  # noqa: S104 - compared with, not bound
_NEEDED: Final = "a bearer token is needed: the text in admin.token of the node's home"

_log = structlog.get_logger("waystation.server")


class Authorisation:
    """Who may use the admin port of one node."""

    def __init__(
        self,
        token: str,
        settings: AdminSettings,
        *,
        name: str,
        rotate: Callable[[], None],
        clock: Callable[[], Instant],
    ) -> None:
        """Prepare it.

        Args:
            token: In force until ``use_token``.
            settings: Of ``[admin]``.
            name: Distinguishes this node from others of the same host, in letters and digits.
            rotate: Called for a new token; raises HostError when the disk refuses.
            clock: Returns monotonic time.
        """
        self._token = token
        self._rotate = rotate
        self._clock = clock
        self._cookie = COOKIE + name
        self._sessions = Sessions()
        self._tries = FailedTries(clock())
        self._bursts = Bursts(clock())
        """Addresses with wrong tokens, for the log."""
        listen = settings.listen
        self._bound = [listen.host] if listen is not None and listen.host not in _ANY_ADDRESS else []
        self.use(settings)

    def use(self, settings: AdminSettings) -> None:
        """Take over settings, for requests from now on."""
        self._names = HostNames([*settings.hosts, *self._bound])
        self._open = OPEN_PATHS | ({METRICS_PATH} if settings.metrics == "open" else frozenset())

    def use_token(self, token: str) -> None:
        """Accept ``token`` from now on; when it differs, the old one and all sessions end at once."""
        if not is_equal(token, self._token):
            self._token = token
            self._sessions.end_all()
            _log.info("admin.token_replaced")

    def open_paths(self) -> list[str]:
        """Return what is answered without token and session."""
        return sorted(self._open)

    def routes(self) -> list[Route]:
        """Return the routes about sessions and the token itself."""
        return [
            Route(SESSION_PATH, self._session, methods=["POST", "DELETE"]),
            Route(TOKEN_PATH, self._replace_token, methods=["POST"]),
        ]

    def before(self, application: ASGIApp) -> ASGIApp:
        """Return ``application`` with these checks before it."""

        async def checked(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_headed(message: Message) -> None:
                if message["type"] == "http.response.start":
                    present = {name.lower() for name, _ in message["headers"]}
                    more = [header for header in _HEADERS if header[0] not in present]
                    message["headers"] = [*message["headers"], *more]
                await send(message)

            refused = self._refuse(Request(scope))
            await (application if refused is None else refused)(scope, receive, send_headed)

        return checked

    # The checks

    def _refuse(self, request: Request) -> Response | None:
        """Return what answers in place of the application, None to let it answer."""
        headers, server = request.scope["headers"], request.scope.get("server")
        refusal = origin_refusal(headers, self._names, server[0] if server is not None and server[1] else "")
        if refusal is not None:
            return refused(*refusal)
        if request.scope["path"] in self._open:
            return None
        given = request.headers.getlist("authorization")
        if given:
            return None if self._is_right(given) else self._wrong(request)
        if not self._has_session(request):
            return refused(401, _NEEDED, {"www-authenticate": "Bearer"})
        if request.method not in _READS and "origin" not in request.headers:
            return refused(403, "a change with a session needs the Origin of its page; programs send the token")
        return None

    def _is_right(self, given: list[str]) -> bool:
        scheme, _, token = given[0].partition(" ")
        return len(given) == 1 and scheme.lower() == "bearer" and is_equal(token.strip(), self._token)

    def _has_session(self, request: Request) -> bool:
        secret = request.cookies.get(self._cookie, "")
        return bool(secret) and self._sessions.hold(secret, self._clock())

    def _wrong(self, request: Request) -> Response:
        address = request.client.host if request.client is not None else ""
        key, now = address_key(address), self._clock()
        if self._bursts.begins(key, now):
            _log.warning("admin.wrong_token", address=address or "unix socket")
        if retry_s := self._tries.note(key, now):
            headers = {"retry-after": str(retry_s), "connection": "close"}
            return refused(429, "too many wrong tokens; the right one is accepted at any time", headers)
        return refused(401, "this is not the text in admin.token of the node's home", {"www-authenticate": "Bearer"})

    # Sessions and the token

    async def _session(self, request: Request) -> Response:
        return self._make_session(request) if request.method == "POST" else self._end_session(request)

    def _make_session(self, request: Request) -> Response:
        """Answer with a cookie; only the token itself makes one."""
        if not request.headers.getlist("authorization"):
            return refused(401, _NEEDED, {"www-authenticate": "Bearer"})
        response = JSONResponse({"ok": True, "ends_in_s": SESSION_S}, status_code=201)
        response.set_cookie(
            self._cookie,
            self._sessions.make(self._clock()),
            max_age=SESSION_S,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("origin", "").lower().startswith("https:"),
        )
        return response

    def _end_session(self, request: Request) -> Response:
        """End the session of the cookie."""
        ended = self._sessions.end(request.cookies.get(self._cookie, ""))
        response = JSONResponse({"ok": True}) if ended else refused(404, "there is no such session")
        response.delete_cookie(self._cookie, httponly=True, samesite="strict")
        return response

    async def _replace_token(self, _request: Request) -> Response:
        """Write a new token into the home; the answer does not have it, who asked may read the file."""
        try:
            self._rotate()
        except HostError as error:
            return refused(503, str(error))
        return JSONResponse({"ok": True}, status_code=201)


def refused(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    """Return the one form that every refusal has."""
    return JSONResponse({"ok": False, "error": sentence, "status": status}, status_code=status, headers=headers)
