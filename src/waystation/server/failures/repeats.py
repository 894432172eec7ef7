"""Keeps log lines about failures few: one line per minute for each, with how often it came besides.

``FailureLog`` and Strata's dialling ask it with a name and the time; it returns the count to print, or nothing.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant

__all__ = ["KEYS_MAX", "REPEAT_S", "Repeats"]

KEYS_MAX: Final = 1_024
"""Failures that are remembered; the one whose line is oldest is forgotten for a new one."""

REPEAT_S: Final = 60
"""How often a failure that repeats has a line."""


class Repeats:
    """What goes wrong again and again: a line for each thing at most once per period, with how often it came besides.

    Cost: O(1) per occurrence.
    """

    def __init__(self) -> None:
        """Begin with nothing that happened."""
        self._said: OrderedDict[Hashable, tuple[Instant, int]] = OrderedDict()
        """When each thing had its line, and how often it came since."""

    def take(self, key: Hashable, now: Instant) -> int | None:
        """Take one occurrence; return how many came without a line since the last one, None when it gets no line."""
        at, unsaid = self._said.get(key, (None, 0))
        if at is not None and now - at < REPEAT_S * MICROSECONDS_PER_SECOND:
            self._said[key] = at, unsaid + 1
            return None
        if at is None and len(self._said) >= KEYS_MAX:
            self._said.popitem(last=False)
        self._said[key] = now, 0
        self._said.move_to_end(key)
        return unsaid
