"""Token bucket for rate limits, and the number of entries that a full table must drop.

Relays keep a ``TokenBucket`` for each peer: ``take`` gets the time and returns whether the act is within the rate. Its
arithmetic is exact integers, so that a simulated run and its replay decide alike.
"""

from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant

__all__ = ["TokenBucket", "surplus"]

_DROPPED_AT_ONCE_MAX: Final = 2


def surplus(count: int, count_max: int) -> int:
    """Return how many entries a table of ``count`` must drop now: none, one, or two after its limit was lowered.

    Two go for each that comes, so that the table shrinks to a lower limit, and no single addition takes long.
    """
    return min(max(0, count - count_max), _DROPPED_AT_ONCE_MAX)


class TokenBucket:
    """Allows ``rate`` tokens per period on average and ``burst`` at once; integer arithmetic only.

    The level is kept in such small parts of a token that a microsecond adds exactly ``rate`` of them, and replays
    give equal results on every machine.
    """

    __slots__ = ("_burst", "_level", "_rate", "_seen_at", "_token")

    def __init__(self, rate: int, burst: int, now: Instant, *, period_s: int = 1) -> None:
        assert rate > 0
        assert burst > 0
        assert period_s > 0
        self._rate = rate
        self._token = period_s * MICROSECONDS_PER_SECOND
        self._burst = burst * self._token
        self._level = self._burst
        self._seen_at = now

    def take(self, now: Instant, count: int = 1) -> bool:
        """Spend ``count`` tokens if they are there."""
        self.refill(now)
        if self._level < count * self._token:
            return False
        self._level -= count * self._token
        return True

    def refill(self, now: Instant) -> None:
        """Add what came in since the last look."""
        level = self._level + (now - self._seen_at) * self._rate
        self._level = level if level < self._burst else self._burst
        self._seen_at = now

    def change(self, rate: int, burst: int) -> None:
        """Allow ``rate`` per period and ``burst`` at once from now on; what is left stays, up to the new burst."""
        assert rate > 0
        assert burst > 0
        self._rate = rate
        self._burst = burst * self._token

    def ready(self) -> bool:
        """Return whether there is a token, as of the last look."""
        return self._level >= self._token

    @property
    def left(self) -> int:
        """Whole tokens as of the last look."""
        return self._level // self._token

    def ready_at(self, count: int = 1) -> Instant:
        """Return the first instant at which ``take`` of so many can succeed, counted from the last look."""
        missing = count * self._token - self._level
        if missing <= 0:
            return self._seen_at
        return Instant(self._seen_at + -(-missing // self._rate))
