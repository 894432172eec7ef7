"""Reads sealed segments of the journal and the archive, and says which are not as they were sealed (NODE-ROT).

A segment has no checksum of its own. What is found are lines that no node writes, a number of lines that is not the one
of the last line, and packets whose bytes have not the identifier that they name. A segment that grows is not looked at.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from waystation.journal.archive import ARCHIVE_FORMAT, read_packets
from waystation.journal.contract import FORMAT_VERSION
from waystation.journal.segment import SEALED_SUFFIX, SegmentState, classify, parse_name, read_rows
from waystation.store.checksums import PacketCheck

__all__ = ["SegmentFault", "check_archive", "check_journal"]


class SegmentFault(NamedTuple):
    """A sealed segment that was looked at."""

    path: Path
    fault: str
    """What is wrong with it, empty for nothing."""


def check_journal(folder: Path) -> Iterator[SegmentFault]:
    """Yield every sealed segment of a journal's folder, in the order of its files; none when there is no folder."""
    for path, data in _sealed(folder):
        good = sum(1 for _ in read_rows(data))
        yield SegmentFault(path, _fault(path, data, FORMAT_VERSION, good))


def check_archive(folder: Path, check: PacketCheck) -> Iterator[SegmentFault]:
    """Yield every sealed segment of an archive's folder likewise; ``check`` judges the packets."""
    for path, data in _sealed(folder):
        packets = list(read_packets(data))
        bad = sum(not check(packet["signed_bytes"].encode()) for packet in packets)
        others = sum(1 for _ in read_rows(data))  # its two ends, and what says that packets are missing
        fault = _fault(path, data, ARCHIVE_FORMAT, len(packets) + others)
        yield SegmentFault(path, fault or (f"{bad} of its packets are damaged" if bad else ""))


def _sealed(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.glob(f"*/*{SEALED_SUFFIX}")):
        try:
            yield path, path.read_bytes()
        except FileNotFoundError:
            continue  # retention deletes old ones while a node runs


def _fault(path: Path, data: bytes, line_format: str, good: int) -> str:
    state, promised = classify(parse_name(path.name), data.partition(b"\n")[0], data, line_format)
    lines = sum(1 for line in data.split(b"\n") if line)
    if state is SegmentState.FOREIGN:
        return "its first line is no opening of this segment"
    if good < lines:
        return f"{lines - good} of its {lines} lines are damaged"
    if state is not SegmentState.COMPLETE:
        return "it does not end as it was sealed"
    return f"it has {lines} lines, and was sealed with {promised}" if promised != lines else ""
