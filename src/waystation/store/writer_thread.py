"""The one thread that writes to the store, and whether what it does there has not returned for long (NODE-HUNG).

``server.commit`` runs every commit and probe on it: a function goes in, its result comes out. A disk that hangs returns
no error, so the time of the job at hand is watched.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["HUNG_S", "WriterThread"]

HUNG_S: Final = 15.0
"""After so long a job counts as hung: a fold of the log has four syncs, and takes 8 s where a sync takes 2."""

T = TypeVar("T")


class WriterThread:
    """Runs jobs one after the other."""

    def __init__(self, on_hang: Callable[[], None]) -> None:
        """Start idle.

        Args:
            on_hang: Called on the loop when nothing has returned for ``HUNG_S`` although something is under way.
        """
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-writer")
        self._on_hang = on_hang
        self._under_way_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_stuck = False
        """Whether the job at hand has lasted for ``HUNG_S``; false again once it returns."""

    async def run(self, job: Callable[..., T], *arguments: object) -> T:
        """Return what a job returns, which it also ends when nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._pool, job, *arguments)
        if not self._under_way_count:
            self._timer = loop.call_later(HUNG_S, self._look)
        self._under_way_count += 1
        done.add_done_callback(self._on_return)
        return await asyncio.shield(done)

    def shutdown(self) -> None:
        """Take no more jobs; returns when the last one has, and at once when it is stuck."""
        if self._timer is not None:
            self._timer.cancel()
        self._pool.shutdown(wait=not self.is_stuck)

    def _look(self) -> None:
        self.is_stuck = True
        self._on_hang()

    def _on_return(self, done: asyncio.Future[T]) -> None:
        if not done.cancelled():
            done.exception()  # who waited has it; nobody may wait any more
        assert self._timer is not None
        self._timer.cancel()
        self.is_stuck = False
        self._under_way_count -= 1
        if self._under_way_count:
            self._timer = done.get_loop().call_later(HUNG_S, self._look)
