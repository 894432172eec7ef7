"""Sending a file in parts: ``OutgoingTransfer`` decides, this reads, sends and waits.

A part that has to be sent again is sent as the very same frame, so that a recipient who has it already can tell.
"""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Self

from waystation.core.errors import LocalError
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.transfers import PART_BYTES, OutgoingTransfer
from waystation.sdk.link import now
from waystation.sdk.merk_outcome import Outcome, outcome_of

__all__ = ["FileToSend", "send_parts"]

_CHUNK_BYTES: Final = 1_048_576


class FileToSend:
    """A file that is open for reading; use it in ``with``."""

    def __init__(self, path: Path) -> None:
        """Open it; raises LocalError when that is impossible."""
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.size_bytes = os.fstat(self._descriptor).st_size
            self._read(0, 1)
        except OSError as error:
            raise LocalError(f"cannot read {path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    async def digest(self) -> bytes:
        """Return its SHA-256, read in a thread."""
        return await asyncio.to_thread(self._digest)

    def part(self, index: int) -> bytes:
        """Return one part; raises LocalError when the file has changed its size."""
        expected = min(PART_BYTES, self.size_bytes - index * PART_BYTES)
        data = self._read(index * PART_BYTES, expected)
        if len(data) != expected:
            raise LocalError("the file became shorter while it was sent")
        return data

    def whole(self) -> bytes:
        """Return all of it."""
        return self._read(0, self.size_bytes)

    def _read(self, offset: int, size: int) -> bytes:
        chunks: list[bytes] = []
        while size > 0 and (chunk := os.pread(self._descriptor, min(size, _CHUNK_BYTES), offset)):
            chunks.append(chunk)
            offset, size = offset + len(chunk), size - len(chunk)
        return b"".join(chunks)

    def _digest(self) -> bytes:
        digest, offset = hashlib.sha256(), 0
        while chunk := os.pread(self._descriptor, _CHUNK_BYTES, offset):
            digest.update(chunk)
            offset += len(chunk)
        return digest.digest()


async def send_parts(
    transfer: OutgoingTransfer,
    frame_of: Callable[[int], bytes],
    deliver: Callable[[bytes], Awaitable[DeliveryCode | None]],
    on_delivered: Callable[[int], None],
) -> Outcome:
    """Send all parts of a file and return what became of it.

    Args:
        transfer: Fresh.
        frame_of: Makes the frame of a part; called once for each.
        deliver: Sends a frame and returns its outcome.
        on_delivered: Told how many parts have been delivered, behind each.
    """
    frames: dict[int, bytes] = {}
    flying: dict[asyncio.Task[DeliveryCode | None], int] = {}
    try:
        while not (transfer.is_done or transfer.failed):
            for index in transfer.parts_to_send(now()):
                frame = frames[index] if index in frames else frames.setdefault(index, frame_of(index))
                flying[asyncio.create_task(_deliver(deliver, frame))] = index
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


async def _deliver(deliver: Callable[[bytes], Awaitable[DeliveryCode | None]], frame: bytes) -> DeliveryCode | None:
    return await deliver(frame)


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
