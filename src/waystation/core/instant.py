"""Monotonic time as an integer that the caller passes in.

Every input of a machine has one as ``now``; the server reads it from ``server.hub.monotonic_now``, the simulator from
its virtual clock. An ``Instant`` counts microseconds from an arbitrary zero, so only differences have a meaning.
Milliseconds would be too coarse: one relayed exchange takes less than a millisecond.
"""

from typing import Final, NewType

Instant = NewType("Instant", int)
"""Microseconds on a monotonic clock; only differences have a meaning."""

MICROSECONDS_PER_MS: Final = 1_000
MICROSECONDS_PER_SECOND: Final = 1_000_000


def after_ms(now: Instant, duration_ms: int) -> Instant:
    """Return the instant ``duration_ms`` milliseconds after ``now``."""
    return Instant(now + duration_ms * MICROSECONDS_PER_MS)
