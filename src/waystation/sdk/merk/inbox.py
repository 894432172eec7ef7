"""Bounded queue of received MERK messages, from the connection to the program; it also puts files together.

``MerkClient`` has one. When it is full, new messages are dropped and reported. It never blocks the connection, because
a program that reads no messages still needs the outcomes of those it sends. A message counts as taken when the iterator
hands it out: only then is it remembered across restarts, and receipted.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

from waystation.protocols.merk.client.events import MessageArrived, MessageDropped
from waystation.protocols.merk.payload.contents import Answer, Extended, File, FilePart, Plain, Receipt
from waystation.protocols.merk.payload.sealing import Auth, Mode, Opened
from waystation.protocols.merk.refusals import Refusal
from waystation.sdk.connection import now
from waystation.sdk.merk.download_buffer import DownloadBuffer, Downloaded, FileFailed
from waystation.sdk.merk.message import Message, ReceivedFile

__all__ = ["INBOX_BYTES_MAX", "INBOX_COUNT_MAX", "LATE_S", "Inbox"]

INBOX_COUNT_MAX: Final = 4_096
INBOX_BYTES_MAX: Final = 67_108_864
LATE_S: Final = 600.0  # as long as replays are recognised by themselves; specs/merk.md 8


class Inbox:
    """Holds what has arrived until the program takes it."""

    def __init__(
        self,
        report: Callable[[object], None],
        clock: Callable[[], float],
        downloads: Path | None,
        on_taken: Callable[[Message], None] = lambda _message: None,
        on_lost: Callable[[bytes, bytes], None] = lambda _sender, _message_id: None,
        is_awaited: Callable[[Message], bool] = lambda _message: False,
    ) -> None:
        """Start empty.

        Args:
            report: Gets ``MessageDropped``, ``FileProgress`` and ``FileFailed``.
            clock: Unix seconds.
            downloads: Folder for parts of files, or None.
            on_taken: Gets each message that the program takes.
            on_lost: Gets sender and id of each for which there was no room.
            is_awaited: Takes an answer that the program waits for, and returns whether a message is one.
        """
        self._report = report
        self._clock = clock
        self._on_taken = on_taken
        self._on_lost = on_lost
        self._is_awaited = is_awaited
        self._downloads = DownloadBuffer(downloads)
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

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Yield messages as they come, until the end."""
        while True:
            while self._waiting:
                message, size_bytes = self._waiting.popleft()
                self._waiting_bytes -= size_bytes
                self._on_taken(message)
                yield message
            if self._failure is not None:
                raise self._failure
            if self._over:
                return
            self._changed.clear()
            await self._changed.wait()

    def take(self, event: MessageArrived, relay: str) -> None:
        """Take an opened frame; a part of a file becomes a message with the last one."""
        opened, content = event.opened, event.opened.content
        plain = content.content if isinstance(content, Extended) else content
        if isinstance(plain, FilePart):
            self._on_part(opened, plain, relay)
        elif not isinstance(plain, Receipt):
            self._put(opened, plain, opened.auth, relay, event.frame_bytes, opened.message_id)

    def end(self, failure: BaseException | None = None) -> None:
        """End the iteration after what has arrived, with ``failure`` if there is one."""
        self._over = True
        self._failure = failure
        self._changed.set()

    async def aclose(self) -> None:
        """End the iteration and drop what is downloaded."""
        self.end(self._failure)
        for task in self._checking:
            task.cancel()
        await asyncio.gather(*self._checking, return_exceptions=True)
        self._downloads.close()

    def _on_part(self, opened: Opened, part: FilePart, relay: str) -> None:
        taken = self._downloads.take(opened.sender, opened.mode, opened.auth, part, now())
        if isinstance(taken, Downloaded):
            task = asyncio.get_running_loop().create_task(self._check(taken, opened, relay))
            self._checking.add(task)
            task.add_done_callback(self._checking.discard)
        elif taken is not None:
            self._report(taken)

    async def _check(self, downloaded: Downloaded, opened: Opened, relay: str) -> None:
        file = await self._downloads.finish(downloaded)
        if isinstance(file, FileFailed):
            self._report(file)
        else:
            self._put(opened, file, downloaded.auth, relay, 0, downloaded.key.transfer_id)

    def _put(
        self,
        opened: Opened,
        content: Plain | Answer | ReceivedFile,
        auth: Auth,
        relay: str,
        size: int,
        message_id: bytes,
    ) -> None:
        message = self._message(opened, content, auth, relay, message_id)
        if self._is_awaited(message):
            self._on_taken(message)
            return
        crowded = self._waiting_bytes + size > INBOX_BYTES_MAX and self._waiting
        if crowded or len(self._waiting) >= INBOX_COUNT_MAX:
            if isinstance(message.content, ReceivedFile):
                message.content.discard()
            self._on_lost(opened.sender, message_id)
            self._report(MessageDropped(Refusal.QUEUE_FULL, opened.sender))
            return
        self._waiting.append((message, size))
        self._waiting_bytes += size
        self._changed.set()

    def _message(
        self, opened: Opened, content: Plain | Answer | ReceivedFile, auth: Auth, relay: str, message_id: bytes
    ) -> Message:
        answers = None
        if isinstance(content, Answer):
            is_proved = auth is Auth.BOUND and opened.mode is Mode.ENCRYPTED
            answers = content.message_id if is_proved else None
            content = content.content
        if isinstance(content, File):
            content = ReceivedFile(content.name, len(content.data), data=content.data)
        time_ms = opened.content.time_ms if isinstance(opened.content, Extended) else None
        late = time_ms is not None and abs(self._clock() - time_ms / 1_000) > LATE_S
        return Message(opened.sender, opened.mode, auth, content, time_ms, message_id, late, relay, answers)
