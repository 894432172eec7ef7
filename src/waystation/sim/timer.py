"""A single timer on the virtual clock that fires once, at the earliest instant requested since it last fired.

Worlds, drivers and BSP hosts keep one for the ``deadline`` of their machine; it calls their ``wake``.
"""

from collections.abc import Callable

from waystation.core.instant import Instant
from waystation.sim.schedule import Schedule

__all__ = ["Timer"]


class Timer:
    """Rings once for the earliest instant that it was set to."""

    def __init__(self, schedule: Schedule, ring: Callable[[], None]) -> None:
        """Make a timer that is not set; ``ring`` is called when it goes off."""
        self._schedule = schedule
        self._ring = ring
        self._set: tuple[Instant, int] | None = None

    def ring_by(self, at: Instant | None) -> None:
        """Ring at ``at`` or earlier; None leaves it as it is."""
        if at is None or (self._set is not None and self._set[0] <= at):
            return
        self.cancel()
        self._set = (at, self._schedule.at(at, self._go_off))

    def ring_after(self, delay_us: int) -> None:
        """Ring after ``delay_us`` microseconds or earlier."""
        self.ring_by(Instant(self._schedule.now + delay_us))

    def cancel(self) -> None:
        """Ring no more."""
        if self._set is not None:
            self._schedule.cancel(self._set[1])
            self._set = None

    def _go_off(self) -> None:
        self._set = None
        self._ring()
