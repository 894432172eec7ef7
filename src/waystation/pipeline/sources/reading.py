"""Reads slices of segment files and converts their lines to Arrow batches, in Spark's Python workers.

``sources.waystation`` calls it for each task. Filters are applied here, so rows that nobody asked for never reach the
JVM.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.journal.archive import ARCHIVE_FORMAT, archive_line_ddl, read_packets
from waystation.journal.contract import FORMAT_VERSION, line_ddl
from waystation.journal.segment import OPEN_SUFFIX, date_of, read_rows
from waystation.pipeline.journal_files import GrowingFile
from waystation.pipeline.sources.offsets import Slice

__all__ = ["FORMS", "Form", "Wanted", "count_to", "line_batches", "read_slice", "row_batches"]

_ROWS_PER_BATCH: Final = 10_000
_BLOCK_BYTES: Final = 1 << 20


class Form(NamedTuple):
    """One kind of segments."""

    line_format: str
    """What first lines say."""
    ddl: str
    """Spark schema of a row, without ``segment`` and ``event_date``."""
    read: Callable[[bytes], Iterator[dict[str, Any]]]
    """Returns the good lines as rows."""
    date: Callable[[dict[str, Any]], datetime.date]
    """Returns the UTC date a row belongs to."""


FORMS: Final[Mapping[str, Form]] = {
    "journal": Form(FORMAT_VERSION, line_ddl(), read_rows, lambda row: date_of(row["ts"])),
    "archive": Form(
        ARCHIVE_FORMAT,
        archive_line_ddl(),
        read_packets,
        lambda row: date_of(row["received_at"] * MICROSECONDS_PER_SECOND),
    ),
}
"""By the value of option ``lines``."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows that were asked for; None asks for all."""

    kinds: frozenset[str] | None = None
    relay_ids: frozenset[str] | None = None
    first: datetime.date | None = None
    last: datetime.date | None = None

    def takes(self, row: Mapping[str, Any], date: datetime.date) -> bool:
        """Return whether a row is one of them."""
        return (
            (self.kinds is None or row.get("kind") in self.kinds)
            and (self.relay_ids is None or row.get("relay_id") in self.relay_ids)
            and (self.first is None or date >= self.first)
            and (self.last is None or date <= self.last)
        )

    def may_be_in(self, file: GrowingFile) -> bool:
        """Return whether a segment may have such rows: it covers the date it began on, give or take one."""
        began, day = date_of(file.start_us), datetime.timedelta(days=1)
        return (self.first is None or began >= self.first - day) and (self.last is None or began <= self.last + day)


def read_slice(one: Slice) -> bytes:
    """Return the bytes of a slice, from the sealed file or the open one; nothing of a segment that is gone."""
    for path in (Path(one.path), Path(one.path).with_suffix(OPEN_SUFFIX), Path(one.path)):
        try:  # sealing between the two looks is why the first is looked for again
            with path.open("rb") as file:
                file.seek(one.begin)
                return file.read(one.end - one.begin)
        except FileNotFoundError:
            continue
    return b""


def count_to(file: GrowingFile, begin: int, rows: int) -> tuple[int, int]:
    """Return the offset after so many lines, and how many there were before the end."""
    place, seen = begin, 0
    while place < file.ready_bytes:
        block = read_slice(Slice(str(file.path), file.segment, place, min(place + _BLOCK_BYTES, file.ready_bytes)))
        if not block:
            break
        lines = block.count(b"\n")
        if seen + lines >= rows:
            return place + _end_of_line(block, rows - seen), rows
        seen += lines
        place += len(block)
    return file.ready_bytes, seen


def line_batches(slices: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
    """Yield every line as it stands: ``value``, ``segment``, and the places where it begins and ends."""
    for one in slices:
        lines = iter(_placed(one))
        while some := list(islice(lines, _ROWS_PER_BATCH)):
            values, begins, ends = zip(*some, strict=True)
            # Spark's own text reader takes bytes that are no UTF-8 as they are; the hash of a bad line needs the same.
            texts = pa.array(values, pa.binary()).view(pa.string())
            names = pa.array([one.segment] * len(some), pa.string())
            columns = [texts, names, pa.array(begins, pa.int64()), pa.array(ends, pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, names=["value", "segment", "begins_at", "ends_at"])


def row_batches(slices: Iterable[Slice], form: Form, wanted: Wanted, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the good lines that were asked for as rows."""
    rows = (row for one in slices for row in _rows(one, form, wanted))
    while some := list(islice(rows, _ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist(some, schema)


def _rows(one: Slice, form: Form, wanted: Wanted) -> Iterator[dict[str, Any]]:
    for row in form.read(read_slice(one)):
        date = form.date(row)
        if wanted.takes(row, date):
            attrs = row.get("attrs")
            pairs = None if attrs is None else sorted(attrs.items())
            yield {**row, "attrs": pairs, "segment": one.segment, "event_date": date}


def _placed(one: Slice) -> Iterator[tuple[bytes, int, int]]:
    """Yield lines with the places where they begin and end; the last one may lack its newline."""
    begin = one.begin
    *whole, torn = read_slice(one).split(b"\n")
    for line in whole:
        end = begin + len(line) + 1
        yield line, begin, end
        begin = end
    if torn:
        yield torn, begin, begin + len(torn)


def _end_of_line(block: bytes, number: int) -> int:
    place = 0
    for _ in range(number):
        place = block.index(b"\n", place) + 1
    return place
