"""Keeps log lines few: about what peers cause one line per burst, about failures one line per minute and a count."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket

__all__ = ["KEYS_MAX", "LINES_PER_MINUTE", "QUIET_S", "REPEAT_S", "Bursts", "Repeats"]

QUIET_S: Final = 600
"""A thing that did not happen for so long begins a new burst."""

KEYS_MAX: Final = 1_024
"""Things that are remembered; the one that happened longest ago is forgotten for a new one."""

LINES_PER_MINUTE: Final = 30
"""Over all things, since a peer can invent as many as it likes."""

REPEAT_S: Final = 60
"""How often a failure that repeats has a line."""

_MINUTE_S: Final = 60


class Bursts:
    """What happened lately, by key. Cost: O(1) per occurrence."""

    def __init__(self, now: Instant) -> None:
        """Begin with nothing that happened."""
        self._last: OrderedDict[Hashable, Instant] = OrderedDict()
        self._lines = TokenBucket(LINES_PER_MINUTE, LINES_PER_MINUTE, now, period_s=_MINUTE_S)

    def begins(self, key: Hashable, now: Instant) -> bool:
        """Take one occurrence; return whether it deserves a line: the first of its burst, within the rate."""
        last = self._last.get(key)
        if last is None or now - last >= QUIET_S * MICROSECONDS_PER_SECOND:
            if not self._lines.take(now):
                return False  # not remembered: its next occurrence may get the line
            if last is None and len(self._last) >= KEYS_MAX:
                self._last.popitem(last=False)
            last = None
        self._last[key] = now
        self._last.move_to_end(key)
        return last is None


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
