"""Where a Bhumi device goes next, and what it says of where it is: decisions without I/O."""

import random
from collections.abc import Callable, Sequence
from typing import Final

from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import Presence
from waystation.protocols.bhumi.signed_records import PRESENCE_TTL_MAX_S, sign_presence
from waystation.sdk.bhumi_relay_book import RelayBook, Source
from waystation.transport.dial import RelayUrl

__all__ = ["PRESENCE_EVERY_S", "PRESENCE_TTL_S", "Presences", "RelayChoice"]

PRESENCE_TTL_S: Final = PRESENCE_TTL_MAX_S
PRESENCE_EVERY_S: Final = 240.0  # BHUMI-FINDABLE: twice within the 600 s that one is good for


class RelayChoice:
    """The relays of one device: those that were named, in their order, then those of its book."""

    def __init__(
        self,
        named: Sequence[RelayUrl],
        book: RelayBook | None,
        score: Callable[[str], float],
        rng: random.Random,
    ) -> None:
        """Describe what there is to choose from.

        Args:
            named: Preferred to every other relay, the first one most.
            book: Further ones, in the order that it gives (the local network first); None for none.
            score: See ``RelayBook.order``.
            rng: See ``RelayBook.order``.
        """
        self._named = list(dict.fromkeys(named))
        self._book = book
        self._score = score
        self._rng = rng
        self._passed: set[RelayUrl] = set()

    def next(self) -> RelayUrl | None:
        """Return the best relay that has not failed since another one worked; None when none is known at all."""
        known = self._ordered()
        fresh = [relay for relay in known if relay not in self._passed]
        if not fresh:
            self._passed.clear()
            fresh = known
        return fresh[0] if fresh else None

    @property
    def has_others(self) -> bool:
        """Whether a relay is left that has not failed since another one worked."""
        return bool(self._passed) and any(relay not in self._passed for relay in self._ordered())

    def worked(self) -> None:
        """Note that a relay has taken us: every other one is worth a try again once it is gone."""
        self._passed.clear()

    def passed(self, relay: RelayUrl) -> None:
        """Note that a relay failed, or has gone: the others come first now."""
        self._passed.add(relay)

    def is_hearsay(self, relay: RelayUrl) -> bool:
        """Return whether nobody but others names a relay, see ``RelayBook.is_hearsay``."""
        return self._book is not None and relay not in self._named and self._book.is_hearsay(str(relay))

    def advertised_id(self, relay: RelayUrl) -> PublicKey | None:
        """Return the key of a relay that is known by its own advert and by nothing weightier.

        A relay that the user named may change its key, and who advertises its address proves nothing about it.
        """
        if self._book is None or relay in self._named:
            return None
        found = (entry for entry in self._book.entries() if entry.address == str(relay))
        return next((entry.relay_id for entry in found if entry.source is Source.ADVERT), None)

    def probable_id(self, relay: RelayUrl) -> PublicKey | None:
        """Return the key that the book has for a relay, proved or claimed; None when it has none."""
        if self._book is None:
            return None
        return next((entry.relay_id for entry in self._book.entries() if entry.address == str(relay)), None)

    def _ordered(self) -> list[RelayUrl]:
        if self._book is None:
            return self._named
        found = (RelayUrl.parse(entry.address) for entry in self._book.order(self._score, self._rng))
        return [*self._named, *(relay for relay in found if relay not in self._named)]


class Presences:
    """Signs where a device is, each time with a later date, so that the newest one is always the last one."""

    def __init__(self, key_pair: KeyPair, clock: Callable[[], float]) -> None:
        """Describe who signs; ``clock`` gives Unix seconds."""
        self._key_pair = key_pair
        self._clock = clock
        self._issued_s = 0

    def sign(self, relay_id: PublicKey) -> Presence:
        """Return the presence at a relay from now on."""
        self._issued_s = max(int(self._clock()), self._issued_s + 1)
        return sign_presence(self._key_pair, relay_id, self._issued_s, PRESENCE_TTL_S)
