"""Sends a file in parts: reads it, has each part sealed, and waits for the outcome of each.

``MerkClient.send_file`` calls it; ``OutgoingTransfer`` decides which part goes next. A repeated part is sent as the
identical frame, so that the recipient recognises it.
"""

import asyncio
import hashlib
import io
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final, Self

from waystation.core.errors import LocalError
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.payload.contents import File, FilePart
from waystation.protocols.merk.payload.transfers import PART_BYTES, OutgoingTransfer, parts_count
from waystation.sdk.connection import now
from waystation.sdk.errors import FileTooLargeError
from waystation.sdk.merk.outcome import Outcome, outcome_of

__all__ = ["FRAME_FILE_BYTES_MAX", "FileToSend", "part_bytes_for", "send_parts"]

FRAME_FILE_BYTES_MAX: Final = 8_388_608 - 1_024
"""Largest file in one frame: what relays take by default (specs/merk.md 10.11), less header, keys, name and tag."""
_ENVELOPE_BYTES: Final = 1_024  # header, keys, signatures, numbers, tag and the longest name have 700
_PART_BYTES_MIN: Final = 1_024
_IN_MEMORY_BYTES: Final = 1_048_576  # of a stream that cannot be read twice; the rest goes to a temporary file


def part_bytes_for(frame_bytes_max: int) -> int:
    """Return how large the parts of a file are towards a relay that takes frames of so many bytes."""
    return max(_PART_BYTES_MIN, min(PART_BYTES, frame_bytes_max - _ENVELOPE_BYTES))


class FileToSend:
    """A file that is open for reading; use it in ``with``."""

    def __init__(self, source: Path | bytes | IO[bytes], name: str | None, frame_bytes_max: int) -> None:
        """Open it, to be sent under ``name`` or its own.

        Args:
            source: A path, the bytes themselves, or a binary stream, which is read from where it stands to its end.
            name: What to call it; None only where the source has a name.
            frame_bytes_max: Largest frame that the relay takes.

        Raises:
            LocalError: It cannot be read, or has no name.
        """
        own_name = source.name if isinstance(source, Path) else getattr(source, "name", None)
        self.name = name or (Path(own_name).name if isinstance(own_name, str) else "")
        if not self.name:
            raise LocalError("bytes and streams without a name need one: name=")
        self._frame_bytes_max = frame_bytes_max
        self._file = _opened(source)
        self._start = self._file.seek(0, io.SEEK_CUR)
        self.size_bytes = self._file.seek(0, io.SEEK_END) - self._start
        self.part_bytes = part_bytes_for(frame_bytes_max)
        self.parts_count = parts_count(self.size_bytes, self.part_bytes)
        self._is_ours = self._file is not source

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            self._file.close()

    async def digest(self) -> bytes:
        """Return its SHA-256, read in a thread."""
        return await asyncio.to_thread(self._digest)

    def part(self, index: int, transfer_id: bytes, digest: bytes) -> FilePart:
        """Return one part; raises LocalError when the file became shorter."""
        size = self.size_bytes
        offset = index * self.part_bytes
        data = self._read(offset, min(self.part_bytes, size - offset))
        return FilePart(transfer_id, digest, index, self.parts_count, size, self.name, data)

    def whole(self) -> File:
        """Return all of it; raises FileTooLargeError, and LocalError when the file became shorter."""
        most = min(FRAME_FILE_BYTES_MAX, self._frame_bytes_max - _ENVELOPE_BYTES)
        if self.size_bytes > most:
            raise FileTooLargeError(
                f"{self.name} has {self.size_bytes} bytes, and this recipient takes a file only in one frame of at "
                f"most {most}: it has no client of waystation, or the relay is an original one"
            )
        return File(self.name, self._read(0, self.size_bytes))

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(self._start + offset)
        data = self._file.read(size)
        if len(data) != size:
            raise LocalError("the file became shorter while it was sent")
        return data

    def _digest(self) -> bytes:
        self._file.seek(self._start)
        digest, left = hashlib.sha256(), self.size_bytes
        while left > 0 and (piece := self._file.read(min(left, PART_BYTES))):
            digest.update(piece)
            left -= len(piece)
        return digest.digest()


def _opened(source: Path | bytes | IO[bytes]) -> IO[bytes]:
    """Return a file to read and seek in; a stream that cannot seek is copied."""
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if not isinstance(source, Path):
        if source.seekable():
            return source
        copy: IO[bytes] = SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by ``FileToSend``
        shutil.copyfileobj(source, copy)
        copy.seek(0)
        return copy
    try:
        return source.open("rb")
    except OSError as error:
        raise LocalError(f"cannot read {source}: {error.strerror}") from error


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
    is_stored = False
    try:
        while not (transfer.is_done or transfer.failed):
            for index in transfer.parts_to_send(now()):
                frame = frames[index] if index in frames else frames.setdefault(index, frame_of(index))
                flying[asyncio.create_task(deliver(frame))] = index
            for task in await _landed(flying, transfer):
                index = flying.pop(task)
                code = task.result()
                transfer.on_outcome(index, code, now())
                if code in (DeliveryCode.DELIVERED, DeliveryCode.STORED):
                    is_stored |= code is DeliveryCode.STORED
                    del frames[index]
                    on_delivered(transfer.delivered_count)
    finally:
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)
    if transfer.is_done:
        return Outcome.STORED if is_stored else Outcome.ACCEPTED
    return outcome_of(transfer.failure)


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
