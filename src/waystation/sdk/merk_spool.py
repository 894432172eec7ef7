"""Files that arrive in parts, on the disk while they do: what ``IncomingTransfers`` decides, carried out.

A spooled file counts against ``spool_bytes_max`` until the program has saved or discarded it.
"""

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.instant import Instant
from waystation.protocols.merk.contents import FilePart
from waystation.protocols.merk.sealing import Auth, Mode
from waystation.protocols.merk.transfers import (
    FILE_BYTES_MAX,
    TRANSFERS_BYTES_MAX,
    IncomingTransfers,
    PartRefusal,
    PartTaken,
    TransferKey,
)
from waystation.sdk.merk_message import ReceivedFile

__all__ = ["FileFailed", "FileProgress", "Spool", "Spooled"]


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


class Spooled(NamedTuple):
    """All parts of a file are on the disk; ``Spool.finish`` checks them."""

    key: TransferKey
    part: FilePart
    auth: Auth
    """The weakest proof of all parts."""


class Spool:
    """A folder of its own for parts; ``close`` removes it."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        spool_bytes_max: int = TRANSFERS_BYTES_MAX,
    ) -> None:
        """Describe a spool.

        Args:
            folder: Where to make that folder; None means the system's place for temporary files.
            file_bytes_max: Largest file.
            spool_bytes_max: All files together.
        """
        self._parent = folder
        self._folder: Path | None = None
        self._transfers = IncomingTransfers(file_bytes_max=file_bytes_max, transfers_bytes_max=spool_bytes_max)
        self._spool_bytes_max = spool_bytes_max
        self._paths: dict[TransferKey, Path] = {}
        self._begun_bytes: dict[TransferKey, int] = {}
        """Announced size of each file that is not finished."""
        self._unsaved_bytes = 0

    def take(
        self, sender: bytes, mode: Mode, auth: Auth, part: FilePart, now: Instant
    ) -> FileProgress | FileFailed | Spooled | None:
        """Keep a part; None for one that was here before."""
        for key in self._transfers.expire(now):
            self._drop(key)
        taken = self._transfers.take(sender, mode, auth, part, now)
        if taken is PartRefusal.REPEATED:
            return None
        if isinstance(taken, PartRefusal):
            return FileFailed(sender, part.transfer_id, part.name, taken.value)
        if taken.is_first and not self._has_room(taken.key, part.total_bytes):
            self._transfers.finish(taken.key)
            return FileFailed(sender, part.transfer_id, part.name, PartRefusal.TOO_MANY.value)
        try:
            self._write(taken, part.data)
        except OSError as error:
            self._transfers.finish(taken.key)
            self._drop(taken.key)
            return FileFailed(sender, part.transfer_id, part.name, f"cannot keep it: {error.strerror}")
        if taken.is_last:
            return Spooled(taken.key, part, taken.auth)
        return FileProgress(sender, part.transfer_id, part.name, taken.received_bytes, part.total_bytes)

    async def finish(self, spooled: Spooled) -> ReceivedFile | FileFailed:
        """Check a complete file against the digest that its sender gave, and hand it over."""
        key, part = spooled.key, spooled.part
        path = self._paths[key]
        try:
            digest = await asyncio.to_thread(_digest_of, path)
        except OSError as error:
            digest, reason = b"", f"cannot read it back: {error.strerror}"
        else:
            reason = "what arrived is not what its sender announced (SHA-256 differs)"
        self._transfers.finish(key)
        if digest != part.digest:
            self._drop(key)
            return FileFailed(key.sender, key.transfer_id, part.name, reason)
        del self._paths[key]
        del self._begun_bytes[key]
        self._unsaved_bytes += part.total_bytes
        return ReceivedFile(part.name, part.total_bytes, path=path, on_gone=lambda: self._saved(part.total_bytes))

    def close(self) -> None:
        """Remove everything that was not saved."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _has_room(self, key: TransferKey, size_bytes: int) -> bool:
        """Keep room for a file beside those that have begun and those that were not saved, if there is any."""
        if self._unsaved_bytes + sum(self._begun_bytes.values()) + size_bytes > self._spool_bytes_max:
            return False
        self._begun_bytes[key] = size_bytes
        return True

    def _saved(self, size_bytes: int) -> None:
        self._unsaved_bytes -= size_bytes

    def _write(self, taken: PartTaken, data: bytes) -> None:
        if taken.is_first:
            self._paths[taken.key] = self._own_folder() / secrets.token_hex(16)
        descriptor = os.open(self._paths[taken.key], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view, at = memoryview(data), taken.offset_bytes
            while view:
                written = os.pwrite(descriptor, view, at)
                view, at = view[written:], at + written
        finally:
            os.close(descriptor)

    def _own_folder(self) -> Path:
        if self._folder is None:
            if self._parent is not None:
                self._parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="merk-", dir=self._parent))
        return self._folder

    def _drop(self, key: TransferKey) -> None:
        self._begun_bytes.pop(key, None)
        path = self._paths.pop(key, None)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()


_CHUNK_BYTES: Final = 1_048_576


def _digest_of(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.digest()
