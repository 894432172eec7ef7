"""How full the disk of the home is, and how much of that is the node's."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError
from waystation.server.home import Home

__all__ = ["FREE_BYTES_LEAST", "disk_trouble", "disk_view", "free_bytes", "store_bytes"]

FREE_BYTES_LEAST: Final = 256 * 1_048_576
"""Below this an operator has to act: a busy journal takes about 20 kB a second, so this lasts some hours."""

_MIB: Final = 1_048_576


def free_bytes(path: Path) -> tuple[int, int]:
    """Return the bytes that this user may still write on the file system of ``path``, and its size.

    Raises:
        HostError: The file system does not answer.
    """
    try:
        found = os.statvfs(path)
    except OSError as error:
        raise HostError(f"cannot ask the file system of {path}: {error.strerror or error}") from error
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def store_bytes(home: Home) -> int:
    """Return the size of the store and of what its library keeps beside it; looks at these few files.

    Raises:
        OSError: The file system does not answer.
    """
    return sum(map(_size, home.path.glob(f"{home.store_path.name}*")))


def disk_view(home: Home, sealed: Mapping[str, int], beside: int) -> dict[str, Any]:
    """Return the space of the home's file system, and what store, journal and archive take, in bytes.

    Those of the file system and of the store are None when it does not answer.

    Args:
        home: The node's.
        sealed: Size of the sealed segments, by folder.
        beside: Bytes that protocols keep beside the store; they count as the store's.
    """
    stored: int | None
    space: tuple[int, int] | tuple[None, None]
    try:
        space = free_bytes(home.path)
    except HostError:
        space = None, None
    try:
        stored = store_bytes(home) + beside
    except OSError:
        stored = None
    return {
        "free_bytes": space[0],
        "size_bytes": space[1],
        "store_bytes": stored,
        "journal_bytes": sealed.get("journal", 0),
        "archive_bytes": sealed.get("archive", 0),
    }


def disk_trouble(disk: Mapping[str, Any]) -> list[str]:
    """Return a sentence when what ``disk_view`` returned is below the floor, else nothing."""
    free: int | None = disk["free_bytes"]
    if free is None:
        return ["the file system of the home does not answer; look at the kernel's log"]
    if free >= FREE_BYTES_LEAST:
        return []
    left = f"only {free // _MIB} MiB are free on the disk of the home"
    return [f"{left}; make room, or lower journal.retention_mib and journal.archive_retention_mib"]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
