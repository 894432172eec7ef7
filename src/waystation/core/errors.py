"""Exception classes of waystation.

::

    WaystationError
    ├── LocalError       the caller broke the contract of this library; fix the calling code or the command line
    │   └── ConfigError  a setting is unknown or out of range; carries file, line and what is allowed
    ├── RemoteError      the other side broke its protocol; carries the refusal and the numbers
    └── HostError        disk, network or port failed; carries what was tried
        └── StoreFault   the store took no write, or gave no answer; carries the kind of trouble

Code without I/O raises only ``LocalError`` and ``RemoteError``. A machine turns each ``RemoteError`` into an effect, so
input from a peer never raises an exception in the server.
"""

from enum import Enum
from pathlib import Path
from typing import Final

__all__ = [
    "STORE_EXIT_CODE",
    "ConfigError",
    "HostError",
    "LocalError",
    "RemoteError",
    "StoreFault",
    "StoreFaultKind",
    "WaystationError",
]

STORE_EXIT_CODE: Final = 5
"""Of a process that cannot use its store (exit codes of docs/operating.md)."""


class WaystationError(Exception):
    """Root of everything waystation raises on purpose."""


class LocalError(WaystationError):
    """The caller broke a contract of this package."""


class ConfigError(LocalError):
    """A setting is unknown or its value is not allowed.

    Attributes:
        origin: The file, environment variable or flag the value came from.
        line: 1-based line in ``origin``, or None when it is not a file.
    """

    def __init__(self, message: str, *, origin: str | Path, line: int | None = None) -> None:
        where = f"{origin}:{line}" if line is not None else str(origin)
        super().__init__(f"{where}: {message}")
        self.origin = origin
        self.line = line


class RemoteError(WaystationError):
    """The other side broke the rules of its protocol."""


class HostError(WaystationError):
    """The machine we run on refused something: a port, a file, a disk, a name.

    Attributes:
        exit_code: What the command line returns for it (4 port or permission, 5 store).
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StoreFaultKind(Enum):
    """What is wrong with a store."""

    BUSY = "busy"
    """Another program holds its lock."""
    FULL = "full"
    """The disk has no room, or less than the operator keeps free."""
    IO = "io"
    """The disk failed to read, write or sync."""
    HUNG = "hung"
    """A write has not returned for long, and nobody knows whether it will."""
    READ_ONLY = "read_only"
    GONE = "gone"
    """The file that is open is not the one at the store's path any more: it was deleted or moved."""
    OVERWRITTEN = "overwritten"
    """Another program has put other bytes into the file that is open; this does not end."""
    DAMAGED = "damaged"
    OTHER = "other"
    """Something that this version does not expect: a fault of ours, or of the database library."""


class StoreFault(HostError):  # noqa: N818 - a state of the store that lasts and ends, more than an error
    """The store refused a write or a read (exit code 5).

    Attributes:
        kind: What is wrong.
    """

    def __init__(self, message: str, kind: StoreFaultKind = StoreFaultKind.OTHER) -> None:
        super().__init__(message, exit_code=STORE_EXIT_CODE)
        self.kind = kind
