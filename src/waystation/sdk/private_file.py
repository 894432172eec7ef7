"""A client's own small files: written whole or not at all, readable by their owner alone."""

import json
import os
import secrets
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError, LocalError

__all__ = ["read_private", "read_private_json", "write_private"]

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
        raise HostError(f"{path} holds no JSON; mend or remove it") from error
    if not isinstance(document, dict):
        raise HostError(f"{path} holds no JSON object; mend or remove it")
    return document


def write_private(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a file, mode 0600; its folder is made if absent.

    Raises:
        LocalError: It is there already and ``replace`` is false.
        HostError: It cannot be written.
    """
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot make {path.parent}: {error.strerror}", exit_code=_EXIT_PERMISSION) from error
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            if replace:
                fresh.replace(path)
            else:
                os.link(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    except FileExistsError as error:
        raise LocalError(f"{path} is there already; it is not overwritten") from error
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}", exit_code=_EXIT_PERMISSION) from error
