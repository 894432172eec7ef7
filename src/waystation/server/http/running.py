"""``running.json`` in the home of a node that serves: its process, its version and where it is reached.

``NodeServer`` writes it for the commands that look for a running node. It is written once every listener is bound and
removed at the end. A process that was killed leaves it behind, so a reader asks ``Home.locked_by`` too: the file counts
only while that process holds the home.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import structlog

from waystation.core.errors import HostError
from waystation.server.home import Home, write_whole

__all__ = ["Running", "forget_running", "read_running", "write_running"]

_log = structlog.get_logger("waystation.server")


class Running(NamedTuple):
    """A node that serves."""

    pid: int
    """Of its process."""
    version: str
    """Of its software."""
    urls: Mapping[str, str]
    """Where each listener is reached, by name; the admin port is "admin"."""
    socket: str
    """Absolute path of the admin port's unix socket, "" when it has none."""

    @property
    def admin(self) -> str:
        """The address of the admin port, "" when it has none."""
        return self.urls.get("admin", "")


def write_running(home: Home, running: Running) -> None:
    """Write the file, with permissions for its owner alone.

    Raises:
        HostError: The disk refused.
    """
    try:
        write_whole(home.running_path, (json.dumps(running._asdict()) + "\n").encode())
    except OSError as error:
        raise HostError(f"cannot write {home.running_path}: {error.strerror or error}") from error


def read_running(home: Home) -> Running | None:
    """Return what the file says, None when there is none.

    Raises:
        HostError: It cannot be read, or is damaged.
    """
    try:
        document = json.loads(home.running_path.read_bytes())
        pid, version, urls, socket = (document[name] for name in Running._fields)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError(f"cannot read {home.running_path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(f"{home.running_path} is damaged; restart the node to have it written anew") from error
    named = isinstance(urls, dict) and all(isinstance(url, str) for url in urls.values())
    if not (named and isinstance(pid, int) and isinstance(version, str) and isinstance(socket, str)):
        raise HostError(f"{home.running_path} is damaged; restart the node to have it written anew")
    return Running(pid, version, urls, socket)


def forget_running(home: Home) -> None:
    """Remove the file; one that the disk does not let go of is logged, and counts no more once the lock is free."""
    try:
        home.running_path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("node.running_file", path=str(home.running_path), error=error.strerror or str(error))
