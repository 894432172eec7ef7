"""Read position of a journal stream, as pure functions that need no Spark.

The data source ``waystation`` stores it in Spark's checkpoint and asks what lies between two offsets. An offset is
``{segment: bytes}``: the file position after the last line that was read. Sealing only renames a file, so byte
positions remain valid (PIPE-OFFSET).

The offset has a bounded size. A segment is dropped once it is read to its end and began ``late_us`` before the newest
one. A time under ``MARK`` replaces the dropped segments: unlisted segments that began before it are not read. Segments
shipped later than that are loaded by the batch step. The mark never passes a segment that is not yet read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from waystation.journal.segment import SEALED_SUFFIX, parse_name
from waystation.pipeline.journal_files import GrowingFile

__all__ = ["LATE_US", "MARK", "Offset", "Slice", "advance", "group", "slices_between"]

Offset = dict[str, int]
MARK: Final = ""
"""Key of the mark; no segment is called so."""
LATE_US: Final = 2 * 86_400 * 1_000_000
"""How much later than its successors a segment may appear and is still read: two days."""

_GROUP_BYTES: Final = 4 << 20  # one task reads this in some ten milliseconds


class Slice(NamedTuple):
    """Lines of one segment that are to be read."""

    path: str
    """The name it has once it is sealed."""
    segment: str
    begin: int
    end: int


def advance(
    start: Mapping[str, int],
    files: Sequence[GrowingFile],
    end_of: Callable[[GrowingFile, int, int], tuple[int, int]],
    rows_max: int | None = None,
    late_us: int = LATE_US,
) -> Offset:
    """Return how far to read now; ``start`` itself when there is nothing new.

    Args:
        start: How far was read.
        files: What there is, the oldest first.
        end_of: Returns, for a file, a place in it and a number of lines, the offset after those lines and their
            number; only called with ``rows_max``.
        rows_max: How many lines to read at most; None reads all.
        late_us: How long a segment that was read to its end is listed.
    """
    offset = dict(start)
    budget = rows_max
    for file in _candidates(start, files):
        begin = offset.get(file.segment, 0)
        if begin >= file.ready_bytes:
            continue
        if budget is None:
            offset[file.segment] = file.ready_bytes
        elif budget > 0:
            offset[file.segment], rows = end_of(file, begin, budget)
            budget -= rows
    return dict(start) if offset == start else _fold(start, offset, files, late_us)


def slices_between(start: Mapping[str, int], end: Mapping[str, int], files: Iterable[GrowingFile]) -> list[Slice]:
    """Return what lies between two offsets; segments that are gone meanwhile are passed over."""
    paths = {file.segment: str(file.path) for file in files}
    return [
        Slice(paths[segment], segment, start.get(segment, 0), place)
        for segment, place in sorted(end.items())
        if segment != MARK and segment in paths and place > start.get(segment, 0)
    ]


def group(slices: Iterable[Slice]) -> list[tuple[Slice, ...]]:
    """Return slices put together until a task is worth its start."""
    groups: list[list[Slice]] = []
    size = _GROUP_BYTES
    for one in slices:
        if size >= _GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += one.end - one.begin
    return [tuple(members) for members in groups]


def _candidates(start: Mapping[str, int], files: Iterable[GrowingFile]) -> list[GrowingFile]:
    mark = start.get(MARK, 0)
    return [file for file in files if file.start_us >= mark or file.segment in start]


def _fold(start: Mapping[str, int], offset: Offset, files: Sequence[GrowingFile], late_us: int) -> Offset:
    """Drop segments that are old and were read to their end before this step; this step's own must stay to be read."""
    by_name = {file.segment: file for file in files}
    unread = [file.start_us for file in _candidates(start, files) if offset.get(file.segment, 0) < file.ready_bytes]
    newest = max(file.start_us for file in files)
    mark = max(min([newest - late_us, *unread]), start.get(MARK, 0))

    def is_settled(segment: str, place: int) -> bool:
        file, name = by_name.get(segment), parse_name(f"{segment}{SEALED_SUFFIX}")
        if start.get(segment) != place or name is None or name.start_us >= mark:
            return False
        return file is None or (file.is_sealed and place >= file.ready_bytes)

    kept = {name: place for name, place in offset.items() if name == MARK or not is_settled(name, place)}
    return kept | {MARK: mark} if mark > 0 else kept
