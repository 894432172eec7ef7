"""Deliveries: turns a SEND into a DELIVER to the recipient, and its ACK into the SEND_RESULT.

A SEND passes these checks in the order of spec 5.3: cached answer, same preimage delivered before without an answer
(join that exchange), recipient connected, commit known, room in the recipient's queue. Then the commit is consumed and
the DELIVER is sent. After the result is sent, no table links the sender's connection to the exchange.

Spec: Bhumi v2 sections 5, 6 and 12; BHUMI-9, BHUMI-15 to BHUMI-22, BHUMI-28, BHUMI-C9.
"""

import random
from typing import Final

from waystation.core.effects import make_send
from waystation.core.facts import DeliveryFinished, Outcome, Refused, make_finished
from waystation.core.instant import MICROSECONDS_PER_MS, Instant, after_ms
from waystation.crypto.hashing import sha256
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.messages import Status
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.cache import ResponseCache
from waystation.protocols.bhumi.relay.connections import PROTOCOL, Connections
from waystation.protocols.bhumi.relay.exchanges import Exchange, ExchangeTable
from waystation.protocols.bhumi.session import Session, Slot, State
from waystation.protocols.bhumi.settings import BhumiSettings

__all__ = ["Deliveries"]

SWEEP_MS: Final = 1_000  # expired entries leave at most this late


class Deliveries:
    """All exchanges of one relay, and the cache of their answers."""

    def __init__(self, connections: Connections, settings: BhumiSettings, rng: random.Random) -> None:
        """Begin with nothing under way.

        Args:
            connections: Who is here.
            settings: What the operator chose.
            rng: Source of message numbers; must be unpredictable to peers.
        """
        self._connections = connections
        self._limits = connections.limits
        self._outbox = connections.outbox
        self._bindings = connections.bindings
        self._runnable = connections.runnable
        self._settings = settings
        self._rng = rng
        self._ack_timeout = settings.ack_timeout_ms * MICROSECONDS_PER_MS
        self.exchanges = self._exchanges = ExchangeTable(self._limits)
        self.cache = self._cache = ResponseCache(
            settings.response_ttl_ms, self._limits, bind_recipient=settings.cache_bind_recipient
        )
        self._sweep_at: Instant | None = None
        self._attempts = 0
        self.turn = 0
        """Counts how often the relay's outbox was taken; the relay moves it."""
        self._retiring = False
        connections.on_end.append(self._on_end)

    # Frames

    def on_send(self, session: Session, payload: bytes, now: Instant) -> None:
        """Take one SEND through the steps of spec 5.3."""
        if session.bucket is not None:
            # BHUMI-A11.
            session.bucket.take(now)
        recipient, preimage, opaque = wire.split_send(payload)
        slot = Slot(session)
        # BHUMI-9: the slot holds this SEND's place; results leave strictly in the order of the slots.
        session.outstanding.append(slot)
        # Bhumi v2 5.3 step 1: the response cache, before anything else (BHUMI-15).
        entry = self._cache.find(recipient, preimage, now)
        if entry is not None:
            slot.lease = entry
            # Spec 3.7: a cached response answers a repeated SEND with status 0.
            self._answer_at_once(slot, recipient, Outcome.CACHED, Status.OK, entry.response, now)
            return
        binding = self._bindings.get(recipient)
        # BHUMI-C9: the same preimage while its exchange may still be answered joins that exchange.
        exchange = self._exchanges.find(recipient, preimage)
        if exchange is not None and self._join(exchange, binding, slot, now):
            return
        # Bhumi v2 5.3 step 2: not connected is 1 and consumes nothing (BHUMI-16, BHUMI-28).
        if binding is None or self._retiring:
            self._answer_at_once(slot, recipient, Outcome.OFFLINE, Status.NOT_CONNECTED, b"", now)
            return
        # Bhumi v2 5.3 step 4: H is SHA-256 (BHUMI-3). Unknown, used and wrong are all 2: no oracle (BHUMI-14).
        commit = sha256(preimage)
        if commit not in binding.commits:
            self._answer_at_once(slot, recipient, Outcome.BAD_CAPABILITY, Status.BAD_PREIMAGE, b"", now)
            return
        # BHUMI-A12: a full queue is 1 before anything is consumed, so that the sender may retry.
        if len(binding.pending_ids) + binding.unread_timeouts >= self._limits.now.pending_per_recipient:
            self._outbox.append(Refused(PROTOCOL, recipient, Refusal.RECIPIENT_QUEUE_FULL.value))
            self._answer_at_once(slot, recipient, Outcome.REFUSED, Status.NOT_CONNECTED, b"", now)
            return
        # Bhumi v2 5.3 step 5: single use. Consumed last, when nothing can refuse any more (BHUMI-C4).
        binding.commits.discard(commit)
        self._deliver(binding, slot, preimage, commit, opaque, now)

    def _join(self, exchange: Exchange, binding: Session | None, slot: Slot, now: Instant) -> bool:
        """Let a SEND wait for the exchange that its preimage began; False when that one is over (BHUMI-C9)."""
        if exchange.is_pending:
            # BHUMI-C9: one too many learns that the request is in doubt, never that its preimage is used.
            if not exchange.join(slot, self._limits.now.joiners):
                self._outbox.append(Refused(PROTOCOL, exchange.recipient, Refusal.TOO_MANY_JOINERS.value))
                self._answer_at_once(slot, exchange.recipient, Outcome.REFUSED, Status.TIMEOUT, b"", now)
            return True
        if not exchange.takes_ack(now):
            return False
        if binding is None:
            # BHUMI-21, once more: it was delivered, and the recipient is not here.
            self._answer_at_once(slot, exchange.recipient, Outcome.GONE, Status.GONE, b"", now)
            return True
        # The recipient has come back and named the commit anew, so that it has no answer yet: it gets another DELIVER.
        if exchange.commit in binding.commits:
            return False
        self._attempts += 1
        exchange.attempt, exchange.accepted_at = self._attempts, now
        exchange.slots = [slot]
        self._exchanges.reopen(exchange, Instant(now + self._ack_timeout))
        binding.pending_ids[exchange.message_id] = None
        return True

    def _deliver(
        self, binding: Session, slot: Slot, preimage: bytes, commit: bytes, payload: bytes, now: Instant
    ) -> None:
        recipient = binding.identity
        assert recipient is not None
        message_id = self._rng.getrandbits(32)
        # BHUMI-L: unpredictable, and never a number that a late ACK could still name.
        while self._exchanges.knows(recipient, message_id) or message_id in binding.sent:
            message_id = self._rng.getrandbits(32)
        self._attempts += 1
        deadline = Instant(now + self._ack_timeout)
        head = (recipient, preimage, commit, message_id, self._attempts, binding.peer)
        self._exchanges.add(Exchange(*head, now, deadline, len(payload), [slot]))
        # Bhumi v2 5.4: DELIVER carries the preimage only where the recipient's connection asked for it (BHUMI-2).
        binding.pending_ids[message_id] = None
        limits = self._limits.now
        binding.sent.note(message_id, limits.numbers_per_recipient)
        binding.note_unanswered(commit, limits.late_acks_per_recipient)
        shown = preimage if binding.with_preimage else None
        self._outbox.append(make_send((binding.peer, wire.encode_deliver(message_id, payload, shown), False)))

    def on_ack(self, session: Session, payload: bytes, now: Instant) -> None:
        """Match an answer with its exchange. Spec 5.5; BHUMI-19, BHUMI-22, BHUMI-A3, BHUMI-A13, BHUMI-C5."""
        message_id, answer = wire.split_ack(payload)
        identity = session.identity
        if identity is not None:
            # BHUMI-A3: numbers are looked up under the identity of this connection, so nobody answers for another.
            exchange = self._exchanges.take_pending(identity, message_id)
            if exchange is not None:
                # Bhumi v2 5.3 step 8: every first answer is cached, also when its sender is still here (BHUMI-17).
                self._cache.keep_acked(identity, exchange.preimage, answer, now)
                self._answered(exchange, answer, session, now)
                return
            late = self._exchanges.take_late(identity, message_id)
            if late is not None:
                session.note_answered(late.peer, late.commit)
                # BHUMI-19: an ACK after the timeout fills the cache; its sender has 3 and may repeat.
                if late.takes_ack(now):
                    self._cache.keep_acked(identity, late.preimage, answer, now)
                return
            # BHUMI-C5: late and repeated ACKs of numbers that were sent count no strike.
            if message_id in session.sent:
                return
        session.strikes += 1
        self._connections.note_refused(session, Refusal.UNSOLICITED_ACK)
        # BHUMI-C5: the sixteenth number that was never sent to this identity closes.
        if session.strikes >= self._limits.now.ack_strikes:
            self._connections.close(session, Refusal.ACK_STRIKES, now)

    def on_carried(self, session: Session, preimage: bytes, now: Instant) -> None:
        """An I_AM has brought the answer of an exchange: whoever waits for it gets it (BHUMI-C3)."""
        identity = session.identity
        assert identity is not None
        exchange = self._exchanges.find(identity, preimage)
        entry = self._cache.find(identity, preimage, now)
        if exchange is None or entry is None:
            return
        if exchange.is_pending:
            self._exchanges.remove(exchange)
            self._answered(exchange, entry.response, session, now)
        else:
            self._exchanges.take_late(identity, exchange.message_id)

    # Outcomes

    def _answered(self, exchange: Exchange, answer: bytes, session: Session, now: Instant) -> None:
        """Give the answer to everybody who waits."""
        session.note_answered(exchange.peer, exchange.commit)
        self._end(exchange, wire.encode_send_result(Status.OK, answer), Outcome.OK, len(answer), now)

    def _time_out(self, exchange: Exchange, now: Instant) -> None:
        """Give the senders 3; the answer may still come and be kept as long as the cache keeps any (BHUMI-19)."""
        binding = self._bindings.get(exchange.recipient)
        if binding is not None and binding.waiting_since is not None:
            # The recipient does not read: its buffer may still hold this delivery, which counts against its queue.
            binding.unread_timeouts += 1
        # Spec 2: status 3, no ACK in time.
        self._end(exchange, wire.encode_send_result(Status.TIMEOUT, b""), Outcome.TIMEOUT, 0, now)

    def _end(self, exchange: Exchange, frame: bytes, outcome: Outcome, reply_bytes: int, now: Instant) -> None:
        """Give an exchange's outcome to everybody who waits for it."""
        binding = self._bindings.get(exchange.recipient)
        if binding is not None:
            binding.pending_ids.pop(exchange.message_id, None)
        latency_us, tries = now - exchange.accepted_at, len(exchange.slots)
        head = (PROTOCOL, exchange.attempt, exchange.recipient, outcome, latency_us)
        self._outbox.append(make_finished((*head, exchange.payload_bytes + reply_bytes, tries)))
        slots = exchange.slots
        if outcome is not Outcome.OK:
            self._make_late(exchange, now)
        # Spec 3.5: every SEND that has joined gets the same result.
        for slot in slots:
            self._settle(slot, frame, now)

    def _answer_at_once(
        self, slot: Slot, recipient: bytes, outcome: Outcome, status: Status, answer: bytes, now: Instant
    ) -> None:
        """Give an outcome that needed no delivery."""
        self._attempts += 1
        self._outbox.append(DeliveryFinished(PROTOCOL, self._attempts, recipient, outcome, None, len(answer), 1))
        self._settle(slot, wire.encode_send_result(status, answer), now)

    def _settle(self, slot: Slot, frame: bytes, now: Instant) -> None:
        """Fill a slot and send every result that has nothing open before it (BHUMI-9)."""
        slot.frame = frame
        session = slot.session
        if session.state is State.CLOSED:
            return
        session.active_at = now
        outstanding = session.outstanding
        # BHUMI-9: a result that is ready waits for those of earlier SENDs.
        while outstanding and (ready := outstanding[0].frame) is not None:
            lease = outstanding.popleft().lease
            session.unread_replies += 1
            if lease is not None:
                session.leases.append((self.turn, lease))
            self._outbox.append(make_send((session.peer, ready, lease is not None)))
        if session.held:
            self._runnable.append(session)

    def _make_late(self, exchange: Exchange, now: Instant) -> None:
        """Keep what an ACK after 3 or 4 needs, as long as the cache would keep its answer (BHUMI-19, BHUMI-22)."""
        # Spec 3.6: an ACK after the outcome still counts, until the cache's time is over.
        if not exchange.takes_ack(now):
            self._exchanges.remove(exchange)
            return
        until = after_ms(now, self._settings.response_ttl_ms)
        if not self._exchanges.make_late(exchange, until, until):
            self._outbox.append(Refused(PROTOCOL, exchange.recipient, Refusal.LATE_OVER_LIMIT.value))

    # What the relay calls

    def retire(self) -> None:
        """Take no new work: a SEND that is not answered from the cache gets status 1 (BHUMI-28)."""
        self._retiring = True

    def drained(self, session: Session) -> None:
        """Evict what a connection got from the cache: it has left.

        What nobody has taken from the outbox cannot have left; its own receipt is still to come.
        """
        # Spec 3.7: a cached answer leaves the cache once its bytes have left our process.
        for turn, entry in session.leases:
            # A lease of this turn is still in the outbox and cannot have left.
            if turn < self.turn:
                self._cache.evict(entry)
        session.leases = [lease for lease in session.leases if lease[0] == self.turn]

    def shut(self, now: Instant) -> None:
        """End every exchange: whoever still waits gets 4."""
        for exchange in self._exchanges.all_pending():
            self._give_up(exchange, now)

    def wake(self, now: Instant) -> None:
        """End what is overdue, forget what has expired."""
        while (exchange := self._exchanges.first_overdue(now)) is not None:
            self._time_out(exchange, now)

    def sweep(self, now: Instant) -> None:
        """Forget what has expired, if it is time for that."""
        if self._sweep_at is not None and self._sweep_at <= now:
            self._cache.sweep(now)
            self._exchanges.sweep(now)
            self._sweep_at = None

    def deadline(self) -> Instant | None:
        """Return when ``wake`` or ``sweep`` is due."""
        if self._sweep_at is None:
            self._plan_sweep()
        timeout, sweep = self._exchanges.next_deadline(), self._sweep_at
        if timeout is None or sweep is None:
            return timeout if sweep is None else sweep
        return min(timeout, sweep)

    def _plan_sweep(self) -> None:
        """Plan to forget expired things, at most one sweep a second."""
        expiries = [at for at in (self._cache.next_expiry(), self._exchanges.next_sweep()) if at is not None]
        if expiries:
            # Rounded up to whole seconds: many expiries share one sweep.
            step = SWEEP_MS * MICROSECONDS_PER_MS
            self._sweep_at = Instant(-(-min(expiries) // step) * step)

    def _on_end(self, session: Session, now: Instant) -> None:
        """Whoever waits for a recipient that is gone gets 4 at once (BHUMI-21)."""
        identity = session.identity
        # BHUMI-21: the original waits the whole timeout and answers 3; the document wants 4 at once.
        if identity is not None and session.pending_ids:
            for exchange in self._exchanges.pending_of(identity, list(session.pending_ids)):
                self._give_up(exchange, now)

    def listed_anew(self, session: Session, now: Instant) -> None:
        """Give 4 to whoever waits for a delivery whose commit the recipient has named again: it may be sent anew."""
        for exchange in self._exchanges.pending_of(session.identity or b"", list(session.pending_ids)):
            if exchange.peer != session.peer and exchange.commit in session.commits:
                self._give_up(exchange, now)

    def _give_up(self, exchange: Exchange, now: Instant) -> None:
        # BHUMI-22: an ACK on the recipient's next connection still fills the cache.
        # Spec 2: status 4, the recipient disconnected during delivery.
        self._end(exchange, wire.encode_send_result(Status.GONE, b""), Outcome.GONE, 0, now)
