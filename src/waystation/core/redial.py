"""Computes how long a node waits before it dials another node again: doubling, with jitter of one half.

Bhumi's and MERK's links, BSP's dials and Strata's upstreams call it after each failure, with the number of failures so
far; it returns milliseconds. Jitter keeps nodes from dialling a restarted one all at once. An address of the operator
that could not be reached is tried every ``UNREACHED_MS_MAX`` at least, because the network may be back at any moment
(NODE-REDIAL). A peer that was reached and ended the connection has its protocol's own limit.
"""

import random
from typing import Final

__all__ = ["UNREACHED_MS_MAX", "redial_wait_ms"]

UNREACHED_MS_MAX: Final = 6_000
"""As for clients (NODE-BACK): a dial that hangs sends its last SYN 3 s before it ends, so links return within 10 s."""
_DOUBLINGS_MAX: Final = 16  # keeps the shift small


def redial_wait_ms(failures_count: int, rng: random.Random, *, first_ms: int, longest_ms: int) -> int:
    """Return the wait after so many failures before this one: between half the step and all of it.

    Args:
        failures_count: At least 0.
        rng: Draws the jitter, so that the peers of one dead node do not dial it in step.
        first_ms: The first step; each next one is twice as long.
        longest_ms: The longest step.
    """
    step_ms = min(first_ms << min(failures_count, _DOUBLINGS_MAX), longest_ms)
    return step_ms // 2 + rng.randrange(step_ms // 2 + 1)
