"""Copies a store's file while others use it, and makes a copy a store of its own.

The backup calls ``copy_store``; ``renew_store`` gives a restored or older store a new id, so that readers who remember
positions in the original notice (NODE-ANEW). Paths go in, the store's state comes out.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from waystation.core.records import STORE_ID_BYTES, StoreState
from waystation.store.sqlite_file import connect, make_private, refused
from waystation.store.sqlite_layout import check_file, log_path, look_at_file, open_read_only

__all__ = ["copy_store", "renew_store"]

_PAGES_PER_STEP: Final = 2_048  # 8 MiB between two calls for progress
_EPOCH_BYTES: Final = 8
_TRIES: Final = 5  # of a copy that a node interferes with; a second one meets a node that runs, which is no trouble


def copy_store(source: Path, target: Path, progress: Callable[[int, int], None]) -> StoreState | None:
    """Copy a store as it is at one moment after the call, also while a node writes to it, and look whether it is whole.

    Args:
        source: A store of any layout; nothing is written to it, and nobody who writes to it waits.
        target: Where the copy goes; not there yet. One file, for its owner only, synced.
        progress: Called with pages copied and pages in all.

    Returns:
        The state of the copy, None below layout 3.

    Raises:
        HostError: The source is no store or damaged, or one of the disks refused (exit code 5).
    """
    for _ in range(_TRIES):
        # A store at rest is read without locks: a node that starts on it meanwhile writes into pages not copied yet.
        at_rest = _at_rest(source)
        failed = _copy_pages(source, target, progress)
        if at_rest is None or at_rest == _at_rest(source):
            break
        target.unlink(missing_ok=True)
        failed = sqlite3.OperationalError("nodes start and stop on it meanwhile")
    if failed is not None:
        raise refused(source, f"could not be copied to {target}", failed) from failed
    check_file(target)
    _sync(target)
    return look_at_file(target)


def renew_store(path: Path) -> StoreState | None:
    """Give a copy an id and an epoch of its own, so that it may be used, and return its state (NODE-ANEW).

    What was handed out with the old epoch (Strata's cursors) names packets by numbers that this store will give to
    others, and the old id is that of a store that may still be in use.

    Args:
        path: A whole store that nobody uses.

    Raises:
        HostError: The disk refused (exit code 5).
    """
    try:
        with contextlib.closing(connect(path)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            connection.execute("BEGIN IMMEDIATE")
            if "packet_state" in names:
                connection.execute("UPDATE packet_state SET epoch = ?", (os.urandom(_EPOCH_BYTES),))
            if "store_state" in names:
                connection.execute("UPDATE store_state SET store_id = ?", (os.urandom(STORE_ID_BYTES),))
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise refused(path, "did not take a write", error) from error
    return look_at_file(path)


def _copy_pages(source: Path, target: Path, progress: Callable[[int, int], None]) -> sqlite3.Error | OSError | None:
    """Copy every page into a new file; return what went wrong, if anything did."""
    try:
        with contextlib.closing(open_read_only(source)) as reading:
            make_private(target)
            with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as writing:
                # One moment for all steps. Without it each step that meets a new commit begins again at the first page,
                # and a copy of a busy store would never end.
                reading.execute("BEGIN")
                reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
                reading.backup(
                    writing,
                    pages=_PAGES_PER_STEP,
                    progress=lambda _status, left, pages: progress(pages - left, pages),
                    sleep=0.01,
                )
                reading.execute("ROLLBACK")
    except (sqlite3.Error, OSError) as error:
        return error
    return None


def _at_rest(path: Path) -> tuple[int, int] | None:
    """Return size and time of the last write of a store that has no log; None for one that has."""
    if log_path(path).exists():
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
