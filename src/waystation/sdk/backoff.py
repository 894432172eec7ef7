"""Computes and waits the delays between tries: each step doubles up to a cap, and chance spreads the clients.

All reconnecting clients and carriers have one. A client is back within ten seconds of the network or the relay
(NODE-BACK): the longest pause is ``CAP_S``, and a dial that hangs meanwhile sends its last SYN three seconds before it
gives up. A delay is drawn from nearly the whole of its step, so a thousand clients that lost one relay at once come
back over seconds, not together.
"""

import asyncio
import random
from typing import Final

__all__ = ["CAP_S", "FIRST_S", "STABLE_S", "Backoff", "Pause"]

FIRST_S: Final = 0.5
"""The first step, seconds."""

CAP_S: Final = 6.0
"""The longest step, seconds; a try costs an absent relay nothing, and one that is there about a millisecond."""

STABLE_S: Final = 5.0
"""A connection that lasted so long begins with the first step again: also one to a relay that lives for seconds."""

_LEAST: Final = 0.5  # of the first step


class Backoff:
    """Delays whose steps double up to a cap, with jitter, until ``reset``."""

    def __init__(self, rng: random.Random, *, first_s: float = FIRST_S, cap_s: float = CAP_S) -> None:
        """Start with ``first_s`` seconds; never more than ``cap_s``."""
        self._rng = rng
        self._first_s = first_s
        self._cap_s = cap_s
        self._step_s = first_s

    def reset(self) -> None:
        """Begin with the first step again."""
        self._step_s = self._first_s

    def next_s(self) -> float:
        """Return the next delay in seconds: between half the first step and all of the current one."""
        step_s = self._step_s
        self._step_s = min(self._cap_s, 2 * step_s)
        return self._rng.uniform(_LEAST * self._first_s, step_s)


class Pause:
    """A wait between two tries, which its owner may end early."""

    def __init__(self) -> None:
        """Begin without a wait."""
        self._over = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Return after so many seconds, or once ``end`` is called; at once if it was called since the last wait."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass
        self._over.clear()

    def end(self) -> None:
        """End the wait, or the next one."""
        self._over.set()
