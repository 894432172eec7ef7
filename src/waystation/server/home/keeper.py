"""Keeps ``home.json`` true while a node runs: how far the store has come, and that it is in use.

``NodeServer`` begins and ends it. The next start compares the store with this mark, and so notices that a store was
lost or replaced by an older one (NODE-MARK).
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from waystation.core.errors import HostError, StoreFault, StoreFaultKind
from waystation.core.ids import encode_id52
from waystation.core.records import StoreState
from waystation.server.home.files import Home
from waystation.server.home.mark import HomeState, PreparedHome, adopt_home, store_mark, write_mark
from waystation.store.sqlite_layout import index_path, log_path, look_at_file

__all__ = ["FOLD_S", "MarkKeeper", "log_prepared"]

FOLD_S: Final = 60.0
"""How long the store's log may hold what its file does not: about what a copy of the file alone lacks."""
_LOOK_S: Final = 1.0
_Seen = tuple[int, int, int, int]
_NEVER: Final[_Seen] = (-1, -1, -1, -1)  # unlike any file, so the next look tries again
_PASSING: Final = frozenset({StoreFaultKind.BUSY, StoreFaultKind.FULL, StoreFaultKind.IO, StoreFaultKind.HUNG})
"""Faults with which a node may begin: what needs no disk is served, and the rest once they are over (NODE-REFUSED)."""

_log = structlog.get_logger("waystation.server")


def log_prepared(home: Home, prepared: PreparedHome) -> None:
    """Say in the log what a node begins with, where that is not what it ended with."""
    if home.key_path in prepared.made:
        # A warning: it may be a wrong mount or a typo, and looks like health otherwise.
        name = encode_id52(home.key_pair().public)
        _log.warning("home.made", key=name, home=str(home.path.resolve()))
    elif prepared.state is HomeState.UNMARKED and home.store_path.exists() and look_at_file(home.store_path):
        # Whoever copies the store and the key alone leaves the mark behind, and perhaps the log with what came last.
        why = "the store is of a version whose homes have a mark; was home.json, or the store's log, not copied?"
        _log.warning("home.adopted", home=str(home.path.resolve()), why=why)
    elif prepared.state is HomeState.UNMARKED:
        _log.info("home.adopted", home=str(home.path.resolve()))
    elif prepared.state is HomeState.LOG_FOLDED:
        _log.warning(
            "home.log_folded",
            store=str(home.store_path),
            why="the node did not end in order, and its log is gone; all that was remembered is there",
        )


class MarkKeeper:
    """The mark of a home whose store this process has open."""

    def __init__(self, home: Home, fold: Callable[[], Awaitable[StoreState]]) -> None:
        """Remember nothing yet.

        Args:
            home: With its key and ``store.sqlite``, which is open by now.
            fold: Folds the store's log in, on the thread that writes to it, and returns the state reached.
        """
        self._home = home
        self._fold = fold
        self._file = self._stat()
        self._seen: _Seen = _NEVER
        self._folded_at = 0.0
        self._is_behind = False
        self._writing = threading.Lock()  # a write that the end overtakes must not undo what that has written
        self._has_ended = False

    async def begin(self) -> StoreFault | None:
        """Try a first write, and say in the mark that the store is in use; nothing may be acknowledged before.

        Returns:
            The fault with which the node begins, where it is one that ends by itself; ``watch`` goes on trying then.

        Raises:
            HostError: The store takes no write, and will not.
        """
        try:
            await self._note()
        except StoreFault as fault:
            if fault.kind not in _PASSING:
                raise
            return fault
        except HostError as error:  # the store took the write, the home did not: the store decides
            self._say_behind(error)
        return None

    async def watch(self) -> None:
        """Fold the log in once a minute, and bring the mark up to date whenever the file of the store has changed.

        SQLite folds a long log in by itself. After that the file is as young as the mark remembers, and the loss of the
        log would not show; so it is looked at each second. A file that was deleted, moved or written over shows there
        too, also on a node that nobody writes to (NODE-GONE).
        """
        while True:
            await asyncio.sleep(_LOOK_S)
            if time.monotonic() - self._folded_at < FOLD_S and self._look() == self._seen:
                continue
            try:
                await self._note()
            except HostError as error:
                self._say_behind(error)
            else:
                self._is_behind = False

    def end(self, state: StoreState) -> None:
        """Remember the last state of a store that is about to be closed in order."""
        self._has_ended = True
        try:
            self._write(state, in_use=False)
        except HostError as error:
            _log.warning("home.mark_failed", error=str(error))

    async def _note(self) -> None:
        state = await self._fold()
        seen = self._look()
        await asyncio.get_running_loop().run_in_executor(None, self._write_in_use, state)
        self._folded_at, self._seen = time.monotonic(), seen

    def _say_behind(self, error: HostError) -> None:
        if not self._is_behind:
            _log.warning("home.mark_failed", error=str(error))
        self._is_behind = True
        self._seen = _NEVER

    def _write_in_use(self, state: StoreState) -> None:
        self._write(state, in_use=True)

    def _write(self, state: StoreState, *, in_use: bool) -> None:
        found, ours = self._stat(), self._file
        if found is None or ours is None or (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
            # Another home may be mounted there by now: its mark is not ours to write.
            raise HostError(f"{self._home.store_path} is not the store any more that this node has open")
        with self._writing:
            if in_use and self._has_ended:
                return
            kept = store_mark(state, in_use=in_use, path=self._home.store_path)
            write_mark(self._home, adopt_home(self._home)._replace(store=kept))

    def _look(self) -> _Seen:
        """Return when the file itself was written last, which commits do not do, and which files stand there."""
        found, path = self._stat(), self._home.store_path
        if found is None:
            return _NEVER
        return found.st_mtime_ns, found.st_ino, _number_of(log_path(path)), _number_of(index_path(path))

    def _stat(self) -> os.stat_result | None:
        try:
            return self._home.store_path.stat()
        except OSError:
            return None


def _number_of(path: Path) -> int:
    """Return the number of a file on its disk, 0 when there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0
