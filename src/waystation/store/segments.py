"""The journal on disk: segments written by a thread of their own.

``append`` costs the node's loop one append to a deque. The thread takes what waits once a second, or when many rows
wait; it encodes, writes, rotates by rows, age and UTC date, seals by renaming, and deletes what is older or larger than
the retention allows. What the disk refuses or the buffer cannot hold is counted, and the count becomes a ``refused``
event as soon as one can be written: rows never vanish silently, and a full disk never stops the node.

One writer per folder: it holds a lock on ``.lock`` while it lives, by which readers tell a growing segment from one
that a killed node left behind. Such left-overs are sealed, as they are, by the next writer.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.journal.contract import FORMAT_VERSION, NODE_PROTOCOL
from waystation.journal.events import Event, Refused, SegmentOpened, SegmentSealed
from waystation.journal.segment import (
    OPEN_SUFFIX,
    SEALED_SUFFIX,
    SegmentName,
    date_of,
    encode_lines,
    parse_name,
)

__all__ = ["BUFFER_ROWS_MAX", "LOCK_FILE", "SegmentCounts", "SegmentWriter"]

LOCK_FILE: Final = ".lock"
BUFFER_ROWS_MAX: Final = 200_000
"""Rows that may wait for the thread: about 60 MB, several seconds of the fastest node."""

REASON_BUFFER_FULL: Final = "journal_buffer_full"
REASON_DISK_ERROR: Final = "journal_disk_error"

_WAKE_ROWS: Final = 4_096  # enough that encoding works in bulk, few enough that one flush takes some ten milliseconds
# Encoding holds the interpreter, and the node's loop waits for it at every system call: so a little at a time.
_STEP_ROWS: Final = 128
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
    segments_sealed: int
    segments_deleted: int


class _Sealed(NamedTuple):
    start_us: int
    path: Path
    size_bytes: int


class SegmentWriter:
    """Writes events into segments below one folder."""

    def __init__(
        self,
        directory: Path,
        node_id: bytes,
        *,
        wall_us: Callable[[], int],
        on_error: Callable[[OSError], None],
        segment_seconds: int = 60,
        segment_rows: int = 20_000,
        retention_days: int = 14,
        retention_bytes: int = 1 << 30,
        flush_seconds: float = 1.0,
        buffer_rows_max: int = BUFFER_ROWS_MAX,
    ) -> None:
        """Lock the folder, seal what a killed node left, and start the thread.

        Args:
            directory: Folder of the journal; made if absent.
            node_id: 8 bytes that name this node among others.
            wall_us: Wall clock, microseconds UTC since 1970; called on the writer's thread.
            on_error: Told the first error of each disk trouble, on the writer's thread; the next success ends it.
            segment_seconds: Age at which a segment is sealed.
            segment_rows: Rows after which a segment is sealed; first and last line come on top.
            retention_days: Sealed segments older than this are deleted.
            retention_bytes: The oldest sealed segments beyond this total are deleted.
            flush_seconds: How long a row may wait in memory.
            buffer_rows_max: How many rows may wait in memory.

        Raises:
            HostError: The folder cannot be used, or another writer holds it.
        """
        assert len(node_id) == _NODE_ID_BYTES
        self._directory = directory
        self._node_id = node_id.hex()
        self._wall_us = wall_us
        self._on_error = on_error
        self._segment_us = segment_seconds * MICROSECONDS_PER_SECOND
        self._segment_rows = segment_rows
        self._retention_us = retention_days * _US_PER_DAY
        self._retention_bytes = retention_bytes
        self._flush_seconds = flush_seconds
        self._buffer_rows_max = buffer_rows_max
        self._waiting: deque[Event] = deque()
        self._segment: _OpenSegment | None = None
        self._segments_begun = 0
        self._in_trouble = False
        self._dropped = self._dropped_told = self._lost = self._lost_told = 0
        self._written = self._seals = self._deletions = 0
        self._lock_fd = _lock(directory)
        self._sealed = deque(_seal_left_overs(directory))
        self._sealed_bytes = sum(sealed.size_bytes for sealed in self._sealed)
        self._files = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def append(self, event: Event) -> None:
        """Take one event. Never blocks, never raises; a row over the limit is counted instead of kept."""
        waiting = self._waiting
        if len(waiting) < self._buffer_rows_max:
            waiting.append(event)
            if len(waiting) == _WAKE_ROWS:
                self._wake.set()
        else:
            self._dropped += 1

    def set_retention(self, days: int, total_bytes: int) -> None:
        """Keep sealed segments for another time or up to another total from the next look on."""
        self._retention_us = days * _US_PER_DAY
        self._retention_bytes = total_bytes

    def flush(self) -> None:
        """Write every event appended so far to the operating system. Blocks; not for the loop's thread."""
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
        return SegmentCounts(self._written, self._dropped, self._lost, self._seals, self._deletions)

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

    def _work(self) -> None:
        waiting = self._waiting
        events: list[Event] = [waiting.popleft() for _ in range(min(len(waiting), _STEP_ROWS))]
        dropped, lost = self._dropped, self._lost
        losses = self._losses(dropped, lost)
        if not events and not losses:
            self._guarded(self._rotate_by_age)
        elif self._guarded(lambda: self._write(events, losses)):
            self._dropped_told, self._lost_told = dropped, lost
            self._guarded(self._rotate_by_age)
        self._guarded(self._retain)

    def _losses(self, dropped: int, lost: int) -> list[Event]:
        """Return rows that tell how many rows are missing since the last time it could be told."""
        told = ((REASON_BUFFER_FULL, dropped - self._dropped_told), (REASON_DISK_ERROR, lost - self._lost_told))
        return [Refused(self._wall_us(), NODE_PROTOCOL, None, reason, times) for reason, times in told if times]

    def _guarded(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except OSError as error:
            if not self._in_trouble:
                self._in_trouble = True
                self._on_error(error)
            return False
        return True

    def _write(self, events: list[Event], losses: list[Event]) -> None:
        rows = events + losses
        done = 0
        try:
            while done < len(rows):
                done += self._write_some(rows[done:])
                if self._segment is not None and self._segment.rows >= self._segment_rows:
                    self._guarded(self._seal)  # what was written is written, whether the last line follows or not
        except Exception as error:
            # Anything: a row that cannot be encoded must not end the thread and the journal with it.
            self._lost += max(len(events) - done, 0)
            self._abandon()
            raise OSError(f"{len(events) - done} rows could not be written: {error}") from error
        self._in_trouble = False

    def _write_some(self, events: list[Event]) -> int:
        """Write the first events that belong into one segment; return how many."""
        segment = self._segment_for(events[0])
        room = self._segment_rows - segment.rows
        rows = events[:room]
        day = segment.day
        fitting = next((index for index, event in enumerate(rows) if event.ts_us // _US_PER_DAY != day), len(rows))
        segment.write(rows[:fitting])
        self._written += fitting
        return fitting

    def _segment_for(self, event: Event) -> "_OpenSegment":
        day = event.ts_us // _US_PER_DAY
        if self._segment is not None and self._segment.day != day:
            self._seal()
        if self._segment is None:
            self._segments_begun += 1
            name = SegmentName(self._node_id, event.ts_us, self._segments_begun)
            self._segment = _OpenSegment(self._directory, name, self._wall_us())
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

    def __init__(self, directory: Path, name: SegmentName, opened_us: int) -> None:
        self.day = name.start_us // _US_PER_DAY
        self.opened_us = opened_us
        self.rows = 0
        self._name = name
        self._seq = 0
        folder = directory / name.folder
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{name.text}{OPEN_SUFFIX}"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)
        self._size_bytes = 0
        self._head: list[Event] = [SegmentOpened(name.start_us, FORMAT_VERSION, name.node_id, name.text)]

    def write(self, events: list[Event]) -> None:
        """Write events behind what is there."""
        self._write_lines(self._head + events)
        self._head = []
        self.rows += len(events)

    def seal(self, now_us: int) -> _Sealed:
        """Write the last line and give the file its final name."""
        # The last line keeps to the segment's date, even when it is written after midnight.
        ts_us = now_us if date_of(now_us) == date_of(self._name.start_us) else self._name.start_us
        self._write_lines([SegmentSealed(ts_us, self._seq + 1)])
        os.close(self._fd)
        return _Sealed(self._name.start_us, _rename_sealed(self._path), self._size_bytes)

    def give_up(self) -> _Sealed:
        """Give the file its final name without its last line; readers see it as unsealed."""
        with contextlib.suppress(OSError):  # the descriptor is gone when only the renaming failed
            os.ftruncate(self._fd, self._size_bytes)
            os.close(self._fd)
        return _Sealed(self._name.start_us, _rename_sealed(self._path), self._size_bytes)

    def abandon(self) -> _Sealed | None:
        """Cut off a half-written line and give the file its final name; a file without lines is removed."""
        try:
            os.ftruncate(self._fd, self._size_bytes)
        finally:
            os.close(self._fd)
        if self._size_bytes == 0:
            self._path.unlink()
            return None
        return _Sealed(self._name.start_us, _rename_sealed(self._path), self._size_bytes)

    def _write_lines(self, events: list[Event]) -> None:
        data = memoryview(encode_lines(events, self._seq))
        rest = data
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self._size_bytes += len(data)
        self._seq += len(events)


def _lock(directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        raise HostError(
            f"cannot keep a journal in {directory}: {error.strerror}", exit_code=_STORE_EXIT_CODE
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise HostError(f"another node writes the journal in {directory}", exit_code=_STORE_EXIT_CODE) from error
    return fd


def _seal_left_overs(directory: Path) -> list[_Sealed]:
    """Rename what a killed node left open; return every sealed segment, oldest first."""
    try:
        for path in sorted(directory.glob(f"*/*{OPEN_SUFFIX}")):
            if parse_name(path.name) is not None:
                _rename_sealed(path)
        found = [(parse_name(path.name), path) for path in directory.glob(f"*/*{SEALED_SUFFIX}")]
        return sorted(_Sealed(name.start_us, path, path.stat().st_size) for name, path in found if name is not None)
    except OSError as error:
        raise HostError(
            f"cannot read the journal in {directory}: {error.strerror}", exit_code=_STORE_EXIT_CODE
        ) from error


def _rename_sealed(path: Path) -> Path:
    return path.rename(path.with_name(path.name.removesuffix(OPEN_SUFFIX) + SEALED_SUFFIX))
