"""Segment format: file names, line encoding, and the state of a segment file when it is read.

``store.segments`` writes files with it and the pipeline reads them. A segment is a file of JSON lines for one UTC date;
columns without a value are omitted. Line 0 is ``segment_opened`` and names the segment. A finished segment ends with
``segment_sealed`` and the number of lines. The name of a growing file ends in ``.jsonl.open``; sealing renames the
file. If the node is killed, ``segment_sealed`` is missing and the last line may be cut. All lines before the cut are
valid.
"""

import datetime
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.journal.contract import COLUMNS, FORMAT_VERSION, KINDS, TS_US_END, Kind
from waystation.journal.events import Event

__all__ = [
    "EVENT_ID_BYTES",
    "NOT_A_WORD",
    "OPEN_SUFFIX",
    "SEALED_SUFFIX",
    "SegmentName",
    "SegmentReport",
    "SegmentState",
    "classify",
    "date_of",
    "encode_lines",
    "event_id",
    "inspect_segment",
    "parse_name",
    "read_rows",
]

SEALED_SUFFIX: Final = ".jsonl"
OPEN_SUFFIX: Final = ".jsonl.open"
NOT_A_WORD: Final = "not_a_word"
"""Written instead of text that is no word: a phrase of a peer must not reach the journal."""
EVENT_ID_BYTES: Final = 16

# Shorter than an id52 (52) or a key in hexadecimal (64), so that no identity can pass for a word.
_WORD: Final = re.compile(r"[A-Za-z0-9_.+\-]{1,48}\Z")
_COUNT: Final = re.compile(r"[0-9]{1,17}\Z")
_NAME: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,17})-([0-9]{1,9})\Z")
_DATE_FOLDER: Final = "event_date="
_US_PER_DAY: Final = 86_400 * MICROSECONDS_PER_SECOND
_EPOCH: Final = datetime.date(1970, 1, 1)
_KIND_NAMES: Final = frozenset(kind.name for kind in KINDS)
_COLUMN_NAMES: Final = tuple(column.name for column in COLUMNS)


class SegmentName(NamedTuple):
    """The name of a segment: its node, the time it began, and its number within that run of the node."""

    node_id: str
    """16 hexadecimal digits."""
    start_us: int
    number: int

    @property
    def text(self) -> str:
        """The name without folder and suffix."""
        return f"{self.node_id}-{self.start_us}-{self.number}"

    @property
    def folder(self) -> str:
        """The folder for the UTC date on which the segment began."""
        return f"{_DATE_FOLDER}{date_of(self.start_us).isoformat()}"


class SegmentState(Enum):
    """The state of a file."""

    COMPLETE = "complete"
    """Begins and ends as its writer meant it to."""
    UNSEALED = "unsealed"
    """Ends after a whole line, but its writer never finished it."""
    TORN = "torn"
    """Ends inside a line."""
    FOREIGN = "foreign"
    """Not written by a node, of another format, or renamed."""


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The content of a segment as plain Python reads it."""

    state: SegmentState
    rows_good: int
    rows_bad: int
    rows_promised: int | None
    """The count of the last line, or None without one."""


def date_of(ts_us: int) -> datetime.date:
    """Return the UTC date of a time in microseconds since 1970."""
    return _EPOCH + datetime.timedelta(days=ts_us // _US_PER_DAY)


def parse_name(file_name: str) -> SegmentName | None:
    """Return the parts of a file name, sealed or open, or None when it is no segment's name."""
    stem = file_name.removesuffix(".open").removesuffix(SEALED_SUFFIX)
    match = _NAME.match(stem)
    if match is None or stem == file_name.removesuffix(".open"):
        return None
    return SegmentName(match[1], int(match[2]), int(match[3]))


def event_id(segment: str, seq: int) -> bytes:
    """Return the 16-byte BLAKE2b name of one event among all nodes; a segment's name begins with its node."""
    return hashlib.blake2b(f"{segment}#{seq}".encode(), digest_size=EVENT_ID_BYTES).digest()


def encode_lines(events: Iterable[Event], first_seq: int) -> bytes:
    """Return JSON lines, each ended by a newline, numbered from ``first_seq``."""
    return "".join([_line(event, seq) for seq, event in enumerate(events, first_seq)]).encode()


def classify(
    name: SegmentName | None, first_line: bytes, ending: bytes, line_format: str = FORMAT_VERSION
) -> tuple[SegmentState, int | None]:
    """Return the state of a file from its two ends.

    Args:
        name: The parts of its file name.
        first_line: The first line; the newline at its end may be missing.
        ending: The last bytes of the file, at least one whole line when there is one.
        line_format: The format that the first line must name; the default is the journal's.

    Returns:
        The state, and the number of lines the last line promises (None without such a line).
    """
    if name is None or not _is_opening(_decode(first_line), name, line_format):
        return SegmentState.FOREIGN, None
    if not ending.endswith(b"\n"):
        return SegmentState.TORN, None
    last = _decode(ending[:-1].rpartition(b"\n")[2])
    if last is None or last.get("kind") != "segment_sealed":
        return SegmentState.UNSEALED, None
    rows = str(_attributes(last).get("rows"))
    return SegmentState.COMPLETE, int(rows) if _COUNT.match(rows) else None


def inspect_segment(file_name: str, data: bytes) -> SegmentReport:
    """Read a whole segment: what it is, and how many of its lines are good."""
    state, promised = classify(parse_name(file_name), data.partition(b"\n")[0], data)
    if state is SegmentState.FOREIGN:
        return SegmentReport(state, 0, 0, None)
    good = sum(1 for _ in read_rows(data))
    lines = sum(1 for line in data.split(b"\n") if line.strip())
    return SegmentReport(state, good, lines - good, promised)


def read_rows(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the good lines of a segment as dictionaries of contract columns; bad lines are passed over.

    A line is good when it is a JSON object whose columns have the contract's types, with ``ts``, ``seq``, ``protocol``
    and a known ``kind``. This is the plain reading the pipeline is compared with.
    """
    for line in data.split(b"\n"):
        row = _decode(line)
        if row is not None and _fits_contract(row) and row["kind"] in _KIND_NAMES:
            yield {name: row.get(name) for name in _COLUMN_NAMES}


def _line(event: Event, seq: int) -> str:
    """Return one line: filled into its kind's template, or built key by key when something is missing."""
    plan = _PLANS[type(event)]
    if None in event:
        return _ENCODER.encode(_row(event, seq)).decode() + "\n"
    values = plan.pick(event)
    return plan.template % (seq, *[value if type(value) is int else _plain(value) for value in values])


def _row(event: Event, seq: int) -> dict[str, Any]:
    plan = _PLANS[type(event)]
    row: dict[str, Any] = {"seq": seq, "kind": plan.kind}
    if plan.protocol is not None:
        row["protocol"] = plan.protocol
    for index, column in plan.columns:
        value = event[index]
        if value is not None:
            row[column] = value if type(value) is int else _plain(value)
    if plan.attributes:
        attrs = {key: str(_plain(event[index])) for index, key in plan.attributes if event[index] is not None}
        if attrs:
            row["attrs"] = attrs
    return row


def _plain(value: object) -> int | str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int):
        return value
    return _word(value)


@lru_cache(maxsize=1_024)
def _word(value: object) -> str:
    text = str(value.value) if isinstance(value, Enum) else str(value)
    return text if _WORD.match(text) else NOT_A_WORD


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        row = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _is_opening(row: dict[str, Any] | None, name: SegmentName, line_format: str) -> bool:
    if row is None or row.get("kind") != "segment_opened":
        return False
    attrs = _attributes(row)
    return attrs.get("segment") == name.text and attrs.get("format") == line_format


def _attributes(row: dict[str, Any]) -> dict[str, Any]:
    attrs = row.get("attrs")
    return attrs if isinstance(attrs, dict) else {}


def _fits_contract(row: dict[str, Any]) -> bool:
    return all(_fits(column.name, row.get(column.name)) for column in COLUMNS)


def _fits(name: str, value: object) -> bool:
    column = _COLUMN[name]
    if value is None:
        return column.nullable
    if column.line_type == "bigint":
        return type(value) is int and 0 <= value < (TS_US_END if name == "ts" else 1 << 63)
    if column.line_type == "string":
        return isinstance(value, str) and _is_reference(value, column.size_bytes)
    return isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values())


def _is_reference(text: str, size_bytes: int | None) -> bool:
    return size_bytes is None or (len(text) == 2 * size_bytes and not set(text) - _HEX_DIGITS)


_HEX_DIGITS: Final = frozenset("0123456789abcdef")
_COLUMN: Final = {column.name: column for column in COLUMNS}


class _Plan(NamedTuple):
    """Where the fields of one kind of event go, by their index: encoding is too frequent to look names up."""

    kind: str
    protocol: str | None
    columns: tuple[tuple[int, str], ...]
    attributes: tuple[tuple[int, str], ...]
    template: str
    """The line of an event of which nothing is missing; takes ``seq`` and what ``pick`` returns."""
    pick: Callable[[Event], tuple[Any, ...]]
    """Returns the fields in the template's order."""


def _plan(kind: Kind) -> _Plan:
    fields = list(enumerate(kind.event._fields))
    columns = [(index, kind.columns[name]) for index, name in fields if name in kind.columns]
    attributes = [(index, kind.attributes[name].name) for index, name in fields if name in kind.attributes]
    indexes = [index for index, _ in (*columns, *attributes)]
    return _Plan(
        kind.name,
        kind.protocol,
        tuple(columns),
        tuple(attributes),
        _template(kind, columns, [key for _, key in attributes]),
        itemgetter(*indexes),
    )


def _template(kind: Kind, columns: list[tuple[int, str]], attributes: list[str]) -> str:
    parts = ['"seq":%d', f'"kind":"{kind.name}"']
    if kind.protocol is not None:
        parts.append(f'"protocol":"{kind.protocol}"')
    for _, name in columns:
        parts.append(f'"{name}":%d' if _COLUMN[name].line_type == "bigint" else f'"{name}":"%s"')
    if attributes:
        parts.append('"attrs":{' + ",".join(f'"{key}":"%s"' for key in attributes) + "}")
    return "{" + ",".join(parts) + "}\n"


_PLANS: Final = {kind.event: _plan(kind) for kind in KINDS}
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder()
