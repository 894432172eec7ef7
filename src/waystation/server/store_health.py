"""Whether the store takes writes: its fault, since when, and what is refused meanwhile (NODE-REFUSED).

``server.commit`` begins and ends a fault here and asks before each write. A fault begins with a write that the store
refused, or with less free space than the floor. It ends when a probe was written. Both are one line in the log.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from waystation.core.errors import HostError, StoreFault, StoreFaultKind
from waystation.core.packets import PutPacket
from waystation.core.records import Change, Record

__all__ = ["StoreHealth"]

SAID_EVERY_S: Final = 60.0
SPACE_EVERY_S: Final = 60.0
SPACE_SEEN_S: Final = 600.0  # after less than this nothing is said of the pace
_SPACES_MAX: Final = 1_440  # a day
_DAY_S: Final = 86_400
_MIB: Final = 1_048_576

_log = structlog.get_logger("waystation.server")


class StoreHealth:
    """The fault of one store, if it has one."""

    def __init__(
        self,
        free_bytes: Callable[[], int] | None = None,
        free_mib_least: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin without a fault.

        Args:
            free_bytes: Returns the free bytes of the store's file system, or raises HostError; None for no disk.
            free_mib_least: Below this, changes that store something new are refused; 0 for no floor.
            clock: Unix seconds.
        """
        self._free_bytes = free_bytes
        self.free_mib_least = free_mib_least
        self._clock = clock
        self._is_floor = False
        self._noted: deque[tuple[float, int]] = deque(maxlen=_SPACES_MAX)
        """Unix seconds and free bytes."""
        self.fault: StoreFault | None = None
        self._last_kind: StoreFaultKind | None = None
        self._logged_s = 0.0
        self._is_logged = self._is_silent = False
        """Whether this fault has its line, and whether it has none because it is the last one that came back."""
        self.since = 0.0
        """When the fault began, Unix seconds."""

    def refuses(self, changes: Sequence[Change]) -> bool:
        """Return whether these changes are refused without being tried."""
        if self.fault is None:
            return False
        # Below the floor there still is room for what frees some.
        return not self._is_floor or any(map(_stores_something, changes))

    def look(self) -> StoreFault | None:
        """Return the fault of a disk with less free space than the floor, None when there is enough or none to see."""
        if self._free_bytes is None or not self.free_mib_least:
            return None
        try:
            free = self._free_bytes()
        except HostError:
            return None  # the next write says what is wrong
        if free >= self.free_mib_least * _MIB:
            return None
        left = f"only {free // _MIB} MiB are free on the disk of the home"
        return _FloorFault(f"{left}, and store.free_mib_least keeps {self.free_mib_least}", StoreFaultKind.FULL)

    def begin(self, fault: StoreFault) -> None:
        """Note that the store does not take writes, or why it still does not."""
        if self.fault is None:
            self.since = self._clock()
            # A disk may take every other write: one that comes back has a line a minute.
            self._is_logged = fault.kind is self._last_kind and self.since - self._logged_s < SAID_EVERY_S
            self._is_silent = self._is_logged
        if not self._is_logged or fault.kind is not self._last_kind:
            _log.error("store.failed", kind=fault.kind.value, error=str(fault))
            self._is_silent, self._logged_s = False, self._clock()
        self._is_logged, self._last_kind = True, fault.kind
        self.fault, self._is_floor = fault, isinstance(fault, _FloorFault)

    def end(self) -> None:
        """Note that the store takes writes."""
        if self.fault is not None and not self._is_silent:
            kind, lasted_s = self.fault.kind.value, max(0.0, self._clock() - self.since)
            _log.warning("store.recovered", kind=kind, seconds=round(lasted_s, 1))
        self.fault, self._is_floor = None, False

    def note_space(self) -> None:
        """Note how much is free, so that ``space`` knows how fast it shrinks; once a second is often enough."""
        now_s = self._clock()
        if self._free_bytes is None or (self._noted and now_s - self._noted[-1][0] < SPACE_EVERY_S):
            return
        with contextlib.suppress(HostError):
            self._noted.append((now_s, self._free_bytes()))

    def space(self) -> dict[str, float | None]:
        """Return the free bytes at the last look, and for how many days they last at the pace of the last day.

        None for what is not known: there is no disk, or too little was seen, or nothing grows.
        """
        if not self._noted:
            return {"free_bytes": None, "days_left": None}
        (since_s, before), (now_s, free) = self._noted[0], self._noted[-1]
        lost, lasted_s = before - free, now_s - since_s
        grows = lost > 0 and lasted_s >= SPACE_SEEN_S
        return {"free_bytes": free, "days_left": round(free / lost * lasted_s / _DAY_S, 2) if grows else None}

    def view(self) -> dict[str, Any] | None:
        """Return the fault for an operator: kind, cause, and Unix seconds of its beginning; None without one."""
        if self.fault is None:
            return None
        return {"kind": self.fault.kind.value, "error": str(self.fault), "since": self.since}


class _FloorFault(StoreFault):
    """There is room, but less than the operator keeps free."""


def _stores_something(change: Change) -> bool:
    return isinstance(change, PutPacket) or (isinstance(change, Record) and change.value is not None)
