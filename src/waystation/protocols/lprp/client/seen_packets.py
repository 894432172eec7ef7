"""Remembers confirmed packets by signature, because a host repeats a packet until it is confirmed.

The client's ``inbox`` asks before it reports a packet. The SDK supplies a durable one (``sdk.lprp.mail``), tests and
the simulator one in memory. Spec: LPRP-D9.
"""

from typing import Final, Protocol

__all__ = ["SEEN_COUNT_MAX", "SeenInMemory", "SeenPackets"]

SEEN_COUNT_MAX: Final = 262_144  # as many as a host remembers, specs/lprp.md 7


class SeenPackets(Protocol):
    """Memory of confirmed packets; a durable one also covers restarts."""

    def has(self, signature: bytes) -> bool:
        """Return whether the packet with this 64-byte signature was added."""

    def add(self, signature: bytes, until_ms: int) -> None:
        """Remember a packet until ``until_ms`` (Unix milliseconds); older than that it is dropped for its time."""


class SeenInMemory:
    """``SeenPackets`` for tests, simulations and clients that keep nothing."""

    __slots__ = ("_count_max", "_until")

    def __init__(self, count_max: int = SEEN_COUNT_MAX) -> None:
        """Start empty; beyond ``count_max`` the one added first is forgotten."""
        self._count_max = count_max
        self._until: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._until)

    def has(self, signature: bytes) -> bool:
        """Return whether the packet was added; see ``SeenPackets.has``."""
        return signature in self._until

    def add(self, signature: bytes, until_ms: int) -> None:
        """Remember a packet; see ``SeenPackets.add``."""
        self._until[signature] = until_ms
        if len(self._until) > self._count_max:
            del self._until[next(iter(self._until))]
