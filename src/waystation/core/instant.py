"""Time as pure code sees it: an integer that somebody hands in.

An ``Instant`` counts microseconds on a monotonic clock whose zero means nothing. Microseconds, not
milliseconds, because one relayed exchange takes less than a millisecond and its latency is recorded.
"""

from typing import Final, NewType

Instant = NewType("Instant", int)
"""Microseconds on a monotonic clock; only differences have a meaning."""

MICROSECONDS_PER_MS: Final = 1_000
MICROSECONDS_PER_SECOND: Final = 1_000_000


def after_ms(now: Instant, duration_ms: int) -> Instant:
    """Return the instant ``duration_ms`` milliseconds after ``now``."""
    return Instant(now + duration_ms * MICROSECONDS_PER_MS)
