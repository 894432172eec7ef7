"""Limits as small objects that a test can hold in one hand."""

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant

__all__ = ["TokenBucket"]


class TokenBucket:
    """Allows ``rate_per_second`` on average and ``burst`` at once; integer arithmetic only.

    The level is kept in millionths of a token, so that a microsecond adds exactly ``rate_per_second`` of them and
    replays give equal results on every machine.
    """

    __slots__ = ("_burst", "_level", "_rate", "_seen_at")

    def __init__(self, rate_per_second: int, burst: int, now: Instant) -> None:
        assert rate_per_second > 0
        assert burst > 0
        self._rate = rate_per_second
        self._burst = burst * MICROSECONDS_PER_SECOND
        self._level = self._burst
        self._seen_at = now

    def take(self, now: Instant) -> bool:
        """Spend one token if there is one."""
        self.refill(now)
        if self._level < MICROSECONDS_PER_SECOND:
            return False
        self._level -= MICROSECONDS_PER_SECOND
        return True

    def refill(self, now: Instant) -> None:
        """Add what came in since the last look."""
        level = self._level + (now - self._seen_at) * self._rate
        self._level = level if level < self._burst else self._burst
        self._seen_at = now

    def ready(self) -> bool:
        """Return whether there is a token, as of the last look."""
        return self._level >= MICROSECONDS_PER_SECOND

    def ready_at(self) -> Instant:
        """Return the first instant at which ``take`` can succeed, counted from the last look."""
        missing = MICROSECONDS_PER_SECOND - self._level
        if missing <= 0:
            return self._seen_at
        return Instant(self._seen_at + -(-missing // self._rate))
