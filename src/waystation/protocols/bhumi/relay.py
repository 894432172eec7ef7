"""The Bhumi relay: who is here, who may send to whom, and which answer belongs to which request.

What moves it: frames of clients, the end of connections, and time. What it holds is soft (spec principle 5):
bindings of identities to connections with their commits, exchanges under way, and the response cache. What it refuses
to know: who a sender is. No table here links the connection that sent a SEND to anything once its result has left.

A SEND goes through these steps, in the order of spec 5.3: cached answer, recipient connected, same preimage in flight
(join it), commit known, room in the recipient's queue; only then is the commit consumed and the DELIVER sent.

Spec: Bhumi v2 sections 5, 6 and 12; BHUMI-1 to BHUMI-28, BHUMI-L, BHUMI-A1 to BHUMI-A21, BHUMI-C1 to BHUMI-C8.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Final

from waystation.core.alarms import Alarms
from waystation.core.effects import Close, Effect, Hold, Peer, Send, make_send
from waystation.core.facts import DeliveryFinished, Outcome, PeerIdentified, PeerLeft, Refused, make_finished
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant, after_ms
from waystation.core.machine import AsksNothing
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import verify
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.cache import ResponseCache
from waystation.protocols.bhumi.exchanges import Exchange, ExchangeTable, Slot
from waystation.protocols.bhumi.messages import Feature, FrameType, Hello, IAm, Keepalive, Options, Status
from waystation.protocols.bhumi.refusals import MalformedError, Refusal
from waystation.protocols.bhumi.session import Session, State
from waystation.protocols.bhumi.settings import BhumiSettings

__all__ = ["BhumiRelay"]

PROTOCOL: Final = "bhumi"
PENDING_PER_RECIPIENT_MAX: Final = 32  # deliveries without an ACK, BHUMI-A12
JOINERS_MAX: Final = 4  # SENDs that wait for somebody else's exchange, BHUMI-A4
STRIKES_MAX: Final = 16  # the ACK for an unknown number that closes, BHUMI-C5
SWEEP_MS: Final = 1_000  # expired entries leave at most this late
FEATURES: Final = Feature.DELIVER_WITH_PREIMAGE

_KEEPALIVE: Final = wire.encode(Keepalive())


class BhumiRelay(AsksNothing):
    """One relay; see ``core.machine.Machine`` for how to drive it."""

    def __init__(
        self,
        settings: BhumiSettings,
        rng: random.Random,
        *,
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _identity: True,
    ) -> None:
        """Make a relay without connections.

        Args:
            settings: What the operator chose.
            rng: Source of nonces and message numbers; must be unpredictable to peers.
            rate_limits: False lifts the token buckets, and nothing else (BHUMI-C6).
            admits: Asked with each identity that proved itself; False closes the connection.
        """
        self._settings = settings
        self._rng = rng
        self._rate_limits = rate_limits
        self._admits = admits
        self._frame_limits = wire.relay_frame_limits(settings.max_payload_bytes)
        self._ack_timeout = settings.ack_timeout_ms * MICROSECONDS_PER_MS
        self._with_preimage = settings.deliver_layout == "preimage"
        self._sessions: dict[Peer, Session] = {}
        self._bindings: dict[bytes, Session] = {}
        self._exchanges = ExchangeTable()
        self._cache = ResponseCache(settings.response_ttl_ms, bind_recipient=settings.cache_bind_recipient)
        self._alarms = Alarms()
        self._sweep_at: Instant | None = None
        self._runnable: deque[Session] = deque()
        self._outbox: list[Effect] = []
        self._attempts = 0
        self._turn = 0
        self._retiring = False
        self._handlers: dict[int, Callable[[Session, bytes, Instant], None]] = {
            FrameType.I_AM: self._on_i_am,
            FrameType.SEND: self._on_send,
            FrameType.ACK: self._on_ack,
            FrameType.KEEPALIVE: self._on_keepalive,
            FrameType.UPDATE_COMMITS: self._on_update_commits,
            FrameType.OPTIONS: self._on_options,
        }

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:  # noqa: ARG002 - hosts play no part here
        """A client connected: greet it with a fresh nonce."""
        session = Session(peer, self._rng.getrandbits(32), self._frame_limits, now, rate_limits=self._rate_limits)
        session.with_preimage = self._with_preimage
        self._sessions[peer] = session
        self._outbox.append(Send(peer, wire.encode(Hello(session.nonce, self._settings.max_payload_bytes))))
        self._arm(session)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Bytes of a client, in any chunking."""
        session = self._sessions.get(peer)
        if session is None:
            return
        session.active_at = now
        frame = None if session.held else session.frames.only_frame(data)
        if frame is None:
            session.frames.feed(data)
        if not session.held:
            self._advance(session, now, frame)
        if self._runnable:
            self._run(now)

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """A client's connection ended."""
        session = self._sessions.get(peer)
        if session is None:
            return
        if session.frames.waiting and not session.held:
            self._note_refused(session, Refusal.END_INSIDE_FRAME)
        self._forget(session, "disconnected", now)
        self._run(now)

    def congested(self, peer: Peer, now: Instant) -> None:
        """Bytes wait for this client; called again whenever some of them have left."""
        session = self._sessions.get(peer)
        if session is not None:
            session.note_congested(now)
            self._arm(session)

    def drained(self, peer: Peer, now: Instant) -> None:
        """Everything for this client has left: what it got from the cache is done with."""
        session = self._sessions.get(peer)
        if session is None:
            return
        session.waiting_since = None
        session.unread_timeouts = 0
        for turn, entry in session.leases:
            if turn < self._turn:
                self._cache.evict(entry)
        # What nobody has taken from the outbox cannot have left; its own receipt is still to come.
        session.leases = [lease for lease in session.leases if lease[0] == self._turn]
        if session.held:
            self._runnable.append(session)
            self._run(now)

    def wake(self, now: Instant) -> None:
        """Time passed: end what is overdue."""
        while (exchange := self._exchanges.first_overdue(now)) is not None:
            self._time_out(exchange, now)
        for key in list(self._alarms.due(now)):
            session = self._sessions.get(Peer(key))
            if session is not None:
                self._look_at(session, now)
        if self._sweep_at is not None and self._sweep_at <= now:
            self._cache.sweep(now)
            self._exchanges.sweep(now)
            self._sweep_at = None
        self._run(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        if self._sweep_at is None:
            self._plan_sweep()
        candidates = (self._exchanges.next_deadline(), self._alarms.next_at(), self._sweep_at)
        return min((at for at in candidates if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return the effects since the last call, in their order."""
        effects = self._outbox
        self._outbox = []
        self._turn += 1
        return effects

    # Commands of the node

    def retire(self) -> None:
        """Take no new work: a SEND that is not answered from the cache gets status 1 (BHUMI-28)."""
        self._retiring = True

    def settled(self) -> bool:
        """Return whether no exchange is under way."""
        return not len(self._exchanges)

    def shut(self, now: Instant) -> None:
        """Close every connection; whoever still waits for a result gets it first."""
        for exchange in self._exchanges.all_pending():
            self._make_late(exchange, exchange.deadline, now)
            self._end(exchange, wire.encode_send_result(Status.GONE, b""), Outcome.GONE, 0, now)
        for session in list(self._sessions.values()):
            self._close(session, Refusal.SHUTDOWN, now)
        self._run(now)

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connection of an identity that is not admitted any more."""
        session = self._bindings.get(identity)
        if session is not None:
            self._close(session, Refusal.IDENTITY_BANNED, now)
            self._run(now)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is, for metrics and invariant checkers."""
        return {
            "connections": len(self._sessions),
            "identities": len(self._bindings),
            "commits": sum(len(session.commits) for session in self._bindings.values()),
            "exchanges": len(self._exchanges),
            "late_acks": self._exchanges.late_count,
            "cached_responses": len(self._cache),
            "cached_bytes": self._cache.total_bytes,
            "alarms": len(self._alarms),
        }

    # Frames

    def _run(self, now: Instant) -> None:
        """Let connections go on whose reason to wait has ended."""
        while self._runnable:
            session = self._runnable.popleft()
            if session.state is not State.CLOSED and session.held:
                self._advance(session, now)

    def _advance(self, session: Session, now: Instant, frame: tuple[int, bytes] | None = None) -> None:
        """Take ``frame``, if it was cut already, and as many whole ones as the connection may have taken now."""
        if session.bucket is not None:
            session.bucket.refill(now)
        frames = session.frames
        progressed = False
        hold = session.held and session.must_hold()
        try:
            while not hold and (frame is not None or frames.waiting):
                frame = frame or frames.next_frame()
                if frame is None:
                    break
                handler = self._handlers.get(frame[0], self._on_unknown)
                handler(session, frame[1], now)
                if session.state is State.CLOSED:
                    return
                progressed, frame = True, None
                hold = session.must_hold()
        except MalformedError as error:
            self._close(session, error.refusal, now)
            return
        if hold is not session.held:
            session.held = hold
            self._outbox.append(Hold(session.peer, hold))
        if frames.waiting or hold or session.frame_since is not None:
            session.watch_frame(now, progressed=progressed)
            self._arm(session)

    def _on_unknown(self, session: Session, _payload: bytes, _now: Instant) -> None:
        """Ignore and count an extension frame that this relay does not know. BHUMI-24."""
        self._note_refused(session, Refusal.UNKNOWN_EXTENSION)

    def _on_options(self, session: Session, payload: bytes, _now: Instant) -> None:
        accepted = wire.decode_options(payload).features & FEATURES
        session.with_preimage = self._with_preimage or Feature.DELIVER_WITH_PREIMAGE in accepted
        self._reply(session, wire.encode(Options(accepted)))

    def _on_keepalive(self, session: Session, _payload: bytes, _now: Instant) -> None:
        self._reply(session, _KEEPALIVE)

    def _on_i_am(self, session: Session, payload: bytes, now: Instant) -> None:
        """Bind the connection to an identity, or refresh it. Spec: 5.2, 6.4; BHUMI-5, BHUMI-8, BHUMI-A7 to BHUMI-A9."""
        if session.bucket is not None:
            session.bucket.take(now)
        message = wire.decode_i_am(payload)
        if session.identity is not None and session.identity != message.identity:
            self._close(session, Refusal.OTHER_IDENTITY, now)
            return
        if not verify(message.identity, wire.signed_bytes(session.nonce, message.identity), message.signature):
            self._close(session, Refusal.BAD_SIGNATURE, now)
            return
        if not self._admits(message.identity):
            self._close(session, Refusal.IDENTITY_BANNED, now)
            return
        former = self._bindings.get(message.identity)
        if former is not None and former is not session:
            self._close(former, Refusal.REPLACED, now)
        if session.identity is None:
            self._outbox.append(PeerIdentified(PROTOCOL, session.peer, message.identity))
        session.identity = message.identity
        session.move(FrameType.I_AM)
        session.sent = self._exchanges.sent_to(message.identity)
        session.commits = set(message.commits)
        self._bindings[message.identity] = session
        self._keep_carried(session, message, now)

    def _keep_carried(self, session: Session, message: IAm, now: Instant) -> None:
        """Fill the cache from I_AM; the exchange of each kept response is done, so its commit goes (BHUMI-C3)."""
        uploaded = self._cache.keep_uploaded(message.identity, message.responses, self._settings.max_payload_bytes, now)
        session.commits.difference_update(sha256(preimage) for preimage in uploaded.done)
        for refusal, times in uploaded.dropped.items():
            self._note_refused(session, refusal, times)

    def _on_update_commits(self, session: Session, payload: bytes, _now: Instant) -> None:
        """Add commits up to the limit. BHUMI-M and BHUMI-C4."""
        message = wire.decode_update_commits(payload)
        if session.identity is None:
            self._note_refused(session, Refusal.COMMITS_WITHOUT_IDENTITY)
            return
        ignored = 0
        for commit in message.commits:
            if len(session.commits) < wire.COMMITS_MAX:
                session.commits.add(commit)
            elif commit not in session.commits:
                ignored += 1
        if ignored:
            self._note_refused(session, Refusal.COMMITS_OVER_LIMIT, ignored)

    def _on_send(self, session: Session, payload: bytes, now: Instant) -> None:
        """Take one SEND through the steps of spec 5.3."""
        if session.bucket is not None:
            session.bucket.take(now)
        recipient, preimage, opaque = wire.split_send(payload)
        slot = Slot(session)
        session.outstanding.append(slot)
        entry = self._cache.find(recipient, preimage, now)
        if entry is not None:
            slot.lease = entry
            self._answer_at_once(slot, recipient, Outcome.CACHED, Status.OK, entry.response, now)
            return
        in_flight = self._exchanges.find_in_flight(recipient, preimage)
        if in_flight is not None:
            self._join(in_flight, slot, now)
            return
        binding = self._bindings.get(recipient)
        if binding is None or self._retiring:
            self._answer_at_once(slot, recipient, Outcome.OFFLINE, Status.NOT_CONNECTED, b"", now)
            return
        commit = sha256(preimage)
        if commit not in binding.commits:
            self._answer_at_once(slot, recipient, Outcome.BAD_CAPABILITY, Status.BAD_PREIMAGE, b"", now)
            return
        if len(binding.pending_ids) + binding.unread_timeouts >= PENDING_PER_RECIPIENT_MAX:
            self._outbox.append(Refused(PROTOCOL, recipient, Refusal.RECIPIENT_QUEUE_FULL.value))
            self._answer_at_once(slot, recipient, Outcome.REFUSED, Status.NOT_CONNECTED, b"", now)
            return
        binding.commits.discard(commit)
        self._deliver(binding, slot, preimage, opaque, now)

    def _join(self, exchange: Exchange, slot: Slot, now: Instant) -> None:
        """Let a SEND with the preimage of an exchange under way wait for its outcome. BHUMI-A4."""
        exchange.slots = [waiting for waiting in exchange.slots if waiting.session.state is not State.CLOSED]
        if len(exchange.slots) > JOINERS_MAX:
            self._outbox.append(Refused(PROTOCOL, exchange.recipient, Refusal.TOO_MANY_JOINERS.value))
            self._answer_at_once(slot, exchange.recipient, Outcome.BAD_CAPABILITY, Status.BAD_PREIMAGE, b"", now)
        else:
            exchange.slots.append(slot)

    def _deliver(self, binding: Session, slot: Slot, preimage: bytes, payload: bytes, now: Instant) -> None:
        recipient = binding.identity
        assert recipient is not None
        message_id = self._rng.getrandbits(32)
        while self._exchanges.knows(recipient, message_id) or message_id in binding.sent:
            message_id = self._rng.getrandbits(32)
        self._attempts += 1
        deadline = Instant(now + self._ack_timeout)
        self._exchanges.add(
            Exchange(recipient, preimage, message_id, self._attempts, now, deadline, len(payload), [slot])
        )
        binding.pending_ids[message_id] = None
        binding.sent.note(message_id)
        shown = preimage if binding.with_preimage else None
        self._outbox.append(make_send((binding.peer, wire.encode_deliver(message_id, payload, shown), False)))

    def _on_ack(self, session: Session, payload: bytes, now: Instant) -> None:
        """Match an answer with its exchange. Spec 5.5; BHUMI-19, BHUMI-22, BHUMI-A3, BHUMI-A13, BHUMI-C5."""
        message_id, answer = wire.split_ack(payload)
        identity = session.identity
        if identity is not None:
            exchange = self._exchanges.find_pending(identity, message_id)
            if exchange is not None:
                self._exchanges.remove(exchange)
                self._cache.keep_acked(identity, exchange.preimage, answer, now)
                frame = wire.encode_send_result(Status.OK, answer)
                self._end(exchange, frame, Outcome.OK, len(answer), now)
                return
            late = self._exchanges.take_late(identity, message_id)
            if late is not None:
                if late.accepted_until > now:
                    self._cache.keep_acked(identity, late.preimage, answer, now)
                return
            if message_id in session.sent:
                return
        session.strikes += 1
        self._note_refused(session, Refusal.UNSOLICITED_ACK)
        if session.strikes >= STRIKES_MAX:
            self._close(session, Refusal.ACK_STRIKES, now)

    # Outcomes

    def _time_out(self, exchange: Exchange, now: Instant) -> None:
        """Tell the senders 3; the answer may still come and be kept as long as the cache keeps any (BHUMI-19)."""
        until = after_ms(now, self._settings.response_ttl_ms)
        self._make_late(exchange, until, now)
        binding = self._bindings.get(exchange.recipient)
        if binding is not None and binding.waiting_since is not None:
            binding.unread_timeouts += 1
        self._end(exchange, wire.encode_send_result(Status.TIMEOUT, b""), Outcome.TIMEOUT, 0, now)

    def _end(self, exchange: Exchange, frame: bytes, outcome: Outcome, reply_bytes: int, now: Instant) -> None:
        """Give an exchange's outcome to everybody who waits for it."""
        binding = self._bindings.get(exchange.recipient)
        if binding is not None:
            binding.pending_ids.pop(exchange.message_id, None)
        latency_us, tries = now - exchange.accepted_at, len(exchange.slots)
        told = (PROTOCOL, exchange.attempt, exchange.recipient, outcome, latency_us)
        self._outbox.append(make_finished((*told, exchange.payload_bytes + reply_bytes, tries)))
        for slot in exchange.slots:
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
        while outstanding and (ready := outstanding[0].frame) is not None:
            lease = outstanding.popleft().lease
            session.unread_replies += 1
            if lease is not None:
                session.leases.append((self._turn, lease))
            self._outbox.append(make_send((session.peer, ready, lease is not None)))
        if session.held:
            self._runnable.append(session)

    def _reply(self, session: Session, frame: bytes) -> None:
        session.unread_replies += 1
        self._outbox.append(Send(session.peer, frame))

    def _make_late(self, exchange: Exchange, accepted_until: Instant, now: Instant) -> None:
        swept_at = after_ms(now, self._settings.response_ttl_ms)
        if not self._exchanges.make_late(exchange, accepted_until, swept_at):
            self._outbox.append(Refused(PROTOCOL, exchange.recipient, Refusal.LATE_OVER_LIMIT.value))

    # Ends of connections

    def _close(self, session: Session, refusal: Refusal, now: Instant) -> None:
        """Close a connection for a reason. Nobody else notices, except those who waited for this recipient."""
        if refusal is not Refusal.SHUTDOWN:
            self._note_refused(session, refusal)
        self._forget(session, refusal.value, now)
        self._outbox.append(Close(session.peer, refusal, abort=refusal is Refusal.WRITE_TIMEOUT))

    def _forget(self, session: Session, reason: str, now: Instant) -> None:
        """Drop all that hangs on a connection; whoever waits for this recipient gets 4 at once (BHUMI-21)."""
        session.close()
        del self._sessions[session.peer]
        self._alarms.cancel(session.peer)
        identity = session.identity
        if identity is not None and self._bindings.get(identity) is session:
            del self._bindings[identity]
            for exchange in self._exchanges.pending_of(identity, list(session.pending_ids)):
                self._make_late(exchange, exchange.deadline, now)
                self._end(exchange, wire.encode_send_result(Status.GONE, b""), Outcome.GONE, 0, now)
        self._outbox.append(PeerLeft(PROTOCOL, session.peer, identity, reason))

    # Time

    def _look_at(self, session: Session, now: Instant) -> None:
        """An alarm of this connection rang: close it, let it go on, or look again later."""
        if session.state is State.ANONYMOUS and session.outstanding:
            session.active_at = now  # who waits for a result is not idle, BHUMI-L
        refusal = session.overdue(now)
        if refusal is not None:
            self._close(session, refusal, now)
            return
        if session.held:
            self._advance(session, now)
        if session.state is not State.CLOSED:
            self._arm(session)

    def _arm(self, session: Session) -> None:
        self._alarms.set_by(session.peer, session.deadline())

    def _plan_sweep(self) -> None:
        """Plan to forget expired things, at most one sweep a second."""
        expiries = [at for at in (self._cache.next_expiry(), self._exchanges.next_sweep()) if at is not None]
        if expiries:
            step = SWEEP_MS * MICROSECONDS_PER_MS
            self._sweep_at = Instant(-(-min(expiries) // step) * step)

    # Facts

    def _note_refused(self, session: Session, refusal: Refusal, times: int = 1) -> None:
        self._outbox.append(Refused(PROTOCOL, session.identity, refusal.value, times))
