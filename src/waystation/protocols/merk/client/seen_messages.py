"""Detects repeated messages by sender and payload hash, for ten minutes.

The client machine asks for every message that passed its checks. This protocol's signatures cover no time, so any relay
could deliver a frame again. Spec: specs/merk.md 8.
"""

from collections import OrderedDict
from typing import Final

from waystation.core.instant import Instant, after_ms

__all__ = ["SEEN_COUNT_MAX", "SEEN_MS", "SeenMessages"]

SEEN_MS: Final = 600_000  # specs/merk.md 8: dedupe for ten minutes
SEEN_COUNT_MAX: Final = 65_536  # ours: two minutes of 500 frames a second, the most a relay takes of one sender


class SeenMessages:
    """Remembers fingerprints for ten minutes; share one between the connections of an identity."""

    __slots__ = ("_count_max", "_until")

    def __init__(self, count_max: int = SEEN_COUNT_MAX) -> None:
        """Start empty; beyond ``count_max`` the oldest are forgotten."""
        self._count_max = count_max
        self._until: OrderedDict[tuple[bytes, bytes], Instant] = OrderedDict()

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._until)

    def is_new(self, fingerprint: tuple[bytes, bytes], now: Instant) -> bool:
        """Remember a message, sender and hash of its payload, and return whether it is the first of its kind."""
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        if fingerprint in self._until:
            return False
        self._until[fingerprint] = after_ms(now, SEEN_MS)
        if len(self._until) > self._count_max:
            self._until.popitem(last=False)
        return True
