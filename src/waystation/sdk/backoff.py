"""Computes the delays between tries: each doubles up to a cap, with jitter that spreads the clients over time.

A try that waited for an answer in vain has done no work at the other side, and the network may be back at any moment:
the next one follows within ``UNANSWERED_S``, whatever the delay is by then (NODE-SILENCE).
"""

import random
from typing import Final

__all__ = ["UNANSWERED_S", "WAITED_S", "Backoff"]

WAITED_S: Final = 5.0
"""A try that failed after so long has got no answer: who refuses or is not there says so at once."""
UNANSWERED_S: Final = 3.0
"""The longest delay after such a try."""


class Backoff:
    """Delays that double up to a cap, with jitter, until ``reset``."""

    def __init__(self, rng: random.Random, *, first_s: float, cap_s: float) -> None:
        """Start with ``first_s`` seconds; never more than ``cap_s``."""
        self._rng = rng
        self._first_s = first_s
        self._cap_s = cap_s
        self._delay_s = first_s

    def reset(self) -> None:
        """Begin with the first delay again."""
        self._delay_s = self._first_s

    def next_s(self, waited_s: float = 0.0) -> float:
        """Return the next delay in seconds: between half and all of the current step.

        Args:
            waited_s: How long the try that failed waited for an answer; 0 for a connection that was there.
        """
        delay_s = self._delay_s
        self._delay_s = min(self._cap_s, 2 * delay_s)
        if waited_s >= WAITED_S:
            delay_s = min(delay_s, UNANSWERED_S)
        return delay_s * self._rng.uniform(0.5, 1.0)
