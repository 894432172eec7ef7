"""Stores incoming multi-part files on disk, as ``IncomingTransfers`` decides, and verifies them when complete.

``Inbox`` passes the parts of files here. A file counts against ``buffer_bytes_max`` until the program has saved or
discarded it.
"""

import asyncio
import contextlib
import hashlib
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from waystation.core.instant import Instant
from waystation.protocols.merk.payload.contents import FilePart
from waystation.protocols.merk.payload.sealing import Auth, Mode
from waystation.protocols.merk.payload.transfers import (
    FILE_BYTES_MAX,
    TRANSFERS_BYTES_MAX,
    IncomingTransfers,
    PartRefusal,
    PartTaken,
    TransferKey,
)
from waystation.sdk.merk.message import ReceivedFile

__all__ = ["DownloadBuffer", "Downloaded", "FileFailed", "FileProgress"]


class FileProgress(NamedTuple):
    """A part of a file has come."""

    sender: bytes
    transfer_id: bytes
    name: str
    received_bytes: int
    total_bytes: int


class FileFailed(NamedTuple):
    """A file, or a part of it, was not taken."""

    sender: bytes
    transfer_id: bytes
    name: str
    reason: str


class Downloaded(NamedTuple):
    """All parts of a file are on the disk; ``DownloadBuffer.finish`` checks them."""

    key: TransferKey
    part: FilePart
    auth: Auth
    """The weakest proof of all parts."""


class DownloadBuffer:
    """A folder of its own for parts; ``close`` removes it."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        buffer_bytes_max: int = TRANSFERS_BYTES_MAX,
    ) -> None:
        """Describe a buffer.

        Args:
            folder: Where to make that folder; None means the system's place for temporary files.
            file_bytes_max: Largest file.
            buffer_bytes_max: All files together.
        """
        self._parent = folder
        self._folder: Path | None = None
        self._transfers = IncomingTransfers(file_bytes_max=file_bytes_max, transfers_bytes_max=buffer_bytes_max)
        self._buffer_bytes_max = buffer_bytes_max
        self._paths: dict[TransferKey, Path] = {}
        self._unsaved_bytes = 0

    def take(
        self, sender: bytes, mode: Mode, auth: Auth, part: FilePart, now: Instant
    ) -> FileProgress | FileFailed | Downloaded | None:
        """Keep a part; None for one that was here before."""
        for key in self._transfers.expire(now):
            self._drop(key)
        taken = self._transfers.take(sender, mode, auth, part, now)
        if taken is PartRefusal.REPEATED:
            return None
        if isinstance(taken, PartRefusal):
            return FileFailed(sender, part.transfer_id, part.name, taken.value)
        # A file that has begun has its room, beside those that were not saved.
        if taken.is_first and self._unsaved_bytes + self._transfers.announced_bytes > self._buffer_bytes_max:
            self._transfers.finish(taken.key)
            return FileFailed(sender, part.transfer_id, part.name, PartRefusal.TOO_MANY.value)
        try:
            self._write(taken, part.data)
        except OSError as error:
            self._transfers.finish(taken.key)
            self._drop(taken.key)
            return FileFailed(sender, part.transfer_id, part.name, f"cannot keep it: {error.strerror}")
        if taken.is_last:
            return Downloaded(taken.key, part, taken.auth)
        return FileProgress(sender, part.transfer_id, part.name, taken.received_bytes, part.total_bytes)

    async def finish(self, downloaded: Downloaded) -> ReceivedFile | FileFailed:
        """Check a complete file against the digest that its sender gave, and hand it over."""
        key, part = downloaded.key, downloaded.part
        path = self._paths[key]
        failure = await asyncio.to_thread(_fault_of, path, part.digest)
        self._transfers.finish(key)
        if failure is not None:
            self._drop(key)
            return FileFailed(key.sender, key.transfer_id, part.name, failure)
        del self._paths[key]
        self._unsaved_bytes += part.total_bytes
        return ReceivedFile(part.name, part.total_bytes, path=path, on_gone=lambda: self._saved(part.total_bytes))

    def close(self) -> None:
        """Remove everything that was not saved."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _saved(self, size_bytes: int) -> None:
        self._unsaved_bytes -= size_bytes

    def _write(self, taken: PartTaken, data: bytes) -> None:
        if taken.is_first:
            self._paths[taken.key] = self._own_folder() / secrets.token_hex(16)
            self._paths[taken.key].touch(0o600)
        with self._paths[taken.key].open("r+b") as file:
            file.seek(taken.offset_bytes)
            file.write(data)

    def _own_folder(self) -> Path:
        if self._folder is None:
            if self._parent is not None:
                self._parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="merk-", dir=self._parent))
        return self._folder

    def _drop(self, key: TransferKey) -> None:
        path = self._paths.pop(key, None)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()


def _fault_of(path: Path, digest: bytes) -> str | None:
    """Return why a file is not the one with this SHA-256; None when it is."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        return f"cannot read it back: {error.strerror}"
    return None if found == digest else "what arrived is not what its sender announced (SHA-256 differs)"
