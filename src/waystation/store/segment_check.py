"""Reads sealed segments of the journal and the archive, and says which are not as they were sealed (NODE-ROT).

``waystation check --deep`` calls it: a folder goes in, one result for each sealed segment comes out. A segment has no
checksum of its own. What is found are lines that no node writes, a number of lines that is not the one of the last
line, and packets whose bytes have not the identifier that they name. A segment that grows is not looked at. One that a
killed node left, which got its final name as it was, has no last line and may end inside one: that is no fault, but
such a segment could lack lines at its end, and nothing shows it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from waystation.journal.archive import ARCHIVE_FORMAT, read_packets
from waystation.journal.contract import FORMAT_VERSION
from waystation.journal.segment import SEALED_SUFFIX, SegmentState, classify, parse_name, read_rows
from waystation.store.checksums import PacketCheck

__all__ = ["SegmentFault", "check_archive", "check_journal"]

_SEAL: Final = b'"segment_sealed"'


class SegmentFault(NamedTuple):
    """A sealed segment that was looked at."""

    path: Path
    fault: str
    """What is wrong with it, empty for nothing."""
    is_sealed: bool = True
    """Whether it ends as an orderly writer ends it; a fault is found in others too."""


def check_journal(folder: Path) -> Iterator[SegmentFault]:
    """Yield every sealed segment of a journal's folder, in the order of its files; none when there is no folder."""
    for path, data in _named_as_sealed(folder):
        yield _judged(path, data, FORMAT_VERSION, lambda lines: sum(1 for _ in read_rows(lines)))


def check_archive(folder: Path, check: PacketCheck) -> Iterator[SegmentFault]:
    """Yield every sealed segment of an archive's folder likewise; ``check`` judges the packets."""

    def good(lines: bytes) -> int:
        packets = sum(1 for _ in read_packets(lines))
        return packets + sum(1 for _ in read_rows(lines))  # its two ends, and what says that packets are missing

    for path, data in _named_as_sealed(folder):
        found = _judged(path, data, ARCHIVE_FORMAT, good)
        bad = sum(not check(packet["signed_bytes"].encode()) for packet in read_packets(data))
        yield found._replace(fault=found.fault or (f"{bad} of its packets are damaged" if bad else ""))


def _named_as_sealed(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.glob(f"*/*{SEALED_SUFFIX}")):
        try:
            yield path, path.read_bytes()
        except FileNotFoundError:
            continue  # retention deletes old ones while a node runs


def _judged(path: Path, data: bytes, line_format: str, good_of: Callable[[bytes], int]) -> SegmentFault:
    if not data:
        return SegmentFault(path, "", is_sealed=False)  # the node was killed before its first line
    whole_lines, _, rest = data.rpartition(b"\n")
    state, promised = classify(parse_name(path.name), data.partition(b"\n")[0], data, line_format)
    if state is SegmentState.FOREIGN:
        return SegmentFault(path, "its first line is no opening of this segment")
    lines, good = sum(1 for line in whole_lines.split(b"\n") if line), good_of(whole_lines)
    if good < lines:
        return SegmentFault(path, f"{lines - good} of its {lines} lines are damaged")
    if state is not SegmentState.COMPLETE:
        # A seal is written in one small piece: half of one was cut off later, not left by a kill.
        return SegmentFault(path, "it does not end as it was sealed" if _SEAL in rest else "", is_sealed=False)
    fault = f"it has {lines} lines, and was sealed with {promised}" if promised != lines else ""
    return SegmentFault(path, fault)
