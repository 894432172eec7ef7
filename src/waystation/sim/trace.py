"""The trace of a run: one text line per event, and a SHA-256 hash over all lines.

``sim.run`` makes it; worlds and scenarios write the lines. Two runs of one seed must produce the same hash on every
machine and with every ``PYTHONHASHSEED``. A difference means that the code depends on a clock, an entropy source, or
the iteration order of a set.
"""

import hashlib
import zlib
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant

__all__ = ["Named", "Notes", "Trace", "canonical"]

LINES_KEPT: Final = 40
_BATCH_LINES: Final = 512
_SHOWN_BYTES: Final = 8


class Notes(Protocol):
    """Takes lines; a ``Trace``, or a part of one."""

    def note(self, now: Instant, text: str) -> None:
        """Add one line about the instant ``now``."""


class Trace:
    """Gathers lines; remembers their hash and the last few of them."""

    def __init__(self, sink: Callable[[str], None] | None = None) -> None:
        """Begin an empty trace; ``sink`` gets every line without its newline."""
        self._hash = hashlib.sha256()
        self._batch: list[str] = []
        self._last: deque[str] = deque(maxlen=LINES_KEPT)
        self._sink = sink

    def note(self, now: Instant, text: str) -> None:
        """Add one line about the instant ``now``."""
        seconds, micros = divmod(now, MICROSECONDS_PER_SECOND)
        line = f"{seconds}.{micros:06d} {text}"
        self._last.append(line)
        self._batch.append(line)
        if len(self._batch) >= _BATCH_LINES:
            self._absorb()
        if self._sink is not None:
            self._sink(line)

    def hash_hex(self) -> str:
        """Return the SHA-256 over all lines so far, each ended by a newline."""
        self._absorb()
        return self._hash.hexdigest()

    def last_lines(self) -> tuple[str, ...]:
        """Return the last 40 lines, oldest first."""
        return tuple(self._last)

    def _absorb(self) -> None:
        if self._batch:
            self._batch.append("")
            self._hash.update("\n".join(self._batch).encode())
            self._batch.clear()


class Named:
    """A part of a trace: every line of it begins with a name, so that two nodes can be distinguished."""

    def __init__(self, trace: Trace, name: str) -> None:
        """Write into ``trace`` under ``name``."""
        self._trace = trace
        self._name = name

    def note(self, now: Instant, text: str) -> None:
        """Add one line about the instant ``now``."""
        self._trace.note(now, f"{self._name} {text}")


def canonical(happening: tuple[Any, ...], shown: tuple[Any, ...] | None = None) -> str:
    """Return one line for a named tuple: its class and fields, or what is ``shown`` instead of these.

    Long bytes are shown as their first 8, their length and their checksum, tuples of bytes as their number and what
    they are when joined.
    """
    return " ".join([type(happening).__name__, *map(_show, happening if shown is None else shown)])


def _show(value: Any) -> str:
    kind = type(value)
    if kind is int or kind is str or kind is bool:
        return str(value)
    if isinstance(value, bytes):
        if len(value) <= _SHOWN_BYTES:
            return value.hex() or "-"
        return f"{value[:_SHOWN_BYTES].hex()}..{len(value)}/{zlib.crc32(value):08x}"
    if isinstance(value, Enum):
        return value.name
    if kind is dict:
        return "{" + " ".join(f"{key}={_show(value[key])}" for key in sorted(value)) + "}"
    if kind is tuple:
        return f"{len(value)}*{_show(b''.join(value))}"
    return str(value)
