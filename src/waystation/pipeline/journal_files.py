"""A folder of segments as the pipeline finds it: which there are, and in what state.

Journal and archive are local to where the driver runs. Open segments are left alone while their writer holds the
folder's lock; when nobody holds it, a killed node left them, and they are sealed here as the next start of the node
would.
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from waystation.journal.contract import FORMAT_VERSION
from waystation.journal.segment import (
    OPEN_SUFFIX,
    SEALED_SUFFIX,
    SegmentState,
    classify,
    parse_name,
)

__all__ = ["SegmentFile", "discover", "seal_left_overs"]

LOCK_FILE: Final = ".lock"  # the one that store.segments holds
_END_BYTES: Final = 65_536  # first and last lines have some 200 bytes; longer ones are not ours


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One file that may be a segment."""

    path: Path
    state: SegmentState
    rows_promised: int | None

    @property
    def segment(self) -> str:
        """Name without folder and suffix."""
        return self.path.name.removesuffix(SEALED_SUFFIX)


def seal_left_overs(journal: Path) -> int:
    """Give open segments of a writer that is gone their final names; return how many stay open."""
    opened = sorted(path for path in journal.glob(f"*/*{OPEN_SUFFIX}") if parse_name(path.name) is not None)
    if not opened:
        return 0
    try:
        fd = os.open(journal / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o640)
    except OSError:
        return len(opened)  # a journal we may only read: its owner seals
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in opened:
            path.rename(path.with_name(path.name.removesuffix(OPEN_SUFFIX) + SEALED_SUFFIX))
    except OSError:  # held by a live writer, or not ours to rename
        return len(opened)
    finally:
        os.close(fd)
    return 0


def discover(journal: Path, line_format: str = FORMAT_VERSION) -> list[SegmentFile]:
    """Return every sealed file, the best copy of each segment first, then by name and path.

    Args:
        journal: The folder.
        line_format: What first lines must say; files that say something else are foreign.
    """
    found = [_inspect(path, line_format) for path in journal.glob(f"*/*{SEALED_SUFFIX}") if path.is_file()]
    return sorted(found, key=lambda file: (_RANK[file.state], file.segment, str(file.path)))


def _inspect(path: Path, line_format: str) -> SegmentFile:
    with path.open("rb") as file:
        first = file.readline(_END_BYTES)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _END_BYTES, 0))
        ending = file.read(_END_BYTES)
    state, promised = classify(parse_name(path.name), first, ending, line_format)
    return SegmentFile(path, state, promised)


_RANK: Final = {
    state: rank
    for rank, state in enumerate(
        (SegmentState.COMPLETE, SegmentState.UNSEALED, SegmentState.TORN, SegmentState.FOREIGN)
    )
}
