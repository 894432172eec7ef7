"""Chooses the next relay of a Bhumi participant, keeps what is observed of it, and signs a device's presence there."""

import random
from collections.abc import Callable, Iterable
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import Presence
from waystation.protocols.bhumi.signed_records import PRESENCE_TTL_MAX_S, sign_presence
from waystation.sdk.bhumi.quality import RelayQuality, neutral_score
from waystation.sdk.bhumi.relay_book import RelayBook, RelayEntry, Source
from waystation.transport.dial import RelayUrl

__all__ = ["PRESENCE_EVERY_S", "PRESENCE_TTL_S", "Presences", "RelayChoice"]

PRESENCE_TTL_S: Final = PRESENCE_TTL_MAX_S
PRESENCE_EVERY_S: Final = 240.0  # BHUMI-FINDABLE: twice within the 600 s that one is good for


class RelayChoice:
    """The relays of one participant: those that were named, in their order, then those of its book."""

    def __init__(
        self,
        named: str | Iterable[str],
        book: RelayBook | None,
        quality: RelayQuality | None,
        rng: random.Random,
        on_trouble: Callable[[HostError], None] = lambda _: None,
    ) -> None:
        """Describe what there is to choose from.

        Args:
            named: Address or addresses, preferred to every other relay, the first one most.
            book: Further ones, in the order that it gives (the local network first); None for none.
            quality: Where to keep what is observed of relays; it decides on the order within the book.
            rng: See ``RelayBook.order``.
            on_trouble: Called when an observation cannot be kept, which is no reason to stop.

        Raises:
            LocalError: An address cannot be read.
        """
        self.named = list(dict.fromkeys(map(RelayUrl.parse, [named] if isinstance(named, str) else named)))
        """In the order in which to try them."""
        self._book = book
        self._quality = quality
        self._rng = rng
        self._on_trouble = on_trouble
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

    def passed(self, relay: RelayUrl) -> None:
        """Note that a relay failed, or has gone: the others come first now."""
        self._passed.add(relay)

    def reached(self, relay: RelayUrl, handshake_s: float | None) -> None:
        """Note how long a relay took to greet, so that every other one is worth a try again; None when it failed."""
        if handshake_s is None:
            self.passed(relay)
            self._observe(lambda quality: quality.failed(str(relay)))
        else:
            self._passed.clear()
            self._observe(lambda quality: quality.connected(str(relay), handshake_s))

    def dropped(self, relay: RelayUrl) -> None:
        """Note that a relay ended a connection that it had taken."""
        self.passed(relay)
        self._observe(lambda quality: quality.dropped(str(relay)))

    def knows(self, address: str) -> bool:
        """Return whether others may send us to a relay: the user named it, or the book says so."""
        try:
            is_named = RelayUrl.parse(address) in self.named
        except LocalError:
            return False
        return is_named or (self._book is not None and self._book.knows(address))

    def by_gossip(self, relay: RelayUrl) -> bool:
        """Return whether only other relays name a relay, see ``RelayBook.by_gossip``."""
        return self._book is not None and relay not in self.named and self._book.by_gossip(str(relay))

    def advertised_id(self, relay: RelayUrl) -> PublicKey | None:
        """Return the key of a relay that is known by its own advert and by nothing weightier.

        A relay that the user named may change its key, and who advertises its address proves nothing about it.
        """
        known = None if relay in self.named else self.entry(str(relay))
        return known.relay_id if known is not None and known.source is Source.ADVERT else None

    def entry(self, address: str) -> RelayEntry | None:
        """Return what the book has of a relay; its key is proved or claimed."""
        return None if self._book is None else self._book.entry(address)

    def entries(self) -> list[RelayEntry]:
        """Return every relay of the book, by address; none without a book."""
        return [] if self._book is None else self._book.entries()

    def from_book(self) -> list[RelayUrl]:
        """Return the relays of the book in the order in which to try them."""
        if self._book is None:
            return []
        score = neutral_score if self._quality is None else self._quality.score
        return [RelayUrl.parse(entry.address) for entry in self._book.order(score, self._rng)]

    def _ordered(self) -> list[RelayUrl]:
        return [*self.named, *(relay for relay in self.from_book() if relay not in self.named)]

    def _observe(self, note: Callable[[RelayQuality], None]) -> None:
        if self._quality is not None:
            try:
                note(self._quality)
            except HostError as error:
                self._on_trouble(error)


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
