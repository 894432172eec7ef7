"""Checks whether the wall clock can be right, as far as a machine knows without asking another one.

``waystation doctor`` and the node's status call it with the home and the time. Two things are known offline. A file of
the home that was written later than now means that the clock was set back. A clock that is earlier than the build of
this software is wrong. The kernel also says whether a time service keeps its clock; that is worth a remark only, since
many virtual machines keep time without such a service.
"""

import ctypes
import ctypes.util
import datetime
from pathlib import Path
from typing import Final

from waystation.server.home import Home

__all__ = ["AHEAD_S_MAX", "clock_trouble", "is_kept"]

AHEAD_S_MAX: Final = 300
"""A file may be so much newer than now: strata and lprp accept timestamps that are five minutes off."""

_TIMEX_BYTES: Final = 512  # struct timex has 208 on 64-bit Linux
_TIME_ERROR: Final = 5  # adjtimex(2): the clock is not synchronized


def clock_trouble(home: Home, now: datetime.datetime) -> list[str]:
    """Return a sentence when the clock cannot be right, else nothing.

    Args:
        home: The node's; its files bear the time at which they were written.
        now: Aware; what the clock says.
    """
    seconds = now.timestamp()
    newest = max((_written_at(path) for path in _witnesses(home)), default=0.0)
    if newest - seconds > AHEAD_S_MAX:
        when = datetime.datetime.fromtimestamp(newest, datetime.UTC)
        return [f"the clock says {now:%Y-%m-%d %H:%M} UTC, but a file of the home is from {when:%Y-%m-%d %H:%M} UTC"]
    built = _written_at(Path(__file__))
    if seconds < built - AHEAD_S_MAX:
        when = datetime.datetime.fromtimestamp(built, datetime.UTC)
        return [f"the clock says {now:%Y-%m-%d %H:%M} UTC, but this software is from {when:%Y-%m-%d %H:%M} UTC"]
    return []


def is_kept() -> bool | None:
    """Return whether the kernel says that a time service keeps its clock; None where it cannot be asked."""
    try:
        adjtimex = ctypes.CDLL(ctypes.util.find_library("c")).adjtimex
    except (OSError, AttributeError):
        return None
    state: int = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # all zero: read, change nothing
    return state != _TIME_ERROR if state >= 0 else None


def _witnesses(home: Home) -> list[Path]:
    """Return the files that a node writes while it runs; a few, whatever the size of the home."""
    return [home.store_path, home.path / f"{home.store_path.name}-wal", home.lock_path, home.references_path]


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
