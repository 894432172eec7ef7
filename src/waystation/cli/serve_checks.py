"""Checks of ``waystation doctor``: whether ``serve`` would start with this configuration and can write to its home.

The configuration and the home go in, ``Finding`` values (good or not, with a sentence) come out. ``server.rehearsal``
makes every part as ``serve`` does, so the two agree.
"""

import asyncio
import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from waystation.cli.machine_checks import Finding
from waystation.core.errors import HostError, WaystationError

if TYPE_CHECKING:
    from waystation.server.config.values import Config
    from waystation.server.home import Home

__all__ = ["check_start", "check_writable", "running_pid"]


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
