"""The table of exchanges: each is one SEND that became a DELIVER, until its ACK or its end.

An exchange is first *pending*: the recipient has the DELIVER, and senders wait. Then it is *late*: the senders have
status 3 or 4, but an ACK of the same identity may still fill the cache (BHUMI-19, BHUMI-22, BHUMI-C5). A SEND that
repeats its preimage makes it pending again (BHUMI-C9). When the time for late ACKs is over, it is forgotten. Message
numbers are unique among the pending and late exchanges of one recipient.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from waystation.core.effects import Peer
from waystation.core.instant import Instant
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.session import SentNumbers, Slot, State

__all__ = ["Exchange", "ExchangeTable"]

ExchangeKey = tuple[bytes, int]
"""Recipient (32 bytes) and message number (u32)."""

_SLOTS_FEW: Final = 16  # below it nobody looks which connections have closed meanwhile


@dataclass(slots=True, eq=False)
class Exchange:
    """One delivery, until its ACK or until none is taken any more."""

    recipient: bytes
    preimage: bytes
    commit: bytes
    """SHA-256 of the preimage."""
    message_id: int
    attempt: int
    peer: Peer
    """The connection that got the DELIVER."""
    accepted_at: Instant
    deadline: Instant
    payload_bytes: int
    slots: list[Slot] = field(default_factory=list)
    """The senders that wait: the first one, and those that joined with the same preimage."""
    is_pending: bool = True
    """Whether somebody waits; False for a late one."""
    acked_until: Instant | None = None
    """An ACK after this instant is ignored; None before the first outcome."""
    swept_at: Instant | None = None
    """When a late one may be forgotten."""
    looked_through_at: int = _SLOTS_FEW
    """How many slots there are when those of closed connections are dropped next."""

    def join(self, slot: Slot, joiners_max: int) -> bool:
        """Let another SEND wait; False when ``joiners_max`` wait already. Cost: O(1) amortised."""
        if len(self.slots) >= min(self.looked_through_at, joiners_max + 1):
            self.slots = [waiting for waiting in self.slots if waiting.session.state is not State.CLOSED]
            self.looked_through_at = max(_SLOTS_FEW, 2 * len(self.slots))
        if len(self.slots) > joiners_max:
            return False
        self.slots.append(slot)
        return True

    def takes_ack(self, now: Instant) -> bool:
        """Return whether an ACK would still count."""
        return self.acked_until is None or self.acked_until > now


class ExchangeTable:
    """All exchanges of one relay. Cost: every operation O(1)."""

    def __init__(self, limits: InForce[BhumiLimits]) -> None:
        """Begin without any; what is kept of those that are over is bounded by ``limits``."""
        self._limits = limits
        # One timeout for all makes insertion order deadline order.
        self._pending: OrderedDict[ExchangeKey, Exchange] = OrderedDict()
        self._by_preimage: dict[tuple[bytes, bytes], Exchange] = {}
        self._late: OrderedDict[ExchangeKey, Exchange] = OrderedDict()
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

    def find(self, recipient: bytes, preimage: bytes) -> Exchange | None:
        """Return the latest exchange of this preimage, pending or late, for another SEND to join."""
        # Spec 3.5: the same preimage for the same recipient.
        return self._by_preimage.get((recipient, preimage))

    def take_pending(self, recipient: bytes, message_id: int) -> Exchange | None:
        """Return and forget the pending exchange of this number, or None."""
        # Spec 3.6: an ACK counts on a connection of the id52 that got the DELIVER.
        exchange = self._pending.pop((recipient, message_id), None)
        if exchange is not None:
            self._unlink(exchange)
        return exchange

    def remove(self, exchange: Exchange) -> None:
        """Forget a pending exchange."""
        del self._pending[exchange.recipient, exchange.message_id]
        self._unlink(exchange)

    def make_late(self, exchange: Exchange, acked_until: Instant, swept_at: Instant) -> bool:
        """Move a pending exchange to the late ones; False when its recipient has too many and it is forgotten.

        Args:
            exchange: A pending exchange.
            acked_until: An ACK after this instant is ignored; one that was late before keeps its first end.
            swept_at: When the entry may be forgotten; never earlier than in the call before.
        """
        recipient, key = exchange.recipient, (exchange.recipient, exchange.message_id)
        # BHUMI-A13: what is kept for late ACKs is bounded per recipient and in all.
        limits = self._limits.now
        if self._late_counts.get(recipient, 0) >= limits.late_acks_per_recipient:
            self.remove(exchange)
            return False
        for _ in range(surplus(len(self._late) + 1, limits.late_acks)):
            self._forget_late(next(iter(self._late)))
        del self._pending[key]
        self._late[key] = exchange
        self._late_counts[recipient] = self._late_counts.get(recipient, 0) + 1
        exchange.is_pending = False
        exchange.slots = []
        exchange.acked_until = exchange.acked_until or acked_until
        exchange.swept_at = swept_at
        return True

    def reopen(self, exchange: Exchange, deadline: Instant) -> None:
        """Make a late exchange pending again, until ``deadline``, which is never earlier than that of another one."""
        key = exchange.recipient, exchange.message_id
        self._drop_late(key)
        exchange.is_pending = True
        exchange.deadline = deadline
        self._pending[key] = exchange

    def take_late(self, recipient: bytes, message_id: int) -> Exchange | None:
        """Return and forget the late exchange of this number, or None."""
        found = self._late.get((recipient, message_id))
        if found is not None:
            self._forget_late((recipient, message_id))
        return found

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
        while (swept_at := self.next_sweep()) is not None and swept_at <= now:
            self._forget_late(next(iter(self._late)))

    def next_deadline(self) -> Instant | None:
        """Return when the next exchange times out, or None."""
        exchange = next(iter(self._pending.values()), None)
        return exchange.deadline if exchange is not None else None

    def next_sweep(self) -> Instant | None:
        """Return when the next late exchange may be forgotten, or None."""
        first = next(iter(self._late.values()), None)
        return first.swept_at if first is not None else None

    def _unlink(self, exchange: Exchange) -> None:
        """Forget the preimage of an exchange, unless a later delivery has taken it over."""
        key = exchange.recipient, exchange.preimage
        if self._by_preimage.get(key) is exchange:
            del self._by_preimage[key]

    def _forget_late(self, key: ExchangeKey) -> None:
        self._unlink(self._drop_late(key))

    def _drop_late(self, key: ExchangeKey) -> Exchange:
        exchange = self._late.pop(key)
        recipient = key[0]
        left = self._late_counts[recipient] - 1
        if left:
            self._late_counts[recipient] = left
        else:
            del self._late_counts[recipient]
        return exchange
