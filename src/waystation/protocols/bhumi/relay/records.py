"""The relay's store of signed records: it checks presences and adverts, keeps them, and supplies them to gossip.

The checks run in the order of their cost: known record, valid times, permitted address, rate allowance, and last the
signature. An accepted record is kept unchanged. This relay signs only its own advert (BHUMI-OWN) and never extends a
record of another key.

Only this part of the relay converts monotonic time to wall-clock time (BHUMI-A18).
"""

import random
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import Presence, RelayAd, SignedRecord
from waystation.protocols.bhumi.extension_wire import decode_advert, decode_presence, encode_tagged
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.adverts import AdvertTable
from waystation.protocols.bhumi.relay.presences import PresenceTable, Standing, times_of
from waystation.protocols.bhumi.relay_addresses import is_open_place
from waystation.protocols.bhumi.signed_records import (
    PRESENCE_TTL_MAX_S,
    is_signed,
    sign_advert,
    untimely,
    untimely_span,
)

__all__ = ["OWN_ADVERT_TTL_S", "Records"]

OWN_ADVERT_TTL_S: Final = 3_600  # BHUMI-OWN: for an hour
_OWN_ADVERT_EVERY_S: Final = 900  # BHUMI-OWN: anew every 15 min
_SWEEP_EVERY_S: Final = 5  # ours: many ends share one sweep
_PRESENCE_TAG: Final = int(FrameType.PRESENCE)
_OUTCOMES: Final = {Standing.KNOWN: None, Standing.FULL: Refusal.TABLE_FULL}


class Records:
    """Everything that one relay believes of devices and of other relays."""

    def __init__(self, key_pair: KeyPair, advertise: str, limits: InForce[BhumiLimits], *, takes_private: bool) -> None:
        """Begin with empty tables.

        Args:
            key_pair: Signs our own advert.
            advertise: Our own address, "" for a relay that does not advertise itself.
            limits: How many records are kept.
            takes_private: Whether adverts may name private addresses.
        """
        self._key_pair = key_pair
        self._advertise = advertise
        self._takes_private = takes_private
        self.presences = PresenceTable(limits)
        self.neighbours = AdvertTable(key_pair.public, limits)
        self._own: RelayAd | None = None
        self._wall_offset = 0

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset = wall_us - now

    def now_s(self, now: Instant) -> int:
        """Return Unix seconds."""
        return (now + self._wall_offset) // MICROSECONDS_PER_SECOND

    def take(
        self, tagged: bytes, allowance: TokenBucket | None, now: Instant, *, by_gossip: bool
    ) -> SignedRecord | Refusal | None:
        """Judge a record, and keep it when it is news.

        Args:
            tagged: Tag and record, of the right length for its tag.
            allowance: Pays for a check of the signature; None for no limit.
            now: Monotonic time.
            by_gossip: Whether it came by gossip: then a presence that says nothing new is none (BHUMI-RENEWAL).

        Returns:
            The record when it is new and to be passed on, None when there is nothing new in it, else the refusal.

        Raises:
            MalformedError: The address of an advert is none.
        """
        now_s = self.now_s(now)
        advert = None
        if tagged[0] == _PRESENCE_TAG:  # not unpacked yet: gossip brings most of them several times
            judged = self._judge_presence(tagged, now_s, by_gossip=by_gossip)
        else:
            advert = decode_advert(tagged[1:])
            judged = self._judge_advert(advert, now_s)
        if judged is not Standing.NEW:
            return _OUTCOMES[judged] if isinstance(judged, Standing) else judged
        # All cheap checks are done: only a record that is news costs allowance and a signature check.
        if allowance is not None and not allowance.take(now):
            return Refusal.GOSSIP_FLOOD
        record: SignedRecord = decode_presence(tagged[1:]) if advert is None else advert
        if not is_signed(record):
            return Refusal.RECORD_SIGNATURE
        if isinstance(record, Presence):
            self.presences.keep(tagged, now_s)
        else:
            self.neighbours.keep(record, tagged)
        return record

    def holds(self, tagged: bytes, now: Instant) -> bool:
        """Return whether this very record still stands, or is our own advert, so that it may be passed on."""
        now_s = self.now_s(now)
        if tagged[0] == _PRESENCE_TAG:
            return self.presences.holds(tagged, now_s)
        advert = decode_advert(tagged[1:])
        return advert == self._own or self.neighbours.holds(advert, tagged, now_s)

    def own_advert(self, now: Instant) -> RelayAd | None:
        """Return our own advert, made anew when it is old; None for a relay that does not advertise itself."""
        now_s = self.now_s(now)
        if not self._advertise:
            return None
        # A clock that was set back makes an advert from the future, which nobody would take.
        if self._own is None or not 0 <= now_s - self._own.issued_at_s < _OWN_ADVERT_EVERY_S:
            self._own = sign_advert(self._key_pair, self._advertise, max(now_s, 0), OWN_ADVERT_TTL_S)
        return self._own

    def adverts(self, rng: random.Random, count: int, now: Instant) -> list[RelayAd]:
        """Return at most so many adverts, our own first, the others drawn at random."""
        own = self.own_advert(now)
        # BHUMI-OWN: our own advert is the one record that we sign.
        first = [own] if own is not None else []
        others = self.neighbours.sample(rng, count - len(first), self.now_s(now))
        return first + [neighbour.advert for neighbour in others]

    def address_of(self, presence: Presence, now: Instant) -> str:
        """Return where the relay of a presence can be reached, empty when nobody knows."""
        if presence.relay_id == self._key_pair.public:
            return self._advertise
        return self.neighbours.address_of(presence.relay_id, self.now_s(now))

    def sample(self, rng: random.Random, count: int, now: Instant) -> list[bytes]:
        """Return at most so many records as GOSSIP lists them, our own advert first; none of them has ended."""
        adverts = [encode_tagged(advert) for advert in self.adverts(rng, max(1, count // 4), now)]
        return adverts + self.presences.sample(rng, count - len(adverts), self.now_s(now))

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {"presences": len(self.presences), "neighbours": len(self.neighbours)}

    def sweep(self, now: Instant) -> None:
        """Forget what has ended."""
        now_s = self.now_s(now)
        self.presences.sweep(now_s)
        if (ends_at_s := self.neighbours.next_end_s()) is not None and ends_at_s <= now_s:
            self.neighbours.sweep(now_s)

    def next_sweep(self) -> Instant | None:
        """Return when something can be forgotten, at most one sweep in some seconds; None with empty tables."""
        ends = [end for end in (self.presences.next_end_s(), self.neighbours.next_end_s()) if end is not None]
        if not ends:
            return None
        at_s = -(-min(ends) // _SWEEP_EVERY_S) * _SWEEP_EVERY_S
        return Instant(at_s * MICROSECONDS_PER_SECOND - self._wall_offset)

    def _judge_presence(self, tagged: bytes, now_s: int, *, by_gossip: bool) -> Standing | Refusal:
        # BHUMI-SEEN: the table is the seen-set; the same bytes end here, before anything costs.
        if self.presences.holds(tagged, now_s):
            return Standing.KNOWN
        refusal = untimely_span(*times_of(tagged), PRESENCE_TTL_MAX_S, now_s)
        if refusal is not None:
            return refusal
        standing = self.presences.standing(tagged, now_s)
        # BHUMI-RENEWAL: a renewal by gossip of a presence that is less than half over is not news.
        if by_gossip and standing is Standing.NEW and self.presences.is_mere_renewal(tagged, now_s):
            return Standing.KNOWN
        return standing

    def _judge_advert(self, advert: RelayAd, now_s: int) -> Standing | Refusal:
        refusal = untimely(advert, now_s)
        # BHUMI-PRIVATE: an advert of a private address is refused before its signature is looked at.
        if refusal is None and not (self._takes_private or is_open_place(advert.address)):
            refusal = Refusal.PRIVATE_ADDRESS
        return refusal if refusal is not None else self.neighbours.standing(advert, now_s)
