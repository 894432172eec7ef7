"""Computes how long a rate-limited client waits: at least ``retry_after``, with a limited number of tries.

The client machine and ``publishing`` call it when a relay answers RATE_LIMITED. Chance is added, so that clients
refused together do not return together.

Spec: RFC-0004 6.1; specs/strata.md 14.
"""

import random
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant

__all__ = ["LIMIT_RETRIES_MAX", "RETRY_AFTER_MAX_S", "limited_until"]

LIMIT_RETRIES_MAX: Final = 8
"""How often one request is sent again, ours; then the limit counts as a refusal."""
RETRY_AFTER_MAX_S: Final = 3_600
"""Longest wait that is honoured, ours; a relay that asks for more gets one more try after this."""


def limited_until(rng: random.Random, retry_after_s: int | None, now: Instant) -> tuple[int, Instant]:
    """Return how many seconds the relay wants us to wait, and until when we do: up to a quarter longer."""
    wanted_s = min(max(retry_after_s or 1, 1), RETRY_AFTER_MAX_S)
    wait_us = wanted_s * MICROSECONDS_PER_SECOND
    # Spec 11: wait that long and 0 to 25 % more.
    return wanted_s, Instant(now + wait_us + rng.randrange(wait_us // 4 + 1))
