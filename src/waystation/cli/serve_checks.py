"""Checks of ``waystation doctor`` that ``serve`` makes: files in pairs, the store's layout, and every part's own."""

import asyncio
import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waystation.cli.machine_checks import Finding
from waystation.core.errors import HostError, WaystationError

if TYPE_CHECKING:
    from waystation.server.config.values import Config
    from waystation.server.home import Home

__all__ = ["check_start", "check_store", "check_writable", "running_pid"]

_STORE_WAY_OUT: Final = "put a copy back, or move it away to begin without bans"


def check_start(config: "Config", home: "Home") -> Iterator[Finding]:
    """Look what ``serve`` would refuse before it listens; nothing is written."""
    from waystation.server.rehearsal import rehearse  # noqa: PLC0415 - only this check needs it

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # what would be logged, the findings say
            refused = asyncio.run(rehearse(config, home))
    except WaystationError as error:
        refused = {"node": str(error)}
    for part, sentence in refused.items():
        yield Finding("start", good=False, says=f"{part}: {sentence}")
    if not refused:
        yield Finding("start", good=True, says="every part accepts the configuration and its files")


def check_store(path: Path) -> Finding:
    """Look whether the database in ``path`` is whole and of a layout that we know; nothing is written into it."""
    from waystation.store.sqlite_layout import check_file  # noqa: PLC0415 - only this check needs it

    if not path.exists():
        return Finding("store", good=True, says=f"{path} is not made yet")
    try:
        check_file(path)
    except HostError as error:
        return Finding("store", good=False, says=f"{error}; {_STORE_WAY_OUT}")
    return Finding("store", good=True, says=f"{path} is whole")


def check_writable(home: "Home") -> Finding | None:
    """Return what is wrong with the disk of the home, None when this user can write there."""
    try:
        pid = home.locked_by()
    except HostError as error:
        return Finding("home", good=False, says=f"{error}; is the disk mounted read-only, or is it another user's?")
    if pid is not None:
        return None  # the node that runs there writes
    probe = home.path / ".doctor"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        way_out = "make room, mount the disk for writing, or name another --home"
        says = f"nothing can be written into {home.path}: {error.strerror or error}; {way_out}"
        return Finding("home", good=False, says=says)
    return None


def running_pid(home: "Home") -> int | None:
    """Return the process of the node that runs on a home, None without one or where the lock cannot be read."""
    try:
        return home.locked_by() if home.path.exists() else None
    except HostError:
        return None  # check_writable says it
