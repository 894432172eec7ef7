"""Shows other programs of one home which requests a living sender is working on: a lock file per sender.

The kernel releases the lock when the program dies, however it dies. A request in ``pending`` has its owner's name; the
one that takes it over after a crash becomes its owner in one transaction.
"""

import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError
from waystation.sdk.home_lock import hold, is_held
from waystation.sdk.private_database import private_folder

__all__ = ["is_alive", "owned"]

_FOLDER: Final = "sending"
_NAME_BYTES: Final = 8
_NOT_YET: Final = ".new"


@contextlib.asynccontextmanager
async def owned(home: Path) -> AsyncIterator[str]:
    """Give the name of a new owner, which is alive inside the ``async with`` block.

    Raises:
        HostError: The file cannot be made.
    """
    folder = home / _FOLDER
    with private_folder(folder):
        _sweep(folder)
    name = secrets.token_hex(_NAME_BYTES)
    new, path = folder / f"{name}{_NOT_YET}", folder / name
    async with hold(new, f"{new} is held by another program", 0.0):
        try:
            new.rename(path)  # locked by now: nobody sees a name whose owner is not alive
        except OSError as error:
            raise HostError(f"cannot use {path}: {error}") from error
        try:
            yield name
        finally:
            path.unlink(missing_ok=True)


def is_alive(home: Path, name: str) -> bool:
    """Return whether an owner still works; raises HostError when its file cannot be read."""
    return bool(name) and is_held(home / _FOLDER / name)


def _sweep(folder: Path) -> None:
    """Remove what the dead have left; a name is never used twice."""
    for path in folder.iterdir():
        if path.suffix != _NOT_YET and not is_held(path):
            path.unlink(missing_ok=True)
