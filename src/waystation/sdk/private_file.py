"""Reads and writes a client's small files: mode 0600, and each write is complete or has no effect.

Keys and small tables of clients use it: text goes in and out. A crash leaves the old file or the new one, because a
write goes to a temporary name first.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError, LocalError

__all__ = ["read_private", "read_private_json", "write_private", "write_whole"]

_OTHERS: Final = 0o077
_EXIT_PERMISSION: Final = 4
_FILE_BYTES_MAX: Final = 8_388_608


def read_private(path: Path, *, secret: bool = False) -> str | None:
    """Return the text of a file, or None when there is none.

    Raises:
        HostError: It cannot be read, or is a secret that others may read.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            text = file.read(_FILE_BYTES_MAX).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}", exit_code=_EXIT_PERMISSION) from error
    except UnicodeDecodeError as error:
        raise HostError(f"{path} is no text") from error
    if secret and mode & _OTHERS:
        raise HostError(
            f"{path} holds a secret and others may read it (mode {mode:04o}); run: chmod 600 {path}",
            exit_code=_EXIT_PERMISSION,
        )
    return text


def read_private_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, an empty one when there is no file.

    Raises:
        HostError: It cannot be read, or holds something else.
    """
    text = read_private(path)
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HostError(f"{path} holds no JSON; fix or remove it") from error
    if not isinstance(document, dict):
        raise HostError(f"{path} holds no JSON object; fix or remove it")
    return document


def write_private(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a file, mode 0600; its folder is made if absent.

    Raises:
        LocalError: It is there already and ``replace`` is false.
        HostError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot make {path.parent}: {error.strerror}", exit_code=_EXIT_PERMISSION) from error
    try:
        write_whole(path, text.encode(), replace=replace)
    except FileExistsError as error:
        raise LocalError(f"{path} is there already; it is not overwritten") from error
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}", exit_code=_EXIT_PERMISSION) from error


def write_whole(path: Path, data: bytes, *, replace: bool) -> None:
    """Write a file, mode 0600, whole or not at all; when this returns, it survives a power cut under its name.

    Raises:
        FileExistsError: It is there already and ``replace`` is false.
        OSError: It cannot be written.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _put_in_place(fresh, path, replace=replace)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        fresh.unlink(missing_ok=True)


def _put_in_place(fresh: Path, path: Path, *, replace: bool) -> None:
    if replace:
        fresh.replace(path)
        return
    try:
        os.link(fresh, path)  # unlike a rename it fails when the name is taken
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if path.exists():
            raise FileExistsError(path) from None
        fresh.replace(path)
