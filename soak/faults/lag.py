"""How late the machine lets the clients' loop run: tells a busy machine from a client that waits too long."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Final

__all__ = ["Lag"]

EVERY_S: Final = 0.1


class Lag:
    """The longest delay of a timer, since ``begin`` and in all; the text of it has the load of the machine, too."""

    def __init__(self) -> None:
        """Begin without one."""
        self._longest_s = self._longest_of_all_s = 0.0

    def begin(self) -> None:
        """Forget what was seen, but not for ``of_all``."""
        self._longest_s = 0.0

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look until the end of the context."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def of_all(self) -> str:
        """Return the longest delay of the whole run."""
        return f"longest lag of the clients' loop {self._longest_of_all_s:.2f} s"

    def __str__(self) -> str:
        return f"lag of the clients' loop up to {self._longest_s:.2f} s, load of the machine {os.getloadavg()[0]:.1f}"

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + EVERY_S
            await asyncio.sleep(EVERY_S)
            late_s = loop.time() - due_s
            self._longest_s = max(self._longest_s, late_s)
            self._longest_of_all_s = max(self._longest_of_all_s, late_s)
