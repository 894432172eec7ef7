"""The carried part of the response cache: answers that devices have brought in their I_AM, and each device's share.

Anybody with a key can bring answers. When the cache is full, the device with the largest share loses its oldest one,
so that nobody loses an answer to somebody who brings more. Shares are compared by their order of magnitude; of equal
ones that of the device that reached it first counts as the larger one.

Spec: Bhumi v2 6.6; BHUMI-L, BHUMI-A2.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from waystation.core.instant import Instant

__all__ = ["CacheEntry", "CacheKey", "CarriedResponses"]

CacheKey = tuple[bytes, bytes]
"""Recipient (32 bytes, or empty when keys are not bound to recipients) and preimage (32 bytes)."""

_ENTRY_BYTES: Final = 256  # about what an entry takes beside its response, so that empty answers weigh something


@dataclass(slots=True, eq=False)
class CacheEntry:
    """One kept answer."""

    key: CacheKey
    response: bytes
    expires_at: Instant
    carrier: bytes | None
    """The identity that uploaded it, or None when it came from an ACK."""


@dataclass(slots=True, eq=False)
class _Share:
    """What one device has brought."""

    entries: OrderedDict[CacheKey, CacheEntry] = field(default_factory=OrderedDict)
    response_bytes: int = 0

    @property
    def level(self) -> int:
        return (self.response_bytes + _ENTRY_BYTES * len(self.entries)).bit_length()


class CarriedResponses:
    """Carried answers by key, and by the device that brought them. Cost: every operation O(1)."""

    def __init__(self) -> None:
        # One lifetime for all makes insertion order expiry order.
        self._entries: OrderedDict[CacheKey, CacheEntry] = OrderedDict()
        self._shares: dict[bytes, _Share] = {}
        self._levels: dict[int, OrderedDict[bytes, _Share]] = {}

    def __len__(self) -> int:
        """Return the number of answers."""
        return len(self._entries)

    def get(self, key: CacheKey) -> CacheEntry | None:
        """Return the answer under a key, or None."""
        return self._entries.get(key)

    def count_of(self, carrier: bytes) -> int:
        """Return how many answers of a device there are."""
        share = self._shares.get(carrier)
        return len(share.entries) if share is not None else 0

    def bytes_of(self, carrier: bytes) -> int:
        """Return the bytes of a device's answers."""
        share = self._shares.get(carrier)
        return share.response_bytes if share is not None else 0

    def add(self, entry: CacheEntry) -> None:
        """Keep an answer; nothing may stand under its key."""
        assert entry.carrier is not None
        share = self._shares.setdefault(entry.carrier, _Share())
        before = share.level
        self._entries[entry.key] = share.entries[entry.key] = entry
        share.response_bytes += len(entry.response)
        self._move(entry.carrier, share, before)

    def remove(self, entry: CacheEntry) -> None:
        """Forget an answer that is here."""
        assert entry.carrier is not None
        share = self._shares[entry.carrier]
        before = share.level
        del self._entries[entry.key], share.entries[entry.key]
        share.response_bytes -= len(entry.response)
        self._move(entry.carrier, share, before)
        if not share.entries:
            del self._shares[entry.carrier]

    def oldest(self) -> CacheEntry | None:
        """Return the answer that expires first, or None."""
        return next(iter(self._entries.values()), None)

    def first_to_leave(self) -> CacheEntry:
        """Return the oldest answer of the device with the largest share; there is one at least."""
        share = next(iter(self._levels[max(self._levels)].values()))
        return next(iter(share.entries.values()))

    def _move(self, carrier: bytes, share: _Share, before: int) -> None:
        """Put a device whose share has changed where it belongs."""
        after = share.level
        if after == before:
            return
        if before:
            del self._levels[before][carrier]
            if not self._levels[before]:
                del self._levels[before]
        if after:
            self._levels.setdefault(after, OrderedDict())[carrier] = share
