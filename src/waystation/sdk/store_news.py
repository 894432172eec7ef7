"""Reports once to a client's program that its own disk refuses writes, and once that it takes them again.

Every client with a folder has a ``StoreWatch`` and passes each write through it. A refused write ends nothing. What was
to be written is kept in memory, and written with the next change that the disk takes: ``PrivateDatabase.change_later``
and ``PrivateTable`` do that.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from waystation.core.errors import HostError

__all__ = ["StoreFailed", "StoreRecovered", "StoreWatch"]


class StoreFailed(NamedTuple):
    """Our disk refuses: what is not on it is not acknowledged, and calls that must write raise, until it recovers."""

    reason: str


class StoreRecovered(NamedTuple):
    """Our disk takes writes again; what was refused is there, or goes with the next change to the same file."""

    seconds: float
    """How long it refused."""


class StoreWatch:
    """What one client knows of its disk."""

    def __init__(
        self, report: Callable[[StoreFailed | StoreRecovered], None], settle: Iterable[Callable[[], None]] = ()
    ) -> None:
        """Begin with a disk that takes writes.

        Args:
            report: Gets what changes.
            settle: Each writes what was refused; all must succeed before the disk counts as recovered.
        """
        self._report = report
        self._settle = tuple(settle)
        self._since_s = 0.0
        self.failure: HostError | None = None
        """Why the last write was refused; None when it was not."""

    def attempt(self, write: Callable[[], object]) -> None:
        """Write something whose refusal must end nothing."""
        try:
            write()
        except HostError as error:
            self.refused(error)
        else:
            self.written()

    def refused(self, error: HostError) -> None:
        """Note that the disk has refused."""
        is_new, self.failure = self.failure is None, error
        if is_new:
            self._since_s = asyncio.get_running_loop().time()
            self._report(StoreFailed(str(error)))

    def written(self) -> None:
        """Note that the disk has taken a write, and have it take what it refused before."""
        if self.failure is None:
            return
        try:
            for settle in self._settle:
                settle()
        except HostError as error:
            self.failure = error
            return
        self.failure = None
        self._report(StoreRecovered(asyncio.get_running_loop().time() - self._since_s))
