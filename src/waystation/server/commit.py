"""Group commit: writes the records of many peers to the store in one transaction, on a writer thread.

Records queue while the writer is busy and are written together when it is free. An idle node commits at once; a busy
one commits in larger groups. Each append returns a number, and all records up to ``committed`` are on disk. Callers
acknowledge a record only after that.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from waystation.core.errors import HostError, LocalError
from waystation.core.records import Change, Store, StoreState

__all__ = ["GroupCommit"]

RECORDS_WAITING_MAX: Final = 262_144  # about a minute of a slow disk; reached only when the disk has stopped

_log = structlog.get_logger("waystation.server")


class GroupCommit:
    """Feeds one store from the event loop through one writer thread."""

    def __init__(self, store: Store, on_committed: Callable[[], None], on_failure: Callable[[HostError], None]) -> None:
        """Start with nothing waiting.

        Args:
            store: Written by the writer thread only.
            on_committed: Called on the loop after each group; what it raises is a failure too.
            on_failure: Called on the loop when the store refused; nothing is committed after that.
        """
        self._store = store
        self._on_committed = on_committed
        self._on_failure = on_failure
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-writer")
        self._waiting: list[Change] = []
        self._running: asyncio.Task[None] | None = None
        self._appended = 0
        self._failed: HostError | None = None
        self.committed = 0
        """Every record up to this number is on disk."""

    def append(self, record: Change) -> int:
        """Take a record for the next group and return its number.

        After a failure nothing is taken any more: the number is never reached, so nothing after it is released.
        """
        return self.append_all((record,))

    def append_all(self, changes: Sequence[Change]) -> int:
        """Take changes for the next group, all for the same one, and return the number of the last.

        Without any change it is the number of what was taken last, which may be on disk already.
        """
        self._appended += len(changes)
        if self._failed is None and len(self._waiting) >= RECORDS_WAITING_MAX:
            self._fail(HostError("the store cannot keep up; too many records wait for the disk", exit_code=5))
        if self._failed is None:
            self._waiting += changes
        return self._appended

    def flush(self) -> None:
        """Start a group if the writer is free and anything waits; call once per loop turn."""
        if self._waiting and self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._commit())

    async def wait_for(self, number: int) -> None:
        """Return once the record with this number is on disk.

        Raises:
            HostError: The store refused it.
            LocalError: The record is neither waiting nor under way: it was never appended, or its group was cancelled.
        """
        self.flush()
        while self.committed < number:
            if self._failed is not None:
                raise self._failed
            if self._running is None:
                raise LocalError(f"record {number} is neither waiting nor under way, so it will never be committed")
            await asyncio.shield(self._running)

    async def fold(self) -> StoreState:
        """Have the store fold its log in, on the writer thread behind what is under way, and return the state reached.

        Raises:
            HostError: The store refused.
        """
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._store.fold)

    async def close(self) -> None:
        """Commit what waits and stop the writer thread."""
        try:
            if self._failed is None:
                await self.wait_for(self._appended)
        finally:
            self._writer.shutdown()

    async def _commit(self) -> None:
        try:
            while self._waiting and self._failed is None:
                group, self._waiting = self._waiting, []
                await self._commit_group(group)
        finally:
            self._running = None

    async def _commit_group(self, group: list[Change]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._store.commit, group)
        except HostError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - else everything after this group would wait for ever, unreported
            self._fail(HostError(f"the store failed: {error!r}", exit_code=5))
        else:
            self.committed += len(group)
            self._report()

    def _report(self) -> None:
        try:
            self._on_committed()
        except Exception as error:  # noqa: BLE001 - effects may be lost now; the node must stop, and say why
            _log.exception("commit.failed")
            self._fail(HostError(f"what a commit released could not be carried out: {error!r}"))

    def _fail(self, error: HostError) -> None:
        self._failed = error
        self._waiting.clear()
        self._on_failure(error)
