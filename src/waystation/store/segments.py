"""Writes journal and archive segments to disk, on a thread of its own.

``server.written`` has one writer for the journal and one for the archive of packets. ``append`` only adds a row to a
queue, so it never blocks the event loop. The thread takes pending rows once a second, or earlier when there are many.
It encodes and writes them. It starts a new segment after a limit of rows or age, and on each UTC date. It seals a
finished segment by renaming it, and deletes segments beyond the retention. Rows lost to a disk error or a full buffer
are counted. The count is written as a ``refused`` line later, so a full disk never stops the node.

Rows are journal events by default. Archive packets are large, so their buffer and segments are limited by bytes too.

The writer locks ``.lock`` in its folder while it runs. Readers thereby distinguish a growing segment from one that a
killed node left open. The next writer seals such segments unchanged.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from waystation.core.errors import HostError
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.journal.archive import ARCHIVE_FORMAT, encode_archive
from waystation.journal.contract import FORMAT_VERSION, NODE_PROTOCOL
from waystation.journal.events import Refused, SegmentOpened, SegmentSealed
from waystation.journal.segment import (
    OPEN_SUFFIX,
    SEALED_SUFFIX,
    SegmentName,
    date_of,
    encode_lines,
    parse_name,
)

__all__ = ["ARCHIVE_LINES", "BUFFER_ROWS_MAX", "JOURNAL_LINES", "LOCK_FILE"]
__all__ += ["Lines", "SegmentCounts", "SegmentWriter", "Timed"]

LOCK_FILE: Final = ".lock"
BUFFER_ROWS_MAX: Final = 200_000
"""Rows that may wait for the thread: about 60 MB, several seconds of the fastest node."""

BUFFER_BYTES_MAX: Final = 64 << 20
"""Bytes that may wait for the thread where rows are weighed."""
SEGMENT_BYTES_MAX: Final = 64 << 20
"""Bytes after which a segment of weighed rows is sealed: what one task of the pipeline reads in a second or two."""

_WAKE_ROWS: Final = 4_096  # enough that encoding works in bulk, few enough that one flush takes some ten milliseconds
# Encoding holds the interpreter, and the node's loop waits for it at every system call: so a little at a time.
_STEP_ROWS: Final = 128
_STEP_BYTES: Final = 256 << 10
_PAUSE_S: Final = 0.001
_NODE_ID_BYTES: Final = 8
_US_PER_DAY: Final = 86_400 * MICROSECONDS_PER_SECOND
_STORE_EXIT_CODE: Final = 5


class SegmentCounts(NamedTuple):
    """What a writer did so far, for metrics."""

    rows_written: int
    rows_dropped: int
    """Rows that found the buffer full."""
    rows_lost: int
    """Rows that the disk refused."""
    lost_ago_s: float | None
    """Seconds since the last of them; None when none was lost."""
    segments_sealed: int
    segments_deleted: int


class Timed(Protocol):
    """What every row has."""

    @property
    def ts_us(self) -> int:
        """When it happened, microseconds UTC since 1970; names the date it is filed under."""


class Lines(NamedTuple):
    """What the segments of a folder hold, and how it is written."""

    thing: str
    """The content of the folder, in one word; ``<thing>_buffer_full`` and ``<thing>_disk_error`` count lost rows."""
    line_format: str
    """The format that the first line of a segment names."""
    encode: Callable[[Sequence[Any], int], bytes]
    """Returns the lines of rows, and of first and last lines, numbered from the second argument."""
    weigh: Callable[[Any], int] | None = None
    """Returns the bytes of a row where rows may be large."""


JOURNAL_LINES: Final = Lines("journal", FORMAT_VERSION, encode_lines)
"""Events."""
ARCHIVE_LINES: Final = Lines("archive", ARCHIVE_FORMAT, encode_archive, lambda packet: len(packet.canonical))
"""``ArchivedPacket`` rows."""


class _Sealed(NamedTuple):
    start_us: int
    path: Path
    size_bytes: int


class SegmentWriter:
    """Writes rows into segments below one folder."""

    def __init__(
        self,
        directory: Path,
        node_id: bytes,
        lines: Lines = JOURNAL_LINES,
        *,
        wall_us: Callable[[], int],
        on_error: Callable[[OSError], None],
        segment_seconds: int = 60,
        segment_rows: int = 20_000,
        retention_days: int = 14,
        retention_bytes: int = 1 << 30,
        flush_seconds: float = 1.0,
        segment_bytes: int = SEGMENT_BYTES_MAX,
        buffer_rows_max: int = BUFFER_ROWS_MAX,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
    ) -> None:
        """Lock the folder, seal what a killed node left, and start the thread.

        Args:
            directory: Folder of the segments; made if absent.
            node_id: 8 bytes that name this node among others.
            lines: What the rows are: ``JOURNAL_LINES`` or ``ARCHIVE_LINES``.
            wall_us: Wall clock, microseconds UTC since 1970; called on the writer's thread.
            on_error: Called with the first error of a disk failure, on the writer's thread; the next success ends it.
            segment_seconds: Age at which a segment is sealed.
            segment_rows: Rows after which a segment is sealed; first and last line come on top.
            retention_days: Sealed segments older than this are deleted.
            retention_bytes: The oldest sealed segments beyond this total are deleted.
            flush_seconds: How long a row may wait in memory.
            segment_bytes: Size after which a segment of weighed rows is sealed.
            buffer_rows_max: How many rows may wait in memory.
            buffer_bytes_max: How many bytes of weighed rows may wait in memory.

        Raises:
            HostError: The folder cannot be used, or another writer holds it.
        """
        assert len(node_id) == _NODE_ID_BYTES
        self._directory = directory
        self._node_id = node_id.hex()
        self._lines = lines
        self._weigh = lines.weigh
        self._wall_us = wall_us
        self._on_error = on_error
        self._segment_us = segment_seconds * MICROSECONDS_PER_SECOND
        self._segment_rows = segment_rows
        self._segment_bytes = segment_bytes if lines.weigh is not None else None
        self._retention_us = retention_days * _US_PER_DAY
        self._retention_bytes = retention_bytes
        self._flush_seconds = flush_seconds
        self._buffer_rows_max = buffer_rows_max
        self._buffer_bytes_max = buffer_bytes_max
        self._waiting: deque[Timed] = deque()
        # Each is written by one thread only; their difference is what waits.
        self._bytes_in = self._bytes_out = 0
        self._segment: _OpenSegment | None = None
        self._segments_begun = 0
        self._in_trouble = False
        self._dropped = self._dropped_reported = self._lost = self._lost_reported = 0
        self._written = self._seals = self._deletions = 0
        self._lost_at = 0.0
        self._lock_fd = _lock(directory, lines.thing)
        self._sealed = deque(_seal_left_overs(directory, lines.thing))
        self._sealed_bytes = sum(sealed.size_bytes for sealed in self._sealed)
        self._files = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=lines.thing, daemon=True)
        self._thread.start()

    def append(self, row: Timed) -> None:
        """Take one row. Never blocks, never raises; a row over the limit is counted instead of kept."""
        waiting = self._waiting
        if len(waiting) >= self._buffer_rows_max or (self._weigh is not None and not self._has_room(self._weigh(row))):
            self._dropped += 1
            return
        waiting.append(row)
        if len(waiting) == _WAKE_ROWS:
            self._wake.set()

    def set_retention(self, days: int, total_bytes: int) -> None:
        """Keep sealed segments for another time or up to another total from the next look on."""
        self._retention_us = days * _US_PER_DAY
        self._retention_bytes = total_bytes

    def flush(self) -> None:
        """Write every row appended so far to the operating system. Blocks; not for the loop's thread."""
        with self._files:
            self._work()
            while self._waiting:
                self._work()

    def close(self) -> None:
        """Write everything, seal the segment, end the thread and release the folder. A second call does nothing."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        self._thread.join()
        self.flush()
        with self._files:
            self._guarded(self._seal)
        os.close(self._lock_fd)

    @property
    def counts(self) -> SegmentCounts:
        """What was done so far."""
        ago_s = round(time.monotonic() - self._lost_at, 1) if self._lost else None
        return SegmentCounts(self._written, self._dropped, self._lost, ago_s, self._seals, self._deletions)

    @property
    def sealed_bytes(self) -> int:
        """Size of the sealed segments that lie in the folder."""
        return self._sealed_bytes

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._flush_seconds)
            self._wake.clear()
            with self._files:
                self._work()
            while self._waiting and not self._closing:
                time.sleep(_PAUSE_S)
                with self._files:
                    self._work()

    def _has_room(self, size_bytes: int) -> bool:
        waiting_bytes = self._bytes_in - self._bytes_out + size_bytes
        if waiting_bytes > self._buffer_bytes_max:
            return False
        self._bytes_in += size_bytes
        if waiting_bytes > self._buffer_bytes_max // 2:
            self._wake.set()
        return True

    def _next_rows(self) -> list[Timed]:
        waiting, weigh = self._waiting, self._weigh
        if weigh is None:
            return [waiting.popleft() for _ in range(min(len(waiting), _STEP_ROWS))]
        rows: list[Timed] = []
        until_bytes = self._bytes_out + _STEP_BYTES
        while waiting and len(rows) < _STEP_ROWS and self._bytes_out < until_bytes:
            rows.append(waiting.popleft())
            self._bytes_out += weigh(rows[-1])
        return rows

    def _work(self) -> None:
        rows = self._next_rows()
        dropped, lost = self._dropped, self._lost
        losses = self._losses(dropped, lost)
        if not rows and not losses:
            self._guarded(self._rotate_by_age)
        elif self._guarded(lambda: self._write(rows, losses)):
            self._dropped_reported, self._lost_reported = dropped, lost
            self._guarded(self._rotate_by_age)
        self._guarded(self._retain)

    def _losses(self, dropped: int, lost: int) -> list[Timed]:
        """Return rows that count the missing rows since the last report."""
        reported = (("buffer_full", dropped - self._dropped_reported), ("disk_error", lost - self._lost_reported))
        return [
            Refused(self._wall_us(), NODE_PROTOCOL, None, f"{self._lines.thing}_{reason}", times)
            for reason, times in reported
            if times
        ]

    def _guarded(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except OSError as error:
            if not self._in_trouble:
                self._in_trouble = True
                self._on_error(error)
            return False
        return True

    def _write(self, given: list[Timed], losses: list[Timed]) -> None:
        rows = given + losses
        done = 0
        try:
            while done < len(rows):
                done += self._write_some(rows[done:])
                if self._segment is not None and self._is_full(self._segment):
                    self._guarded(self._seal)  # what was written is written, whether the last line follows or not
        except Exception as error:
            # Anything: a row that cannot be encoded must not end the thread and the journal with it.
            if len(given) > done:
                self._lost_at = time.monotonic()
                self._lost += len(given) - done
            self._abandon()
            raise OSError(f"{len(given) - done} rows could not be written: {error}") from error
        self._in_trouble = False

    def _is_full(self, segment: "_OpenSegment") -> bool:
        return segment.rows >= self._segment_rows or (
            self._segment_bytes is not None and segment.size_bytes >= self._segment_bytes
        )

    def _write_some(self, waiting: list[Timed]) -> int:
        """Write the first rows that belong into one segment; return how many."""
        segment = self._segment_for(waiting[0])
        room = self._segment_rows - segment.rows
        rows = waiting[:room]
        day = segment.day
        fitting = next((index for index, row in enumerate(rows) if row.ts_us // _US_PER_DAY != day), len(rows))
        segment.write(rows[:fitting])
        self._written += fitting
        return fitting

    def _segment_for(self, row: Timed) -> "_OpenSegment":
        day = row.ts_us // _US_PER_DAY
        if self._segment is not None and self._segment.day != day:
            self._seal()
        if self._segment is None:
            self._segments_begun += 1
            name = SegmentName(self._node_id, row.ts_us, self._segments_begun)
            self._segment = _OpenSegment(self._directory, name, self._lines, self._wall_us())
        return self._segment

    def _rotate_by_age(self) -> None:
        # The wall clock may step back; a segment is then as old as the step is wide.
        if self._segment is not None and abs(self._wall_us() - self._segment.opened_us) >= self._segment_us:
            self._seal()

    def _seal(self) -> None:
        segment, self._segment = self._segment, None
        if segment is None:
            return
        try:
            self._keep(segment.seal(self._wall_us()))
        except OSError:
            self._keep(segment.give_up())
            raise
        self._seals += 1

    def _abandon(self) -> None:
        segment, self._segment = self._segment, None
        kept = segment.abandon() if segment is not None else None
        if kept is not None:
            self._keep(kept)

    def _keep(self, sealed: _Sealed) -> None:
        self._sealed.append(sealed)
        self._sealed_bytes += sealed.size_bytes

    def _retain(self) -> None:
        oldest_us = self._wall_us() - self._retention_us
        while self._sealed and (self._sealed[0].start_us < oldest_us or self._sealed_bytes > self._retention_bytes):
            sealed = self._sealed.popleft()
            self._sealed_bytes -= sealed.size_bytes
            self._deletions += 1
            sealed.path.unlink(missing_ok=True)
            if not any(sealed.path.parent.iterdir()):
                sealed.path.parent.rmdir()


class _OpenSegment:
    """One file that grows."""

    def __init__(self, directory: Path, name: SegmentName, lines: Lines, opened_us: int) -> None:
        self.day = name.start_us // _US_PER_DAY
        self.opened_us = opened_us
        self.rows = 0
        self.size_bytes = 0
        self._name = name
        self._encode = lines.encode
        self._seq = 0
        folder = directory / name.folder
        # Not the folders above: in the place of a home that was moved away they would be in its way back.
        directory.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        self._path = folder / f"{name.text}{OPEN_SUFFIX}"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)
        self._head: list[Timed] = [SegmentOpened(name.start_us, lines.line_format, name.node_id, name.text)]

    def write(self, rows: list[Timed]) -> None:
        """Append rows."""
        self._write_lines(self._head + rows)
        self._head = []
        self.rows += len(rows)

    def seal(self, now_us: int) -> _Sealed:
        """Write the last line and give the file its final name."""
        # The last line keeps to the segment's date, even when it is written after midnight.
        ts_us = now_us if date_of(now_us) == date_of(self._name.start_us) else self._name.start_us
        self._write_lines([SegmentSealed(ts_us, self._seq + 1)])
        os.close(self._fd)
        return _Sealed(self._name.start_us, _rename_sealed(self._path), self.size_bytes)

    def give_up(self) -> _Sealed:
        """Give the file its final name without its last line; readers see it as unsealed."""
        with contextlib.suppress(OSError):  # the descriptor is gone when only the renaming failed
            os.ftruncate(self._fd, self.size_bytes)
            os.close(self._fd)
        return _Sealed(self._name.start_us, _rename_sealed(self._path), self.size_bytes)

    def abandon(self) -> _Sealed | None:
        """Cut off a half-written line and give the file its final name; a file without lines is removed."""
        try:
            os.ftruncate(self._fd, self.size_bytes)
        finally:
            os.close(self._fd)
        if self.size_bytes == 0:
            self._path.unlink()
            return None
        return _Sealed(self._name.start_us, _rename_sealed(self._path), self.size_bytes)

    def _write_lines(self, rows: list[Timed]) -> None:
        data = memoryview(self._encode(rows, self._seq))
        rest = data
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self.size_bytes += len(data)
        self._seq += len(rows)


def _lock(directory: Path, thing: str) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        raise HostError(
            f"cannot keep the {thing} in {directory}: {error.strerror}", exit_code=_STORE_EXIT_CODE
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise HostError(f"another node writes the {thing} in {directory}", exit_code=_STORE_EXIT_CODE) from error
    return fd


def _seal_left_overs(directory: Path, thing: str) -> list[_Sealed]:
    """Rename what a killed node left open; return every sealed segment, oldest first."""
    try:
        for path in sorted(directory.glob(f"*/*{OPEN_SUFFIX}")):
            if parse_name(path.name) is not None:
                _rename_sealed(path)
        found = [(parse_name(path.name), path) for path in directory.glob(f"*/*{SEALED_SUFFIX}")]
        return sorted(_Sealed(name.start_us, path, path.stat().st_size) for name, path in found if name is not None)
    except OSError as error:
        raise HostError(
            f"cannot read the {thing} in {directory}: {error.strerror}", exit_code=_STORE_EXIT_CODE
        ) from error


def _rename_sealed(path: Path) -> Path:
    return path.rename(path.with_name(path.name.removesuffix(OPEN_SUFFIX) + SEALED_SUFFIX))
