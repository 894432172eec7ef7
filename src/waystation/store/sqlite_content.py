"""Whether the open file of a store is still what was written to it, or somebody has written over it (NODE-GONE).

A file that is written over in place keeps its place, and SQLite goes on with pages of both. Without the log a file only
grows older by that: whoever writes to it in SQLite's way leaves the store's id and a generation that is no smaller. So
both are compared whenever the file's time has changed, which a node's own commits do not do: they go to the log.

A fold that the disk ended in its middle leaves pages of two states, which cannot be read without the log and lose
nothing with it. So a file that still begins as a store, and cannot be read alone, is not taken for a foreign one.
"""

import time
from pathlib import Path
from typing import Final

from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.records import StoreState
from waystation.store.sqlite_layout import look_at_file_alone

__all__ = ["FileContent"]

LOOKS: Final = 4
LOOK_S: Final = 0.1
"""Between two looks: another program may be folding the log in at the moment of the first."""

_MAGIC: Final = b"SQLite format 3\0"  # the first bytes of every store; a fold never changes them

_Times = tuple[int, int, int]


class FileContent:
    """What the file at a path was when it was looked at last."""

    def __init__(self, path: Path) -> None:
        """Expect nothing yet; call ``remember`` when the store is open."""
        self._path = path
        self._times: _Times | None = None
        self._known: StoreState | None = None
        self.fault: StoreFault | None = None
        """Set for good once the file was written over: nothing that is written to it then can be relied on."""

    def remember(self) -> None:
        """Take the file as it is for what was written."""
        self._times, self._known = self._look(), look_at_file_alone(self._path)

    def check(self) -> None:
        """Notice a file that was written over. Cost: one ``stat``, and a read of two pages when its time has changed.

        Raises:
            StoreFault: It was (kind ``OVERWRITTEN``), now or at an earlier call.
        """
        if self.fault is not None:
            raise self.fault
        times = self._look()
        if times == self._times:
            return
        for number in range(LOOKS):
            if number:
                time.sleep(LOOK_S)
            if self._is_ours(found := look_at_file_alone(self._path)):
                self._times, self._known = times, found or self._known
                return
        self.fault = StoreFault(
            f"another program has written over the store {self._path} while it is open", StoreFaultKind.OVERWRITTEN
        )
        raise self.fault

    def _is_ours(self, found: StoreState | None) -> bool:
        known = self._known
        if known is None:  # nobody knows what it was without its log
            return True
        if found is None:
            return self._begins_as_store()
        return found.store_id == known.store_id and found.generation >= known.generation

    def _begins_as_store(self) -> bool:
        try:
            with self._path.open("rb") as file:
                return file.read(len(_MAGIC)) == _MAGIC
        except OSError:
            return True  # the next write says what is wrong

    def _look(self) -> _Times | None:
        try:
            found = self._path.stat()
        except OSError:
            return None  # NODE-GONE says so
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size
