"""Messages between the connection and the program: bounded, and files in parts put together.

What does not fit is dropped and told: reading on is what keeps outcomes coming for a program that sends and does not
read.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from waystation.protocols.merk.client_events import MessageArrived, MessageDropped
from waystation.protocols.merk.contents import Extended, File, FilePart, Plain
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.sealing import Auth, Opened
from waystation.sdk.link import now
from waystation.sdk.merk_message import Message, ReceivedFile
from waystation.sdk.merk_spool import FileFailed, Spool, Spooled

__all__ = ["INBOX_BYTES_MAX", "INBOX_COUNT_MAX", "LATE_S", "Inbox"]

INBOX_COUNT_MAX: Final = 4_096
INBOX_BYTES_MAX: Final = 67_108_864
LATE_S: Final = 600.0  # as long as replays are recognised by themselves; specs/merk.md 8


class Inbox:
    """Holds what has arrived until the program takes it."""

    def __init__(self, tell: Callable[[object], None], clock: Callable[[], float], spool: Path | None) -> None:
        """Start empty.

        Args:
            tell: Gets ``MessageDropped``, ``FileProgress`` and ``FileFailed``.
            clock: Unix seconds.
            spool: Folder for parts of files, or None.
        """
        self._tell = tell
        self._clock = clock
        self._spool = Spool(spool)
        self._waiting: deque[tuple[Message, int]] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._over = False
        self._failure: BaseException | None = None
        self._checking: set[asyncio.Task[None]] = set()

    @property
    def waiting_count(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    async def messages(self) -> AsyncIterator[Message]:
        """Yield messages as they come, until the end."""
        while True:
            while self._waiting:
                message, size_bytes = self._waiting.popleft()
                self._waiting_bytes -= size_bytes
                yield message
            if self._failure is not None:
                raise self._failure
            if self._over:
                return
            self._changed.clear()
            await self._changed.wait()

    def take(self, event: MessageArrived, relay: str) -> None:
        """Take an opened frame; a part of a file becomes a message with the last one."""
        opened = event.opened
        content = opened.content
        if isinstance(content, Extended):
            if isinstance(content.content, FilePart):
                self._on_part(opened, content, content.content, relay)
            else:
                self._put(opened, content.content, opened.auth, content, relay, event.frame_bytes)
        else:
            self._put(opened, content, opened.auth, None, relay, event.frame_bytes)

    def end(self, failure: BaseException | None = None) -> None:
        """End the iteration behind what has arrived, with ``failure`` if there is one."""
        self._over = True
        self._failure = failure
        self._changed.set()

    async def aclose(self) -> None:
        """End the iteration and drop what is spooled."""
        self.end(self._failure)
        for task in self._checking:
            task.cancel()
        await asyncio.gather(*self._checking, return_exceptions=True)
        self._spool.close()

    def _on_part(self, opened: Opened, said: Extended, part: FilePart, relay: str) -> None:
        taken = self._spool.take(opened.sender, opened.mode, opened.auth, part, now())
        if isinstance(taken, Spooled):
            task = asyncio.get_running_loop().create_task(self._check(taken, opened, said, relay))
            self._checking.add(task)
            task.add_done_callback(self._checking.discard)
        elif taken is not None:
            self._tell(taken)

    async def _check(self, spooled: Spooled, opened: Opened, said: Extended, relay: str) -> None:
        file = await self._spool.finish(spooled)
        if isinstance(file, FileFailed):
            self._tell(file)
        else:
            self._put(opened, file, spooled.auth, said, relay, 0)

    def _put(
        self, opened: Opened, content: Plain | ReceivedFile, auth: Auth, said: Extended | None, relay: str, size: int
    ) -> None:
        crowded = self._waiting_bytes + size > INBOX_BYTES_MAX and self._waiting
        if crowded or len(self._waiting) >= INBOX_COUNT_MAX:
            if isinstance(content, ReceivedFile):
                content.discard()
            self._tell(MessageDropped(Refusal.QUEUE_FULL, opened.sender))
            return
        if isinstance(content, File):
            content = ReceivedFile(content.name, len(content.data), data=content.data)
        time_ms, message_id = (said.time_ms, said.message_id) if said is not None else (None, None)
        late = time_ms is not None and abs(self._clock() - time_ms / 1_000) > LATE_S
        self._waiting.append(
            (Message(opened.sender, opened.mode, auth, content, time_ms, message_id, late, relay), size)
        )
        self._waiting_bytes += size
        self._changed.set()
