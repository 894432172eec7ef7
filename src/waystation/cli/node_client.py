"""Finds the node that runs on a home, and asks its admin port with the home's token.

``admin``, ``bans``, ``backup``, ``upgrade`` and ``status`` use it: a path goes in, the decoded JSON answer comes out.
``NodeClient.find`` looks at ``running.json`` and at the lock of the home. A request goes over the unix socket where
there is one, else to the address. Every failure is an error whose sentence names a way out.
"""

import contextlib
import http.client
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from waystation.cli.output import EXIT_FAILURE, EXIT_USAGE, split_settings
from waystation.core.errors import HostError
from waystation.server.config.load import load_config
from waystation.server.home import Home
from waystation.server.http.running import Running, read_running
from waystation.transport.addresses import reached_host
from waystation.transport.unix_http import UnixHttpConnection
from waystation.version import __version__

__all__ = ["NodeClient", "NodeRefusedError", "existing_home", "home_of", "rotate_token"]

TIMEOUT_S: Final = 10.0
"""For each step of a request: to connect, to send, to receive a part of the answer."""
ANSWER_BYTES_MAX: Final = 64 * 1_048_576
"""More than the longest list of the admin port."""

_TOKEN_PATH: Final = "/admin/v1/token"  # noqa: S105 - a path
_MALFORMED: Final = 400
_UNAUTHORISED: Final = 401
_UNKNOWN: Final = (404, 405)
_GOOD: Final = range(200, 300)


class NodeRefusedError(HostError):
    """The node answered, and refused.

    Attributes:
        status: Of HTTP: 400 for a request that is not well formed, 404 for a thing that is not there, and so on.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, exit_code=EXIT_USAGE if status == _MALFORMED else EXIT_FAILURE)
        self.status = status


def home_of(home: str | None = None, config: str | None = None, environ: Mapping[str, str] | None = None) -> Home:
    """Return the home that a command means.

    Args:
        home: Of ``--home``; wins.
        config: Of ``--config``: a file whose ``node.home`` is taken; without either, ``WAYSTATION_NODE__HOME`` of the
            environment, else ``./waystation``.
        environ: The process's own when None.

    Raises:
        ConfigError: The configuration is refused.
    """
    overrides = split_settings(None, home=home)
    chosen = load_config(Path(config) if config else None, os.environ if environ is None else environ, overrides)
    return Home(chosen.node.home)


def existing_home(home: str | None = None, config: str | None = None) -> Home:
    """Return the home that a command means, which is there; arguments as for ``home_of``.

    Raises:
        ConfigError: The configuration is refused.
        HostError: There is none, or its key is missing (exit code 5).
    """
    place = home_of(home, config)
    with _readable(place):
        if not place.key_path.exists():
            from waystation.server.home.mark import check_home  # noqa: PLC0415 - only for this sentence
            from waystation.store.sqlite_file import STORE_EXIT_CODE  # noqa: PLC0415

            check_home(place)  # names the key where the home remembers one
            if place.store_path.exists():
                raise HostError(
                    f"{place.key_path} is missing; put it back, or restore a backup", exit_code=STORE_EXIT_CODE
                )
            raise HostError(_no_home(place))
    return place


def rotate_token(home: Home) -> bool:
    """Write a new token, through the running node where there is one; return whether a node uses it now.

    Raises:
        HostError: The disk refused, or the node does not answer; the old token stays.
    """
    with _readable(home):
        running = read_running(home)
        if home.locked_by() is None:
            with home.lock():  # so that no node starts meanwhile with the token that ends
                home.replace_admin_token()
            return False
        if running is not None and not running.socket and not running.admin:
            home.replace_admin_token()
            return False
    client = NodeClient.of(home)
    client.ask("POST", _TOKEN_PATH)
    return True


class NodeClient:
    """One running node, asked over its admin port; each request has a connection of its own."""

    def __init__(self, home: Home, running: Running) -> None:
        """Ask the node that ``running`` describes; ``find`` looks for it."""
        self.home = home
        self.running = running
        self.timeout_s = TIMEOUT_S
        """For each step of a request."""

    @classmethod
    def find(
        cls, home: str | None = None, config: str | None = None, environ: Mapping[str, str] | None = None
    ) -> "NodeClient":
        """Return the node that runs on the home of these options; arguments as for ``home_of``.

        Raises:
            ConfigError: The configuration is refused.
            HostError: No node runs there, it is not ready, or it has no admin port.
        """
        return cls.of(home_of(home, config, environ))

    @classmethod
    def of(cls, home: Home) -> "NodeClient":
        """Return the node that runs on ``home``.

        Raises:
            HostError: As ``find``.
        """
        path = home.path
        with _readable(home):
            pid = home.locked_by()
            running = read_running(home) if pid is not None else None
        if pid is None:
            raise HostError(_no_home(home) if not path.is_dir() else f"no node runs on {path}; {_way_out(home)}")
        if running is None or (pid and running.pid != pid):
            raise HostError(f"the node on {path} (process {pid}) is not ready, or ends; try again in a few seconds")
        if not running.socket and not running.admin:
            raise HostError(
                f"the node on {path} (process {pid}) has no admin port; set admin.socket or admin.listen and restart it"
            )
        return cls(home, running)

    def get(self, path: str) -> dict[str, Any]:
        """Return the document at a path, such as "/admin/v1/status".

        Raises:
            NodeRefusedError: The node refused.
            HostError: It does not answer, or the token cannot be read.
        """
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the document that answers; arguments and errors as for ``text``."""
        text = self.text(method, path, body)
        try:
            document = json.loads(text)
        except ValueError as error:
            raise HostError(f"{self._node()} answers {path} with what is no JSON{self._other_version()}") from error
        if not isinstance(document, dict):
            raise HostError(f"{self._node()} answers {path} with what is no JSON object{self._other_version()}")
        return document

    def text(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        """Send a request and return its answer as it is, such as "/metrics".

        Args:
            method: GET, POST or DELETE.
            path: Quoted, with its query.
            body: Sent as JSON; None for none.

        Raises:
            NodeRefusedError: The node refused; carries its status.
            HostError: It does not answer, or the token cannot be read.
        """
        headers = {"Authorization": f"Bearer {self._token()}", "Connection": "close"}
        data = json.dumps(body).encode() if body is not None else None
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            status, answer = self._send(method, path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            why = "it took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            raise HostError(
                f"{self._node()} does not answer at {self._place()}: {why}; its log says what it does, and "
                "waystation doctor what is wrong with this machine"
            ) from error
        if status in _GOOD:
            return answer
        raise self._refusal(path, status, answer)

    def _send(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> tuple[int, str]:
        connection = self._connect()
        try:
            connection.request(method, path, data, dict(headers))
            with connection.getresponse() as response:
                answer = response.read(ANSWER_BYTES_MAX + 1)
                if len(answer) > ANSWER_BYTES_MAX:
                    raise http.client.HTTPException(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
                return response.status, answer.decode(errors="replace")
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        """Return a connection over the unix socket where that works, else to the address.

        Raises:
            OSError: Nobody answers at either.
        """
        if self.running.socket:
            over_socket = UnixHttpConnection(self.running.socket, timeout_s=self.timeout_s)
            try:
                over_socket.connect()
            except TimeoutError:
                over_socket.close()
                raise  # the same process would let the address wait too
            except OSError:
                over_socket.close()
                if not self.running.admin:
                    raise
            else:
                return over_socket
        address = urlsplit(self.running.admin)
        host = reached_host(address.hostname or "")
        connection = http.client.HTTPConnection(host, address.port, timeout=self.timeout_s)
        connection.connect()
        return connection

    def _token(self) -> str:
        with _readable(self.home):
            if not self.home.token_path.exists():
                raise HostError(
                    f"{self.home.token_path} is missing, so {self._node()} would refuse; make a new one and have the "
                    f"node take it over: kill -HUP {self.running.pid}"
                )
            return self.home.admin_token()

    def _refusal(self, path: str, status: int, answer: str) -> HostError:
        """Return the node's own sentence, or what to do where the token or the version does not fit."""
        if status == _UNAUTHORISED:
            return NodeRefusedError(
                f"{self._node()} refuses the token in {self.home.token_path}; if the file was replaced, have the node "
                f"take it over: kill -HUP {self.running.pid}",
                status,
            )
        try:
            sentence = json.loads(answer)["error"]
        except (ValueError, KeyError, TypeError):
            sentence = ""
        if not isinstance(sentence, str) or not sentence:
            sentence = f"{self._node()} refuses {path} with status {status}"
        note = self._other_version() if status in _UNKNOWN else ""
        return NodeRefusedError(sentence + note, status)

    def _other_version(self) -> str:
        if self.running.version == __version__:
            return ""
        return f"; the node has version {self.running.version} and this program {__version__}: restart the node"

    def _place(self) -> str:
        return " and ".join(each for each in (self.running.socket, self.running.admin) if each)

    def _node(self) -> str:
        return f"the node on {self.home.path} (process {self.running.pid})"


def _no_home(home: Home) -> str:
    return f"there is no home of a node at {home.path}; {_way_out(home)}"


def _way_out(home: Home) -> str:
    return f"name the home of one with --home, or run: waystation serve --home {home.path}"


@contextlib.contextmanager
def _readable(home: Home) -> Iterator[None]:
    """Say whose home it is where this user may not read it."""
    try:
        yield
    except (HostError, OSError) as error:
        if not isinstance(error if isinstance(error, OSError) else error.__cause__, PermissionError):
            raise
        raise HostError(
            f"this user may not read the home {home.path}; run the command as the user of the node, such as with "
            "sudo -u waystation",
            exit_code=4,
        ) from error
