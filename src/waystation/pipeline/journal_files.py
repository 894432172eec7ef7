"""Lists the segments in a journal or archive folder, with their state and current size.

The ingest step, the stream and its data source call it. The folder must be local to the driver. An open segment is not
read in bulk while its writer has the folder's lock. If the lock is free, a killed node left the segment open. It is
then sealed here, as the node's next start would do.
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

__all__ = ["GrowingFile", "GrowthReader", "SegmentFile", "discover", "seal_left_overs"]

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


@dataclass(frozen=True, slots=True)
class GrowingFile:
    """One segment, sealed or not yet, and what of it may be read."""

    segment: str
    """Name without folder and suffixes."""
    start_us: int
    path: Path
    """The name it has once it is sealed; until then the file has ``OPEN_SUFFIX``."""
    ready_bytes: int
    """Up to here there are whole lines; of a sealed one, all there is."""
    is_sealed: bool


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


class GrowthReader:
    """Looks at a folder again and again, at files that have changed only."""

    def __init__(self, journal: Path, line_format: str = FORMAT_VERSION) -> None:
        """Name the folder, and what first lines must say."""
        self._journal = journal
        self._line_format = line_format
        self._known: dict[tuple[Path, int], tuple[SegmentState, int]] = {}

    def look(self) -> list[GrowingFile]:
        """Return the best copy of every segment, the oldest first; files that are no segments are left out."""
        best: dict[str, tuple[tuple[int, int, str], GrowingFile]] = {}
        known: dict[tuple[Path, int], tuple[SegmentState, int]] = {}
        # Open ones first: what is sealed between the two listings is then seen twice, and not at all the other way.
        for path in (*self._journal.glob(f"*/*{OPEN_SUFFIX}"), *self._journal.glob(f"*/*{SEALED_SUFFIX}")):
            name = parse_name(path.name)
            size = _size(path)
            if name is None or not size:
                continue
            state, ready = known[path, size] = self._known.get((path, size)) or self._inspect(path)
            if state is SegmentState.FOREIGN:
                continue
            is_sealed = path.name.endswith(SEALED_SUFFIX)
            file = GrowingFile(
                name.text, name.start_us, path.with_name(f"{name.text}{SEALED_SUFFIX}"), ready, is_sealed
            )
            rank = (0 if is_sealed else 1, _RANK[state], str(path))
            if name.text not in best or rank < best[name.text][0]:
                best[name.text] = (rank, file)
        self._known = known
        return sorted((file for _, file in best.values()), key=lambda file: (file.start_us, file.segment))

    def _inspect(self, path: Path) -> tuple[SegmentState, int]:
        try:
            state = _inspect(path, self._line_format).state
            return state, _size(path) if path.name.endswith(SEALED_SUFFIX) else _end_of_lines(path)
        except FileNotFoundError:  # sealed or deleted since it was listed; the next look sees it
            return SegmentState.FOREIGN, 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _end_of_lines(path: Path) -> int:
    """Return the offset after the last whole line."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(end - _END_BYTES, 0)
            file.seek(begin)
            last = file.read(end - begin).rfind(b"\n")
            if last >= 0:
                return begin + last + 1
            end = begin
    return 0


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
