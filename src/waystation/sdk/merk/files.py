"""Sends a file in parts: reads it, has each part sealed, and waits for the outcome of each.

``MerkClient.send_file`` calls it; ``OutgoingTransfer`` decides which part goes next. A repeated part is sent as the
identical frame, so that the recipient recognises it.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Self

from waystation.core.errors import LocalError
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.payload.contents import File, FilePart
from waystation.protocols.merk.payload.transfers import PART_BYTES, OutgoingTransfer, parts_count
from waystation.sdk.connection import now
from waystation.sdk.errors import FileTooLargeError
from waystation.sdk.merk.outcome import Outcome, outcome_of

__all__ = ["FRAME_FILE_BYTES_MAX", "FileToSend", "send_parts"]

FRAME_FILE_BYTES_MAX: Final = 8_388_608 - 1_024
"""Largest file in one frame: what relays take by default (specs/merk.md 10.11), less header, keys, name and tag."""


class FileToSend:
    """A file that is open for reading; use it in ``with``."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        """Open it, to be sent under ``name`` or its own; raises LocalError when that is impossible."""
        self.name = name or path.name
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise LocalError(f"cannot read {path}: {error.strerror}") from error
        self.size_bytes = os.fstat(self._file.fileno()).st_size
        self.parts_count = parts_count(self.size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    async def digest(self) -> bytes:
        """Return its SHA-256, read in a thread."""
        self._file.seek(0)
        return (await asyncio.to_thread(hashlib.file_digest, self._file, "sha256")).digest()

    def part(self, index: int, transfer_id: bytes, digest: bytes) -> FilePart:
        """Return one part; raises LocalError when the file became shorter."""
        size = self.size_bytes
        data = self._read(index * PART_BYTES, min(PART_BYTES, size - index * PART_BYTES))
        return FilePart(transfer_id, digest, index, self.parts_count, size, self.name, data)

    def whole(self) -> File:
        """Return all of it; raises FileTooLargeError, and LocalError when the file became shorter."""
        if self.size_bytes > FRAME_FILE_BYTES_MAX:
            raise FileTooLargeError(
                f"{self.name} has {self.size_bytes} bytes, and this recipient takes a file only in one frame of at "
                f"most {FRAME_FILE_BYTES_MAX}: it has no client of waystation, or the relay is an original one"
            )
        return File(self.name, self._read(0, self.size_bytes))

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) != size:
            raise LocalError("the file became shorter while it was sent")
        return data


async def send_parts(
    transfer: OutgoingTransfer,
    frame_of: Callable[[int], bytes],
    deliver: Callable[[bytes], Coroutine[Any, Any, DeliveryCode | None]],
    on_delivered: Callable[[int], None],
) -> Outcome:
    """Send all parts of a file and return what became of it.

    Args:
        transfer: Fresh.
        frame_of: Makes the frame of a part; called once for each.
        deliver: Sends a frame and returns its outcome.
        on_delivered: Called after each part, with how many have been delivered.
    """
    frames: dict[int, bytes] = {}
    flying: dict[asyncio.Task[DeliveryCode | None], int] = {}
    try:
        while not (transfer.is_done or transfer.failed):
            for index in transfer.parts_to_send(now()):
                frame = frames[index] if index in frames else frames.setdefault(index, frame_of(index))
                flying[asyncio.create_task(deliver(frame))] = index
            for task in await _landed(flying, transfer):
                index = flying.pop(task)
                code = task.result()
                transfer.on_outcome(index, code, now())
                if code is DeliveryCode.DELIVERED:
                    del frames[index]
                    on_delivered(transfer.delivered_count)
    finally:
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)
    return Outcome.DELIVERED if transfer.is_done else outcome_of(transfer.failure)


async def _landed(
    flying: dict[asyncio.Task[DeliveryCode | None], int], transfer: OutgoingTransfer
) -> list[asyncio.Task[DeliveryCode | None]]:
    """Wait for an outcome, or for the end of a pause; return the tasks that are done, in the order of sending."""
    resume_at = transfer.resume_at()
    pause_s = None if resume_at is None else max(0.0, (resume_at - now()) / MICROSECONDS_PER_SECOND)
    if not flying:
        await asyncio.sleep(pause_s or 0.0)
        return []
    done, _ = await asyncio.wait(flying, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
    return [task for task in flying if task in done]
