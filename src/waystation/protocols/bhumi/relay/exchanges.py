"""The table of exchanges: each is one SEND that became a DELIVER, until its ACK or its end.

An exchange is first *pending*: the recipient has the DELIVER, and senders wait. Then it is *late*: the senders have
status 3 or 4, but an ACK of the same identity may still fill the cache (BHUMI-19, BHUMI-22, BHUMI-C5). Then it is
forgotten. Message numbers are unique among the pending and late exchanges of one recipient.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from waystation.core.instant import Instant
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.session import SentNumbers, Slot

__all__ = ["Exchange", "ExchangeTable", "LateAck"]

ExchangeKey = tuple[bytes, int]
"""Recipient (32 bytes) and message number (u32)."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One delivery that waits for its ACK."""

    recipient: bytes
    preimage: bytes
    message_id: int
    attempt: int
    accepted_at: Instant
    deadline: Instant
    payload_bytes: int
    slots: list[Slot] = field(default_factory=list)
    """The senders that wait: the first one, and those that joined with the same preimage."""


@dataclass(slots=True, frozen=True)
class LateAck:
    """What is left of an exchange whose senders have their status."""

    preimage: bytes
    accepted_until: Instant


class ExchangeTable:
    """All exchanges of one relay. Cost: every operation O(1)."""

    def __init__(self, limits: InForce[BhumiLimits]) -> None:
        """Begin without any; what is kept of those that are over is bounded by ``limits``."""
        self._limits = limits
        # One timeout for all makes insertion order deadline order.
        self._pending: OrderedDict[ExchangeKey, Exchange] = OrderedDict()
        self._by_preimage: dict[tuple[bytes, bytes], Exchange] = {}
        self._late: OrderedDict[ExchangeKey, tuple[LateAck, Instant]] = OrderedDict()
        self._late_counts: dict[bytes, int] = {}
        self._sent: OrderedDict[bytes, SentNumbers] = OrderedDict()

    def __len__(self) -> int:
        """Return how many exchanges are pending."""
        return len(self._pending)

    @property
    def late_count(self) -> int:
        """How many late ACKs could still be taken."""
        return len(self._late)

    @property
    def remembered_recipients(self) -> int:
        """Devices whose message numbers are remembered."""
        return len(self._sent)

    def sent_to(self, recipient: bytes) -> SentNumbers:
        """Return what is remembered of a recipient; it outlives the recipient's connections."""
        numbers = self._sent.setdefault(recipient, SentNumbers())
        # Recipients that were sent to least recently are forgotten first.
        self._sent.move_to_end(recipient)
        for _ in range(surplus(len(self._sent), self._limits.now.remembered_recipients)):
            self._sent.popitem(last=False)
        return numbers

    def knows(self, recipient: bytes, message_id: int) -> bool:
        """Return whether this number is in use for this recipient."""
        key = (recipient, message_id)
        return key in self._pending or key in self._late

    def add(self, exchange: Exchange) -> None:
        """Add a pending exchange; its number must not be in use."""
        self._pending[exchange.recipient, exchange.message_id] = exchange
        self._by_preimage[exchange.recipient, exchange.preimage] = exchange

    def find_in_flight(self, recipient: bytes, preimage: bytes) -> Exchange | None:
        """Return the pending exchange of this preimage, for another SEND to join."""
        # Spec 3.5: the same preimage for the same recipient.
        return self._by_preimage.get((recipient, preimage))

    def take_pending(self, recipient: bytes, message_id: int) -> Exchange | None:
        """Return and forget the pending exchange of this number, or None."""
        # Spec 3.6: an ACK counts on a connection of the id52 that got the DELIVER.
        exchange = self._pending.pop((recipient, message_id), None)
        if exchange is not None:
            del self._by_preimage[recipient, exchange.preimage]
        return exchange

    def remove(self, exchange: Exchange) -> None:
        """Forget a pending exchange."""
        del self._pending[exchange.recipient, exchange.message_id]
        del self._by_preimage[exchange.recipient, exchange.preimage]

    def make_late(self, exchange: Exchange, accepted_until: Instant, swept_at: Instant) -> bool:
        """Move a pending exchange to the late ones; False when its recipient has too many and it is forgotten.

        Args:
            exchange: A pending exchange.
            accepted_until: An ACK after this instant is ignored.
            swept_at: When the entry may be forgotten; never earlier than in the call before.
        """
        self.remove(exchange)
        recipient = exchange.recipient
        # BHUMI-A13: what is kept for late ACKs is bounded per recipient and in all.
        limits = self._limits.now
        if self._late_counts.get(recipient, 0) >= limits.late_acks_per_recipient:
            return False
        for _ in range(surplus(len(self._late) + 1, limits.late_acks)):
            self._forget_late(next(iter(self._late)))
        late = LateAck(exchange.preimage, accepted_until)
        self._late[recipient, exchange.message_id] = (late, swept_at)
        self._late_counts[recipient] = self._late_counts.get(recipient, 0) + 1
        return True

    def take_late(self, recipient: bytes, message_id: int) -> LateAck | None:
        """Return and forget the late exchange of this number, or None."""
        found = self._late.get((recipient, message_id))
        if found is None:
            return None
        self._forget_late((recipient, message_id))
        return found[0]

    def first_overdue(self, now: Instant) -> Exchange | None:
        """Return a pending exchange whose deadline has come, or None."""
        # Spec 4: one timeout for all, so the first that came is the first that is overdue.
        exchange = next(iter(self._pending.values()), None)
        return exchange if exchange is not None and exchange.deadline <= now else None

    def all_pending(self) -> list[Exchange]:
        """Return every pending exchange, oldest first."""
        return list(self._pending.values())

    def pending_of(self, recipient: bytes, message_ids: list[int]) -> list[Exchange]:
        """Return the pending exchanges of one recipient among ``message_ids``, in their order."""
        found = (self._pending.get((recipient, message_id)) for message_id in message_ids)
        return [exchange for exchange in found if exchange is not None]

    def sweep(self, now: Instant) -> None:
        """Forget late exchanges whose time is over."""
        while self._late:
            key, (_, swept_at) = next(iter(self._late.items()))
            if swept_at > now:
                return
            self._forget_late(key)

    def next_deadline(self) -> Instant | None:
        """Return when the next exchange times out, or None."""
        exchange = next(iter(self._pending.values()), None)
        return exchange.deadline if exchange is not None else None

    def next_sweep(self) -> Instant | None:
        """Return when the next late exchange may be forgotten, or None."""
        first = next(iter(self._late.values()), None)
        return first[1] if first is not None else None

    def _forget_late(self, key: ExchangeKey) -> None:
        del self._late[key]
        recipient = key[0]
        left = self._late_counts[recipient] - 1
        if left:
            self._late_counts[recipient] = left
        else:
            del self._late_counts[recipient]
