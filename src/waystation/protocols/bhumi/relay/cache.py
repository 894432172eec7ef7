"""The response cache: answers kept so that a sender can retry with the same preimage (the secret of one request).

Acked entries come from an ACK on the recipient's own connection. Carried entries were uploaded by the recipient in I_AM
(spec 6.6) and have their own quota. A live entry is never overwritten. An entry that was sent to a sender is evicted
once its bytes have left (BHUMI-18), so a lost result can be requested again. Entries also end when they expire; when
the cache is full carried ones are evicted first, of the device that has most of them, then the oldest acked ones.

Spec: Bhumi v2 6.2; BHUMI-L, BHUMI-A2, BHUMI-C1 and BHUMI-C2.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import RecentResponse
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.carried import CacheEntry, CacheKey, CarriedResponses
from waystation.protocols.bhumi.wire import CARRIED_BYTES_MAX, CARRIED_COUNT_MAX

__all__ = ["ResponseCache", "Uploaded"]


@dataclass(slots=True)
class Uploaded:
    """What became of the responses in one I_AM."""

    done: list[bytes] = field(default_factory=list)
    """Preimages whose answer stands in the cache now."""
    dropped: dict[Refusal, int] = field(default_factory=dict)


class ResponseCache:
    """Answers by recipient and preimage, bounded in bytes, entries and time.

    Cost: every operation O(1) amortised.
    """

    def __init__(self, ttl_ms: int, limits: InForce[BhumiLimits], *, bind_recipient: bool = True) -> None:
        """Make an empty cache.

        Args:
            ttl_ms: How long an entry is kept, from when it came.
            limits: How much is kept.
            bind_recipient: Key by recipient and preimage; False keys by the preimage alone, the seed's letter.
        """
        self._ttl = ttl_ms * MICROSECONDS_PER_MS
        self._limits = limits
        self._bind_recipient = bind_recipient
        # One lifetime for all makes insertion order expiry order: the oldest entry is always the first.
        self._acked: OrderedDict[CacheKey, CacheEntry] = OrderedDict()
        self._carried = CarriedResponses()
        self.total_bytes = 0
        """Bytes of all responses kept."""

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._acked) + len(self._carried)

    def key_of(self, recipient: bytes, preimage: bytes) -> CacheKey:
        """Return the key under which an answer of ``recipient`` to ``preimage`` is kept."""
        # BHUMI-C1: nobody but the recipient's own connection can add, block or overwrite an entry.
        return (recipient if self._bind_recipient else b"", preimage)

    def find(self, recipient: bytes, preimage: bytes, now: Instant) -> CacheEntry | None:
        """Return the entry that answers this SEND, or None."""
        key = self.key_of(recipient, preimage)
        entry = self._acked.get(key)
        if entry is None and self._carried:
            entry = self._carried.get(key)
        # Spec 4: an entry answers for 300 s, unless the operator says otherwise.
        return entry if entry is not None and entry.expires_at > now else None

    def keep_acked(self, recipient: bytes, preimage: bytes, response: bytes, now: Instant) -> bool:
        """Keep the answer of an ACK; False when one stands already or it is too large to keep."""
        key = self.key_of(recipient, preimage)
        # BHUMI-A2: an entry that stands is never overwritten; only an expired one makes room.
        is_large = len(response) > self._limits.now.cached_response_bytes
        if is_large or ((key in self._acked or self._carried) and self._stands(key, now)):
            return False
        # Spec 3.6: the response enters the cache under (recipient, preimage).
        self._acked[key] = CacheEntry(key, response, Instant(now + self._ttl), None)
        self._count(response)
        return True

    def keep_uploaded(
        self, carrier: bytes, responses: Sequence[RecentResponse], response_bytes_max: int, now: Instant
    ) -> Uploaded:
        """Keep what one I_AM carries, within its quotas (BHUMI-L, BHUMI-C2); what does not fit is dropped.

        Args:
            carrier: The identity that proved itself, 32 bytes.
            responses: In the order of the frame.
            response_bytes_max: Largest single response.
            now: When they came.
        """
        uploaded = Uploaded()
        left_bytes = CARRIED_BYTES_MAX
        for index, carried in enumerate(responses):
            left_bytes -= len(carried.response)
            refusal: Refusal | None = Refusal.CARRIED_OVER_QUOTA
            # BHUMI-C2: what exceeds a quota is dropped and counted, the connection stays.
            if index < CARRIED_COUNT_MAX and left_bytes >= 0 and len(carried.response) <= response_bytes_max:
                refusal = self.keep_carried(carrier, carried.preimage, carried.response, now)
            # A duplicate is done as well: its answer stands already.
            if refusal is not Refusal.CARRIED_OVER_QUOTA:
                uploaded.done.append(carried.preimage)
            if refusal is not None:
                uploaded.dropped[refusal] = uploaded.dropped.get(refusal, 0) + 1
        return uploaded

    def keep_carried(self, carrier: bytes, preimage: bytes, response: bytes, now: Instant) -> Refusal | None:
        """Keep a carried answer, or say why not: one stands already, or the carrier's quota is used up."""
        key = self.key_of(carrier, preimage)
        if self._stands(key, now):
            return Refusal.CARRIED_DUPLICATE
        # Counted only now: looking at the key may have evicted an expired entry of this carrier.
        limits, carried = self._limits.now, self._carried
        is_over_bytes = carried.bytes_of(carrier) + len(response) > limits.carried_bytes_per_identity
        is_over_count = carried.count_of(carrier) >= limits.carried_responses_per_identity
        if len(response) > limits.cached_response_bytes or is_over_bytes or is_over_count:
            return Refusal.CARRIED_OVER_QUOTA
        carried.add(CacheEntry(key, response, Instant(now + self._ttl), carrier))
        self._count(response)
        return None

    def evict(self, entry: CacheEntry) -> None:
        """Forget this very entry; another one under the same key stays."""
        table = self._acked if entry.carrier is None else self._carried
        if table.get(entry.key) is not entry:
            return
        if entry.carrier is None:
            del self._acked[entry.key]
        else:
            self._carried.remove(entry)
        self.total_bytes -= len(entry.response)

    def sweep(self, now: Instant) -> None:
        """Forget what has expired."""
        for oldest in (self._oldest_acked, self._carried.oldest):
            while (entry := oldest()) is not None and entry.expires_at <= now:
                self.evict(entry)

    def next_expiry(self) -> Instant | None:
        """Return when the oldest entry expires, or None."""
        oldest = (self._oldest_acked(), self._carried.oldest())
        return min((entry.expires_at for entry in oldest if entry is not None), default=None)

    def _oldest_acked(self) -> CacheEntry | None:
        return next(iter(self._acked.values()), None)

    def _stands(self, key: CacheKey, now: Instant) -> bool:
        entry = self._acked.get(key)
        if entry is None and self._carried:
            entry = self._carried.get(key)
        if entry is None:
            return False
        if entry.expires_at > now:
            return True
        self.evict(entry)
        return False

    def _count(self, response: bytes) -> None:
        self.total_bytes += len(response)
        limits = self._limits.now
        for _ in range(surplus(len(self), limits.cached_responses)):
            self._evict_first()
        # More bytes leave than came: enough for a full cache, and one whose limit was lowered shrinks without a stall.
        freed_bytes, before = 0, self.total_bytes
        while self.total_bytes > limits.cached_bytes and freed_bytes <= len(response):
            self._evict_first()
            freed_bytes += max(1, before - self.total_bytes)
            before = self.total_bytes

    def _evict_first(self) -> None:
        # BHUMI-L: carried entries leave first, since anybody with a key can upload them.
        entry = self._carried.first_to_leave() if self._carried else self._oldest_acked()
        assert entry is not None
        self.evict(entry)
