"""Computes the delays between tries: each doubles up to a cap, with jitter that spreads the clients over time."""

import random

__all__ = ["Backoff"]


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

    def next_s(self) -> float:
        """Return the next delay in seconds: between half and all of the current step."""
        delay_s = self._delay_s
        self._delay_s = min(self._cap_s, 2 * delay_s)
        return delay_s * self._rng.uniform(0.5, 1.0)
