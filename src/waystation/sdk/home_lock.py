"""A lock file that lets one program at a time use a folder; the kernel releases it when the program dies.

The clients of Bhumi, BSP and LPRP hold it while they are open: two programs with one identity would take each other's
messages.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError
from waystation.sdk.errors import HomeBusyError

__all__ = ["hold", "is_held"]

_POLL_S: Final = 0.05


@contextlib.asynccontextmanager
async def hold(path: Path, busy: str, timeout_s: float) -> AsyncIterator[None]:
    """Hold the lock file at ``path`` inside the ``async with`` block.

    Args:
        path: Made if absent, and left behind.
        busy: The sentence to raise when another program keeps the lock.
        timeout_s: How long to wait for it.

    Raises:
        HomeBusyError: Another program still holds the lock after ``timeout_s``.
        HostError: The file cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(f"cannot use {path}: {error}") from error
    try:
        give_up_at = asyncio.get_running_loop().time() + timeout_s
        while not _try(descriptor):
            if asyncio.get_running_loop().time() >= give_up_at:
                raise HomeBusyError(busy)
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether some program holds the lock file at ``path``; looking takes it for a moment.

    Raises:
        HostError: The file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise HostError(f"cannot use {path}: {error}") from error
    try:
        return not _try(descriptor)
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
