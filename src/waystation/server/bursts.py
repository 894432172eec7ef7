"""Limits log lines about what peers cause: one per burst of the same thing, and a rate over all of them.

The refusal log, the admin port's log of wrong tokens and the log of proxy faults ask ``begins`` with a key and the
time; True means to write the line. So a peer cannot fill the log.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket

__all__ = ["KEYS_MAX", "LINES_PER_MINUTE", "QUIET_S", "Bursts"]

QUIET_S: Final = 600
"""A thing that did not happen for so long begins a new burst."""

KEYS_MAX: Final = 1_024
"""Things that are remembered; the one that happened longest ago is forgotten for a new one."""

LINES_PER_MINUTE: Final = 30
"""Over all things, since a peer can invent as many as it likes."""

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
