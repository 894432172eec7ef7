"""A received MERK message as programs get it, and the files attached to it.

``MerkClient.messages`` yields it. ``auth`` says how well the sender is proved, because plain frames prove nothing. A
file stays in the client's buffer until it is saved or discarded.
"""

import contextlib
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from waystation.core.errors import HostError
from waystation.protocols.merk.payload.contents import Json, Raw, Text
from waystation.protocols.merk.payload.file_names import safe_name
from waystation.protocols.merk.payload.sealing import Auth, Mode

__all__ = ["Message", "ReceivedFile"]

_NUMBERS_MAX: Final = 10_000


class ReceivedFile:
    """A file that has arrived; until it is saved it lives as long as the client."""

    def __init__(
        self,
        name: str,
        size_bytes: int,
        *,
        data: bytes | None = None,
        path: Path | None = None,
        on_gone: Callable[[], None] | None = None,
    ) -> None:
        """Describe a file in memory (``data``) or downloaded at ``path``; ``on_gone`` is called once it is gone."""
        assert (data is None) != (path is None)
        self.name = name
        """As the sender calls it: any text."""
        self.size_bytes = size_bytes
        self._data = data
        self._path = path
        self._on_gone = on_gone

    def read_bytes(self) -> bytes:
        """Return the whole file; raises HostError when it is gone."""
        try:
            with self._open() as file:
                return file.read()
        except OSError as error:
            raise HostError(f"the file {self.name!r} is not kept any more: {error.strerror}") from error

    def save(self, folder: Path) -> Path:
        """Put the file into a folder, made if absent, and return where; nothing is overwritten.

        Its name is the sender's without what could lead elsewhere, and with a number when there is one of that name.

        Raises:
            HostError: It cannot be written, or is gone.
        """
        name = safe_name(self.name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path, descriptor = _create(folder, name)
            try:
                with os.fdopen(descriptor, "wb") as saved, self._open() as kept:
                    shutil.copyfileobj(kept, saved)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise HostError(f"cannot save {name} in {folder}: {error.strerror}") from error
        self.discard()
        return path

    def discard(self) -> None:
        """Drop a downloaded file; safe to call twice."""
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
        on_gone, self._on_gone = self._on_gone, None
        if on_gone is not None:
            on_gone()

    def _open(self) -> BinaryIO:
        return io.BytesIO(self._data or b"") if self._path is None else self._path.open("rb")


class Message(NamedTuple):
    """One message that passed every check."""

    sender: bytes
    """32-byte public key; how far it is proved says ``auth``."""
    mode: Mode
    auth: Auth
    content: Raw | Text | Json | ReceivedFile
    time_ms: int | None
    """When it was sent by the sender's clock, Unix milliseconds; None from an original client."""
    message_id: bytes
    """16 bytes, the same as the sender's ``SentMessage.id``."""
    late: bool
    """Whether ``time_ms`` is more than ten minutes away from our clock: it may be a replay."""
    relay: str
    """Address of the relay that delivered it."""
    answers: bytes | None = None
    """Id of the message of ours that its sender answers with it (``MerkClient.answer``), proved as the message is; None
    where it answers none, and always unless ``auth`` is BOUND and ``mode`` ENCRYPTED."""

    @property
    def id(self) -> bytes:
        """The same as ``message_id``."""
        return self.message_id

    @property
    def text(self) -> str | None:
        """The text; for JSON and for readable raw bytes too, since a plain message does not say what it is."""
        if isinstance(self.content, Text | Json):
            return self.content.text
        if isinstance(self.content, Raw):
            with contextlib.suppress(UnicodeDecodeError):
                return self.content.data.decode()
        return None


def _create(folder: Path, name: str) -> tuple[Path, int]:
    """Make a new file, numbered when its name is taken."""
    first = folder / name
    for number in range(_NUMBERS_MAX):
        path = first.with_stem(f"{first.stem}-{number}") if number else first
        with contextlib.suppress(FileExistsError):
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    raise HostError(f"{folder} holds {_NUMBERS_MAX} files called {name}")
