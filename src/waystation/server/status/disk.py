"""Free space of the home's file system, and how much the node's store, journal and archive take.

``server.operations`` and ``waystation doctor`` ask it: a home goes in, bytes and a sentence about lack of space come
out.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError
from waystation.server.config.parts import PARTS
from waystation.server.config.values import Config
from waystation.server.home import Home

__all__ = ["FREE_BYTES_LEAST", "disk_trouble", "disk_view", "free_bytes", "retention_bytes", "store_bytes"]

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
    is_there = os.path.lexists(home.path)
    try:
        stored = store_bytes(home) + beside if is_there else None
    except OSError:
        stored = None
    return {
        "home": str(home.path.absolute()),
        "home_is_there": is_there,
        "free_bytes": space[0],
        "size_bytes": space[1],
        "store_bytes": stored,
        "journal_bytes": sealed.get("journal", 0),
        "archive_bytes": sealed.get("archive", 0),
    }


def retention_bytes(config: Config) -> dict[str, int]:
    """Return the settings in MiB of parts that are on, in bytes: what the node may keep on the disk at most."""
    kept = {}
    for part in PARTS:
        values = config.of(part.owner)
        is_on = getattr(values, "enabled", True)
        for field in dataclasses.fields(part.owner):
            if is_on and field.metadata.get("unit") == "MiB" and not field.name.endswith("_least"):  # that stays free
                kept[f"{part.table}.{field.name}"] = getattr(values, field.name) * _MIB
    return kept


def disk_trouble(disk: Mapping[str, Any], kept_by: Sequence[str] = ()) -> list[str]:
    """Return a sentence when what ``disk_view`` returned is below the floor, else nothing.

    Args:
        disk: From ``disk_view``.
        kept_by: Names of the settings that say how much may be kept.
    """
    free: int | None = disk["free_bytes"]
    if free is None and not disk["home_is_there"]:
        left = f"the home is not at its path {disk['home']}"
        return [f"{left}: it was moved or deleted, or its disk is not mounted; put it back there"]
    if free is None:
        return ["the file system of the home does not answer; look at the kernel's log"]
    if free >= FREE_BYTES_LEAST:
        return []
    left = f"only {free // _MIB} MiB are free on the disk of the home, less than {FREE_BYTES_LEAST // _MIB} MiB"
    took = sum(disk[f"{name}_bytes"] or 0 for name in ("store", "journal", "archive"))
    own = f"the node has {took // _MIB} MiB of it" if took >= _MIB else "the node has less than 1 MiB of it"
    return [f"{left}; make room ({own}), or lower {', '.join(kept_by)}"]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
