"""Binds a unix socket that only its owner may open, in place of a file that an ended process left behind.

The admin port calls ``bind_unix`` with a path and gets a listening socket.
"""

import errno
import os
import secrets
import socket
import stat
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from waystation.core.errors import HostError, LocalError

__all__ = ["PATH_BYTES_MAX", "BoundSocket", "bind_unix", "check_path"]

PATH_BYTES_MAX: Final = 107 if os.uname().sysname == "Linux" else 103
"""The kernel's: 108 or 104 bytes with the zero at the end."""
_BACKLOG: Final = 64
_EXIT_PORT: Final = 4
_TEMPORARY_BYTES: Final = 4
_LOOK_S: Final = 1.0  # a process that listens takes a connection at once

_log = structlog.get_logger("waystation.server")


class BoundSocket(NamedTuple):
    """A socket that listens, and its file."""

    socket: socket.socket
    path: Path
    inode: int

    def remove(self) -> None:
        """Remove the file, unless another one stands in its place; one that the disk keeps is logged.

        The node goes on ending. Its next start replaces the file, because nobody listens there.
        """
        try:
            if self.path.lstat().st_ino == self.inode:
                self.path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("admin.socket_file", path=str(self.path), error=error.strerror or str(error))


def check_path(path: Path) -> None:
    """Check that the kernel takes a path for a unix socket.

    Raises:
        LocalError: It is too long.
    """
    temporary = path.with_name("." + "0" * 2 * _TEMPORARY_BYTES)
    longest = max(len(os.fsencode(each)) for each in (path, temporary))
    if longest > PATH_BYTES_MAX:
        raise LocalError(
            f"{path} has {longest} bytes, and the path of a unix socket has at most {PATH_BYTES_MAX}; "
            'name a shorter path in admin.socket, such as "/run/waystation/admin.sock", or "" for none'
        )


def bind_unix(path: Path) -> BoundSocket:
    """Bind, and put the socket in the place of one that nobody listens at any more.

    Args:
        path: Absolute; its folder exists.

    Raises:
        LocalError: The path is too long.
        HostError: Another program listens there, a file that is no socket is there, or the disk refused (exit code 4).
    """
    check_path(path)
    _check_free(path)
    temporary = path.with_name("." + secrets.token_hex(_TEMPORARY_BYTES))
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(os.fsencode(temporary))
        temporary.chmod(0o600)  # before it listens, so that nobody connects sooner
        bound.listen(_BACKLOG)
        inode = temporary.lstat().st_ino
        temporary.rename(path)
    except OSError as error:
        bound.close()
        temporary.unlink(missing_ok=True)
        raise _refused(path, error) from error
    bound.setblocking(False)
    return BoundSocket(bound, path, inode)


def _check_free(path: Path) -> None:
    """Raise HostError unless the path is free, or a socket that nobody listens at."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refused(path, error) from error
    if not stat.S_ISSOCK(mode):
        raise HostError(
            f"cannot listen on {path}: a file that is no socket is there; move it away, or name another admin.socket",
            exit_code=_EXIT_PORT,
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_LOOK_S)
        try:
            probe.connect(os.fsencode(path))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                return
    raise HostError(
        f"cannot listen on {path}: another program listens there; stop it, or name another admin.socket",
        exit_code=_EXIT_PORT,
    )


def _refused(path: Path, error: OSError) -> HostError:
    return HostError(f"cannot listen on {path}: {error.strerror or error}", exit_code=_EXIT_PORT)
