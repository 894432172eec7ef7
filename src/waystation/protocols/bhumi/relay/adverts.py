"""The table of adverts: addresses that other relays have signed for themselves, until they expire.

Each advert is stored with its original bytes and expires when its owner's signature says. The caller has already
checked that the address may be dialled or published (``relay_addresses``, BHUMI-PRIVATE).
"""

import random
from typing import NamedTuple

from waystation.core.ids import PublicKey
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.bhumi.extension_messages import RelayAd
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.relay.presences import Standing
from waystation.protocols.bhumi.signed_records import expires_at_s

__all__ = ["AdvertTable", "KnownAdvert"]


class KnownAdvert(NamedTuple):
    """One relay that says where it is."""

    advert: RelayAd
    tagged: bytes
    """The record as it came, its tag included."""
    ends_at_s: int
    """Unix seconds."""


class AdvertTable:
    """All adverts of other relays that one relay knows.

    Cost: O(1), O(entries) when it is listed; ``keep`` and ``sweep`` may make the next look at the ends cost as much.
    Nothing else does, because whoever sends adverts pays for no more than ``keep``, by a signature.
    """

    def __init__(self, own_key: PublicKey, limits: InForce[BhumiLimits]) -> None:
        """Make an empty table; adverts under ``own_key`` are never news."""
        self._own_key = own_key
        # Adverts cost their owner one signature; the table is bounded whatever is signed.
        self._limits = limits
        self._by_relay: dict[PublicKey, KnownAdvert] = {}
        self._next_end_s: int | None = None
        """The earliest end of all, None when it has to be looked for."""

    def __len__(self) -> int:
        """Return the number of entries, those that have ended but are not swept included."""
        return len(self._by_relay)

    def standing(self, advert: RelayAd, now_s: int) -> Standing:
        """Return what would become of an advert; its times must be in order, its signature is not looked at."""
        held = self._by_relay.get(advert.relay_id)
        if advert.relay_id == self._own_key:
            return Standing.KNOWN
        if held is not None and held.ends_at_s > now_s:
            return Standing.NEW if advert.issued_at_s > held.advert.issued_at_s else Standing.KNOWN
        if held is None and len(self._by_relay) >= self._limits.now.neighbours:
            soonest = self.next_end_s()
            assert soonest is not None
            return Standing.NEW if soonest < expires_at_s(advert) else Standing.FULL
        return Standing.NEW

    def keep(self, advert: RelayAd, tagged: bytes) -> None:
        """Keep an advert whose ``standing`` is NEW and whose signature is right."""
        self._drop(advert.relay_id)
        for _ in range(surplus(len(self._by_relay) + 1, self._limits.now.neighbours)):
            self._drop(min(self._by_relay.values(), key=lambda other: other.ends_at_s).advert.relay_id)
        ends_at_s = expires_at_s(advert)
        self._by_relay[advert.relay_id] = KnownAdvert(advert, tagged, ends_at_s)
        if self._next_end_s is not None:
            self._next_end_s = min(self._next_end_s, ends_at_s)

    def live(self, now_s: int) -> list[KnownAdvert]:
        """Return the adverts that have not ended, in the order in which their relays came."""
        return [neighbour for neighbour in self._by_relay.values() if neighbour.ends_at_s > now_s]

    def address_of(self, relay_id: PublicKey, now_s: int) -> str:
        """Return where a relay says that it is, empty when nobody knows."""
        held = self._by_relay.get(relay_id)
        return held.advert.address if held is not None and held.ends_at_s > now_s else ""

    def holds(self, advert: RelayAd, tagged: bytes, now_s: int) -> bool:
        """Return whether this very record stands and has not ended."""
        held = self._by_relay.get(advert.relay_id)
        return held is not None and held.tagged == tagged and held.ends_at_s > now_s

    def sample(self, rng: random.Random, count: int, now_s: int) -> list[KnownAdvert]:
        """Return at most so many that have not ended, drawn at random."""
        live = self.live(now_s)
        return live if len(live) <= count else rng.sample(live, count)

    def sweep(self, now_s: int) -> None:
        """Forget what has ended."""
        self._by_relay = {key: each for key, each in self._by_relay.items() if each.ends_at_s > now_s}
        self._next_end_s = None

    def next_end_s(self) -> int | None:
        """Return the second in which an entry ends next, None for an empty table."""
        if self._next_end_s is None:
            self._next_end_s = min((each.ends_at_s for each in self._by_relay.values()), default=None)
        return self._next_end_s

    def _drop(self, relay_id: PublicKey) -> None:
        leaving = self._by_relay.pop(relay_id, None)
        if leaving is not None and leaving.ends_at_s == self._next_end_s:
            self._next_end_s = None
