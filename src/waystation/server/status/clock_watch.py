"""Notices a wall clock that steps, and hands it to every part of the node that compares times of day (NODE-STEPPED).

``NodeServer`` runs it. It also says in the log for how long the process stood still.

The monotonic clock cannot be set, so the difference of the two clocks changes only by a step, or slowly while a time
service corrects it. ``look`` compares once a second, and ``wall_us`` whenever the hub asks for the time of day anyway.
"""

import asyncio
import datetime
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND, Instant
from waystation.core.machine import Clocked

__all__ = ["LOOK_S", "STEP_MS", "STILL_S", "TROUBLE_S", "ClockView", "ClockWatch"]

LOOK_S: Final = 1.0
"""Between two looks, seconds."""

STEP_MS: Final = 500
"""A change of the difference by so much between two looks is a step; a time service moves it by 0.5 ms a second."""

STILL_S: Final = 2.0
"""A wait that takes so much longer, seconds, has a line in the log."""

TROUBLE_S: Final = 60
"""A clock that is so far from where the one at the start would be now is trouble; protocols allow five minutes."""

_BRIEF_US: Final = 20 * MICROSECONDS_PER_MS  # both clocks are read within this, or they are read again
_READS_MAX: Final = 5
_STEP_US: Final = STEP_MS * MICROSECONDS_PER_MS

_log = structlog.get_logger("waystation.server")


class ClockView(NamedTuple):
    """What the status has about the clock."""

    steps: int
    """Since the start."""
    shift_s: float
    """How far the wall clock is ahead of where the one at the start would be now; negative: behind."""


class ClockWatch:
    """The wall clock of one node."""

    def __init__(
        self,
        parts: Sequence[Clocked],
        monotonic: Callable[[], Instant],
        wall: Callable[[], int] = lambda: time.time_ns() // 1_000,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        """Hand the time of day to ``parts`` and be ready to ``watch``.

        Args:
            parts: Get the time of day now, at each look and at each step.
            monotonic: Microseconds.
            wall: Microseconds UTC.
            on_step: Called after ``parts`` have the new time.
        """
        self._parts = parts
        self._monotonic = monotonic
        self._wall = wall
        self.on_step = on_step
        self._steps = 0
        now, wall_us = self._read()
        self._began_us = self._offset_us = wall_us - now
        self._hand_out(now, wall_us)

    async def watch(self) -> None:
        """Look every ``LOOK_S``, for ever."""
        while True:
            began = self._monotonic()
            await asyncio.sleep(LOOK_S)
            self.note_stop(began)
            self.look()

    def note_stop(self, began: Instant) -> None:
        """Say in the log that the wait of ``LOOK_S`` since ``began`` was longer by ``STILL_S`` or more."""
        still_s = (self._monotonic() - began) / MICROSECONDS_PER_SECOND - LOOK_S
        if still_s >= STILL_S:
            why = "its process was stopped, or the machine did not let it run"
            _log.warning("node.stood_still", seconds=round(still_s, 1), why=why)

    def wall_us(self, now: Instant) -> int:
        """Return the time of day, microseconds UTC; a step since the last look is noticed before it returns.

        Args:
            now: Monotonic time of the turn; a few milliseconds old.
        """
        wall_us = self._wall()
        if abs(wall_us - now - self._offset_us) < _STEP_US:
            return wall_us
        self.look()  # a turn may have taken long, so both clocks are read anew
        return self._wall()

    def look(self) -> None:
        """Compare the clocks, and hand the time of day to every part."""
        now, wall_us = self._read()
        before_us, self._offset_us = self._offset_us, wall_us - now
        self._hand_out(now, wall_us)
        stepped_us = self._offset_us - before_us
        if abs(stepped_us) < _STEP_US:
            return
        self._steps += 1
        _log.warning(
            "clock.stepped",
            by_s=round(stepped_us / MICROSECONDS_PER_SECOND, 3),
            before=_shown(now + before_us),
            after=_shown(wall_us),
            shift_s=self.view().shift_s,
        )
        self.on_step()

    def view(self) -> ClockView:
        """Return what is known of the clock."""
        return ClockView(self._steps, round((self._offset_us - self._began_us) / MICROSECONDS_PER_SECOND, 3))

    def trouble(self) -> list[str]:
        """Return a sentence while the clock is not where the one at the start would be, else nothing."""
        shift_s = self.view().shift_s
        if abs(shift_s) < TROUBLE_S:
            return []
        way = "ahead of" if shift_s > 0 else "behind"
        where = f"it is {abs(shift_s):.0f} s {way} the clock at the start"
        return [f"the clock was set while the node ran: {where}; set it right, or restart the node if it is right now"]

    def _read(self) -> tuple[Instant, int]:
        """Return both clocks as of one moment: a process that is stopped between two readings sees no step."""
        for _ in range(_READS_MAX):
            now, wall_us = self._monotonic(), self._wall()
            if self._monotonic() - now < _BRIEF_US:
                break
        return now, wall_us

    def _hand_out(self, now: Instant, wall_us: int) -> None:
        for part in self._parts:
            part.set_wall(now, wall_us)


def _shown(wall_us: int) -> str:
    """Return a time of day as log lines have it; the clock may say anything."""
    try:
        at = datetime.datetime.fromtimestamp(wall_us / MICROSECONDS_PER_SECOND, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{wall_us // MICROSECONDS_PER_SECOND} s"
    return at.isoformat(timespec="milliseconds")
