"""The admin port of one node: its TCP address and its unix socket, and the application that answers at both.

``NodeServer`` opens it with the node's ``Operations``. Programs of the same user take the socket, which file
permissions protect; browsers and other machines take the address. Both need the token.
"""

from pathlib import Path
from typing import Final

import structlog

from waystation.core.errors import LocalError
from waystation.server.config.settings import ADMIN_SOCKET, AdminSettings
from waystation.server.home import Home
from waystation.server.http.admin import admin_application
from waystation.server.http.authorisation import Authorisation
from waystation.server.http.connection import HttpLimits, LateAnswer
from waystation.server.http.port import HttpPort
from waystation.server.http.unix_socket import check_path
from waystation.server.hub import monotonic_now
from waystation.server.operations import Operations
from waystation.server.proxies.rules import ProxyRules

__all__ = ["AdminPort"]

_NAME_CHARS: Final = 8  # of the node's key: enough to keep the nodes of one machine apart
_LATE: Final = LateAnswer({"ok": False, "error": "the head of the request did not come in time", "status": 408})

_log = structlog.get_logger("waystation.server")


class AdminPort:
    """What the operator asks; ``open`` binds it."""

    def __init__(self, operations: Operations, home: Home, settings: AdminSettings, proxies: ProxyRules) -> None:
        """Prepare it; the token is made in ``home`` when it is missing.

        Args:
            operations: What is offered.
            home: Has the token, and the socket unless the settings name another place.
            settings: Of ``[admin]``.
            proxies: Who may name the client of a request.

        Raises:
            HostError: Others may read the token (exit code 4).
        """
        self._home = home
        self._settings = settings
        self._authorisation = Authorisation(
            home.admin_token(),
            settings,
            name=operations.identity["public_key"][:_NAME_CHARS],
            rotate=self.rotate,
            clock=monotonic_now,
        )
        application = self._authorisation.before(admin_application(operations, self._authorisation))
        limits = HttpLimits(per_address=False)
        # The commands of a proxy's own machine name no client either, and are the operator's.
        self._port = HttpPort(application, _LATE, limits, proxies, "admin.listen", reports_unnamed=False)
        self.socket = ""
        """Once open: the absolute path of the unix socket, "" for none."""

    @property
    def url(self) -> str:
        """Once open: http://, host and port; "" when it listens at no address."""
        return self._port.url

    async def open(self) -> None:
        """Bind what the settings name.

        Raises:
            HostError: The port or the socket's path is taken, or not ours to take (exit code 4).
        """
        if self._settings.listen is not None:
            await self._port.open(self._settings.listen)
        path = self._socket_path()
        if path is not None:
            await self._port.open_unix(path)
            self.socket = str(path)

    def rotate(self) -> None:
        """Make a new token; the old one and all sessions end at once.

        Raises:
            HostError: The disk refused; everything stays as it was.
        """
        self._authorisation.use_token(self._home.replace_admin_token())

    def use(self, settings: AdminSettings, token: str) -> None:
        """Take over settings that reload, and the token of the home, which ends the one before it."""
        self._authorisation.use(settings)
        self._authorisation.use_token(token)

    async def close(self) -> None:
        """Stop serving, and remove the socket."""
        await self._port.close()

    def _socket_path(self) -> Path | None:
        """Return where the socket goes; None for none, also where only the default's path is too long."""
        name = self._settings.socket
        if not name:
            return None
        path = self._home.path.resolve() / name
        try:
            check_path(path)
        except LocalError as error:
            if name != ADMIN_SOCKET:
                raise
            _log.warning("admin.no_socket", error=str(error))
            return None
        return path
