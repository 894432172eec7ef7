"""Reads and writes bundle files: a write is complete and synced or has no effect, a read is bounded in size.

``BspPeer`` calls it for ``export_file`` and ``import_file``. The order of an export is: choose records, store the file
number, seal, write under a temporary name, sync, rename, mark as sent. A crash at any point loses no message; at worst
a complete file's messages are sent again.
"""

from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.bundle import BUNDLE_BYTES_MAX
from waystation.sdk.private_file import write_whole

__all__ = ["ExportResult", "ImportResult", "read_bundle_file", "write_bundle_file"]

_EXIT_PERMISSION: Final = 4


class ExportResult(NamedTuple):
    """What was written for a peer to be carried."""

    path: Path | None
    """The file; None when nothing was due, and none was written."""
    peer: PublicKey
    number: int
    """The file's number, 0 without a file."""
    size_bytes: int
    messages_count: int
    acks_count: int
    requests_count: int
    complete: bool
    """Whether everything that was due is in it, or goes out over a faster way that is up; else export another one."""


class ImportResult(NamedTuple):
    """What a file said, once it is on our disk."""

    sender: PublicKey
    number: int
    """The sender's number of the file."""
    size_bytes: int
    messages_count: int
    """Messages in it."""
    new_count: int
    """Those that we did not have."""
    refused_count: int
    """Those that we do not take: of a group that is not shared with the sender, or there is no room."""
    acks_count: int
    """Messages of ours that the sender confirms."""


def write_bundle_file(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file; when this returns, it survives a power cut under its name.

    Args:
        path: Where; the folder is there.
        data: The bundle.
        replace: Whether a file of this name may be overwritten.

    Raises:
        LocalError: There is a file of this name, or it is a folder's.
        HostError: The disk says no; there is no file of that name then.
    """
    if path.is_dir():
        raise LocalError(f"{path} is a folder; name the file to write")
    try:
        write_whole(path, data, replace=replace)
    except FileExistsError as error:
        raise LocalError(f"{path} is there already; name another file") from error
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}", exit_code=_EXIT_PERMISSION) from error


def read_bundle_file(path: Path) -> bytes:
    """Return what a file holds; of one that is too large to be a bundle, one byte more than a bundle may have.

    Raises:
        HostError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(BUNDLE_BYTES_MAX + 1)
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}", exit_code=_EXIT_PERMISSION) from error
