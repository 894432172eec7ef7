"""The Strata relay: a state machine that validates packets, stores them and serves them to subscribers.

``server.strata.host`` runs it. Its inputs are messages of clients, results of the disk and of signature checks, and
time. Its memory has only connections, read positions and rate limits. A packet is in the store before its OK is sent
(specs/strata.md 6). ``intake`` validates packets, ``delivery`` and ``subscription`` serve readers, ``outbox`` limits
unconfirmed bytes. ``retention`` deletes and hides, ``pages`` answers plain HTTP, ``replication`` reads other relays.

Spec: RFC-0004 2, 3, 6, 8, 9; specs/strata.md 10 to 14.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from waystation.core.answers import HttpAnswer
from waystation.core.dids import encode_did, identity_of, key_of_did
from waystation.core.effects import Effect, Peer
from waystation.core.facts import PeerIdentified, SubscriptionEnded, SubscriptionOpened
from waystation.core.identity_access import EVERYBODY, IdentityAccess
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant, after_ms
from waystation.core.records import Store
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.canonical import MESSAGE_DEPTH_MAX, parse
from waystation.protocols.strata.limits import DEFAULT_LIMITS, StrataLimits
from waystation.protocols.strata.messages import Auth, Publish, Subscribe, Unsubscribe
from waystation.protocols.strata.refusals import Code, End, Refusal, RefusedError
from waystation.protocols.strata.relay.allowances import READ_UNPAID_BYTES_MAX, Allowances
from waystation.protocols.strata.relay.authorization import Authorizer
from waystation.protocols.strata.relay.authors import Authors
from waystation.protocols.strata.relay.chores import Chores
from waystation.protocols.strata.relay.delivery import Delivery
from waystation.protocols.strata.relay.descriptor import Announcer
from waystation.protocols.strata.relay.directory import Directory, StaticKey
from waystation.protocols.strata.relay.facts import stored_fact, verdict_fact
from waystation.protocols.strata.relay.intake import Candidate, Intake, Verdict
from waystation.protocols.strata.relay.limits import Kind, Limits, Rank, Scope
from waystation.protocols.strata.relay.membership import Membership
from waystation.protocols.strata.relay.outbox import Outbox
from waystation.protocols.strata.relay.pages import NO_LOGS, PROFILES, LogPolicy, Pages
from waystation.protocols.strata.relay.policy import Policy, Throttle, Waits, never_waits, reason_of
from waystation.protocols.strata.relay.replication import Place, Replication
from waystation.protocols.strata.relay.replies import left_fact, refused_fact, verdict_answer
from waystation.protocols.strata.relay.retention import Retention
from waystation.protocols.strata.relay.subscription import Subscription, read_cursor
from waystation.protocols.strata.relay.upstream_score import UpstreamView
from waystation.protocols.strata.session import PUBLISH, REPLICATE, SUBSCRIBE, Move, Session, State
from waystation.protocols.strata.settings import StrataSettings, read_roots, read_upstreams
from waystation.protocols.strata.wire import (
    client_msg_id_of,
    demand_small,
    encode_auth_ok,
    encode_challenge,
    encode_error,
    read_message,
    subscription_id_of,
)

__all__ = ["StrataRelay"]

PROTOCOL: Final = "strata"
_OFFENCES: Final = frozenset({End.MALFORMED, End.AUTH_FAILURES, End.LIMIT_IGNORED})
"""Ends by a limit of how often a connection may offend."""
SILENT_READER_MS: Final = 60_000  # a reader that takes nothing for so long ends (specs/strata.md 13.3)


class StrataRelay:
    """One relay; see ``core.machine.Machine`` for how to drive it."""

    def __init__(
        self,
        settings: StrataSettings,
        key_pair: KeyPair,
        store: Store,
        rng: random.Random,
        *,
        limits: StrataLimits = DEFAULT_LIMITS,
        rate_limits: bool = True,
        static_dids: Mapping[str, Sequence[StaticKey]] | None = None,
        documents: Sequence[dict[str, object]] = (),
        admits: Callable[[PublicKey], bool] = lambda _identity: True,
        access: IdentityAccess = EVERYBODY,
        waits: Waits = never_waits,
        logs: LogPolicy = NO_LOGS,
    ) -> None:
        """Make a relay without connections over what the store holds.

        Args:
            settings: The operator's settings.
            key_pair: The relay's identity; its DID is the ``server_id``.
            store: The stored packets, events and upstream state.
            rng: Source of challenges.
            limits: What peers may have and do; ``use_limits`` replaces them.
            rate_limits: False lifts allowances, for load tests.
            static_dids: Keys pinned by the operator.
            documents: DID documents of the operator.
            admits: Returns whether a self-certifying key may authenticate.
            access: The operator's lists, as far as ``admits`` does not know them.
            waits: Returns for how long a packet's publisher and author are throttled.
            logs: What the manifest says about logs.
        """
        self._settings = settings
        self.relay_id = encode_did(key_pair.public)
        self._rng = rng
        packets = store.packets
        self._epoch = packets.epoch()
        self._in_force = in_force = InForce(limits)
        self._limits = Limits(in_force, enabled=rate_limits)
        self._allowances = Allowances(self._limits)
        authors = Authors(store, packets)
        pinned, events, skew = static_dids or {}, authors.events, settings.clock_skew_s
        directory = Directory(static_dids=pinned, documents=documents, events=events, skew=skew, limits=in_force)
        self.directory = authors.use(directory)
        self.authorizer = Authorizer(settings, self.relay_id, authors)
        self._throttle = Throttle(waits)
        self._intake = Intake(settings, packets, authors, read_roots(settings.roots), in_force, self._throttle)
        self._outbox = Outbox(in_force)
        mode, policy = settings.provenance_downgrade_mode, lambda: self._intake.policy
        self._delivery = Delivery(
            packets, self._outbox, mode, policy, lambda session: self._allowances.search_wait_s(session, self._now)
        )
        self._retention = Retention(settings, store, packets, authors)
        self._pages = Pages(settings, self.relay_id, packets, directory, policy, in_force, logs)
        self._announcer = Announcer(settings, key_pair, self.relay_id, self._pages.descriptor)
        self._sessions: dict[Peer, Session] = {}
        self._membership = Membership(frozenset(settings.anonymous) & {PUBLISH, SUBSCRIBE}, admits, access)
        upstreams = read_upstreams(settings.upstreams)
        self._replication = Replication(upstreams, key_pair, store, rng, self._offer, in_force, settings.max_backfill_s)
        self._chores = Chores(self._retention, self._replication)
        self._wall_offset = self._wall_s = 0
        self._now = Instant(0)
        self._retiring = False

    # Time

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset = wall_us - now

    def _tick(self, now: Instant) -> int:
        """Note the wall clock and return Unix seconds."""
        self._now, self._wall_s = now, (now + self._wall_offset) // MICROSECONDS_PER_SECOND
        return self._wall_s

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """Accept a connection: it gets its challenge."""
        session = Session(peer, address, self._membership.anonymous(), self._in_force)
        self._sessions[peer] = session
        self._challenge(session, now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """One text frame arrived; an empty one stands for a frame of another kind."""
        wall_s = self._tick(now)
        session = self._sessions.get(peer)
        if session is None:
            if self._replication.handles(peer) and not self._retiring:
                self._replication.receive(peer, data, now, wall_s)
            return
        over = self._allowances.why_no_bytes(session, len(data), now)
        if over is not None and len(data) > READ_UNPAID_BYTES_MAX:
            self._deny(session, over, None, None, now)
            return
        body: object = None
        try:
            demand_small(data, self._settings.max_packet_bytes)
            body = parse(data, MESSAGE_DEPTH_MAX)
            message = read_message(body)
        except RefusedError as error:
            over = over or self._allowances.why_no_frame(session, len(data), now)
            self._on_malformed(session, body, error.refusal, over, now)
            return
        session.malformed = 0
        if isinstance(message, Publish):
            self._on_publish(session, message, len(data), over, now)
        elif isinstance(message, Subscribe):
            self._on_subscribe(session, message, over, now)
        elif isinstance(message, Unsubscribe):
            self._end_subscription(session, message.subscription_id, now)
            over = over or self._allowances.why_no_frame(session, len(data), now)
            if over is not None:
                self._deny(session, over, None, message.subscription_id, now)
        else:
            self._on_auth(session, message, now)

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """The connection ended."""
        session = self._sessions.get(peer)
        if session is not None:
            self._forget(session, "ended", now)
        elif self._replication.handles(peer):
            self._replication.disconnect(peer, now, self._tick(now))

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """A connection to the upstream with the DID ``name`` is open."""
        self._replication.connect(peer, name, now, self._tick(now))

    def congested(self, peer: Peer, now: Instant) -> None:
        """Bytes wait for the peer, or fewer wait than at the last call."""
        session = self._sessions.get(peer)
        if session is not None:
            self._outbox.on_congested(session, now)

    def drained(self, peer: Peer, now: Instant) -> None:
        """No byte waits for the peer."""
        self._tick(now)
        session = self._sessions.get(peer)
        if session is not None:
            self._outbox.on_drained(session)
            self._delivery.read_on(session)

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Signatures have been checked."""
        for candidate, verdict in self._intake.answered(ticket, answers, self._tick(now)):
            self._report_verdict(candidate, verdict, now)

    def committed(self, ticket: int, now: Instant) -> None:
        """Packets are on the disk: answer their publishers, then serve their subscribers."""
        wall_s = self._tick(now)
        if self._chores.committed(ticket):
            return
        verdicts = self._intake.committed(ticket)
        for candidate, verdict in verdicts:
            self._report_verdict(candidate, verdict, now)
        for candidate, verdict in verdicts:
            if verdict.row is not None:
                self._outbox.add(stored_fact(candidate, verdict.row))
                self._delivery.publish(verdict.row, wall_s)
                self._retention.stored(verdict.row, wall_s)

    def not_committed(self, ticket: int, now: Instant) -> None:
        """The store refused: packets are refused with ``NOT_STORED``; retention and cursors are asked for again."""
        self._tick(now)
        if self._chores.not_committed(ticket, now):
            return
        for candidate, verdict in self._intake.not_committed(ticket):
            self._report_verdict(candidate, verdict, now)

    def wake(self, now: Instant) -> None:
        """Close readers that take nothing, and run the retention, replication and announcements that are due."""
        for session in list(self._outbox.congested):
            if now >= after_ms(session.progress_at, SILENT_READER_MS):
                self._close(session, End.NOT_READING, now)
        wall_s = self._tick(now)
        self._chores.wake(now, wall_s)
        self._replication.wake(now, wall_s)
        descriptor = self._announcer.due(now, wall_s)
        if descriptor is not None:
            self._offer(Candidate(descriptor.body, None, now, len(descriptor.canonical)), now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        slowest = next(iter(self._outbox.congested), None)
        due = [after_ms(slowest.progress_at, SILENT_READER_MS)] if slowest is not None else []
        due += self._delivery.deadlines(self._wall_offset)
        return min([*due, *self._replication.deadlines(), self._announcer.look_at, *self._chores.deadlines()])

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered since the last call, in their order."""
        self._delivery.pump(self._wall_s)
        while (verify := self._intake.checks()) is not None:
            self._outbox.add(verify)
        # Behind the packets: a cursor is never on disk ahead of what it stands for (STRATA-REPLICA).
        for commit in (self._intake.rows(), self._chores.commit(self._intake.new_ticket())):
            if commit is not None:
                self._outbox.add(commit)
        return self._outbox.take() + self._replication.take()

    # Commands

    def retire(self) -> None:
        """Refuse new packets; a packet under way still gets its verdict."""
        self._retiring = True

    def settled(self) -> bool:
        """Return whether no packet is under way."""
        return len(self._intake) == 0

    def shut(self, now: Instant) -> None:
        """Close every connection."""
        for session in list(self._sessions.values()):
            self._close(session, End.SHUTDOWN, now)
        self._replication.shut(now, self._tick(now))

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections that authenticated with a self-certifying DID of this key."""
        for session in list(self._sessions.values()):
            if session.identity is not None and key_of_did(session.identity) == identity:
                self._close(session, End.IDENTITY_BANNED, now)

    def review(self, now: Instant) -> None:
        """Close whoever may not be here any more: an identity, or who proves none where one is demanded."""
        for session in self._membership.refused(self._sessions.values()):
            self._close(session, End.IDENTITY_BANNED, now)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """The upstream with the DID ``name`` could not be reached."""
        self._replication.failed(name, self._tick(now))

    def upstream_rest_s(self, name: str, now: Instant) -> int:
        """Return the seconds until the upstream may be tried again."""
        return self._replication.rest_s(name, self._tick(now))

    def upstreams(self, now: Instant) -> dict[str, UpstreamView]:
        """Return the quality of each upstream: score 0 to 1 and state, by DID."""
        return self._replication.views(self._tick(now))

    def use_policy(self, policy: Policy) -> None:
        """Refuse and stop serving by these lists from now on."""
        self._intake.policy = policy

    def use_limits(self, limits: StrataLimits) -> None:
        """Hold peers to these limits from now on; allowances get the new size when they are asked next."""
        self._in_force.now = limits

    def answer(self, path: str, address: str, now: Instant, endpoint: str = "") -> HttpAnswer:
        """Answer a plain GET counted under ``address``; ``endpoint`` is our WebSocket address as it was asked for."""
        refusal = self._limits.take(Scope(address, Rank.ANONYMOUS), Kind.HTTP, now)
        if refusal is not None:
            return self._pages.refused(refusal)
        return self._pages.answer(path, self._tick(now), endpoint, for_anybody=self._membership.for_anybody)

    def sizes(self) -> dict[str, int]:
        """Return the size of each bounded collection."""
        return {
            "connections": len(self._sessions),
            "subscriptions": self._delivery.count,
            **self._intake.sizes(),
            "scopes": len(self._limits),
            "slow_readers": len(self._outbox.congested),
        }

    # Messages

    def _on_malformed(
        self, session: Session, body: object, refusal: Refusal, over: Refusal | None, now: Instant
    ) -> None:
        if refusal.detail == "bad_utf8":
            self._note_refusal(session, refusal)
            self._close(session, End.INVALID_TEXT, now)
            return
        if over is not None:
            self._deny(session, over, client_msg_id_of(body), subscription_id_of(body), now)
            return
        self._refuse(session, refusal, client_msg_id_of(body), subscription_id_of(body))
        session.malformed += 1
        if session.malformed >= self._in_force.now.malformed:
            self._close(session, End.MALFORMED, now)

    def _on_publish(self, session: Session, message: Publish, size: int, over: Refusal | None, now: Instant) -> None:
        if self._retiring:
            self._refuse(session, Refusal(Code.INTERNAL_ERROR, "shutting_down"), message.client_msg_id, None)
            return
        refusal = over or self._allowances.why_no_publish(session, message, now)
        refusal = refusal or self._throttle.refuses(session.identity, now)
        if refusal is not None:
            self._deny(session, refusal, message.client_msg_id, None, now)
            return
        session.limits_ignored = 0
        candidate = Candidate(message.packet, session, now, size, client_msg_id=message.client_msg_id)
        candidate.publisher = session.identity
        session.pending += 1
        session.pending_bytes += candidate.size_bytes
        self._offer(candidate, now)
        if candidate.is_slow:
            self._allowances.charge_slow(session, size, now)
        self._outbox.hold(session)

    def _on_subscribe(self, session: Session, message: Subscribe, over: Refusal | None, now: Instant) -> None:
        wanted = SUBSCRIBE if message.replication_profile is None else REPLICATE
        refusal = over or self._allowances.why_not(session, wanted, Kind.SUBSCRIBE, now)
        profile, old = message.replication_profile, session.subscriptions.get(message.subscription_id)
        if refusal is None and profile is not None and profile not in PROFILES:
            refusal = Refusal(Code.UNSUPPORTED_PROFILE)
        if refusal is None:
            refusal = session.why_no_room(message)
        if refusal is not None:
            self._deny(session, refusal, message.client_msg_id, message.subscription_id, now)
            return
        session.limits_ignored = 0
        try:
            cursor = read_cursor(message, self._epoch, self._delivery.newest)
        except RefusedError as error:
            self._refuse(session, error.refusal, message.client_msg_id, message.subscription_id)
            return
        continued = old if cursor is not None and old is not None and old.filters == message.filters else None
        subscription = Subscription(message, cursor, self._epoch, self._delivery.newest, now, continued)
        if old is not None:
            self._end_subscription(session, old.id, now)
        self._delivery.add(session, subscription)
        self._outbox.add(SubscriptionOpened(PROTOCOL, session.peer, int(REPLICATE in session.capabilities)))

    def _end_subscription(self, session: Session, subscription_id: str, now: Instant) -> None:
        ended = self._delivery.remove(session, subscription_id)
        if ended is not None:
            counts = (ended.history_events, ended.live_events, ended.lags)
            self._outbox.add(SubscriptionEnded(PROTOCOL, session.peer, *counts, now - ended.opened_at))

    # AUTH

    def _on_auth(self, session: Session, message: Auth, now: Instant) -> None:
        refusal = self._limits.take(Scope(session.address, Rank.ANONYMOUS), Kind.AUTH, now)
        if refusal is not None:
            self._deny(session, refusal, message.client_msg_id, None, now)
            return
        granted = self.authorizer.authorize(session, message, self._wall_s)
        if isinstance(granted, Refusal):
            self._on_auth_failed(session, message, granted, now)
            return
        if not self._membership.admits(message.author_id):
            self._refuse(session, Refusal(Code.UNAUTHENTICATED, "banned"), message.client_msg_id, None)
            self._close(session, End.IDENTITY_BANNED, now)
            return
        session.authenticate(message.author_id, frozenset(granted))
        self._membership.joined(session, message.author_id)
        self._outbox.reply(session, encode_auth_ok(message.author_id, granted, message.client_msg_id))
        self._outbox.add(PeerIdentified(PROTOCOL, session.peer, identity_of(message.author_id)))

    def _on_auth_failed(self, session: Session, message: Auth, refusal: Refusal, now: Instant) -> None:
        self._refuse(session, refusal, message.client_msg_id, None)
        if session.state is State.AUTHENTICATED:
            return
        session.auth_failures += 1
        if session.auth_failures >= self._in_force.now.auth_failures:
            self._close(session, End.AUTH_FAILURES, now)
        else:
            self._challenge(session, now)

    def _challenge(self, session: Session, now: Instant) -> None:
        session.new_challenge(self._rng, self._tick(now), self._settings.auth_challenge_s)
        self._outbox.send(session, encode_challenge(session.challenge, self.relay_id, session.challenge_expires_at))

    # Verdicts

    def take_in(self, candidate: Candidate, now: Instant) -> None:
        """Validate a packet that came by no connection; ``candidate.origin`` is called with its verdict."""
        self._tick(now)
        self._offer(candidate, now)

    def _offer(self, candidate: Candidate, now: Instant) -> None:
        verdict = self._intake.offer(candidate, self._wall_s)
        if verdict is not None:
            self._report_verdict(candidate, verdict, now)

    def _report_verdict(self, candidate: Candidate, verdict: Verdict, now: Instant) -> None:
        fact = verdict_fact(candidate, verdict, self._wall_s, now)
        if fact is not None:
            self._outbox.add(fact)
        session = candidate.origin
        if isinstance(session, Place):
            self._replication.on_verdict(session, verdict, self._wall_s, now)
        elif callable(session):
            session(verdict)
        if not isinstance(session, Session):
            return
        if verdict.refusal is not None:
            self._note_refusal(session, verdict.refusal)
        session.pending -= 1
        session.pending_bytes -= candidate.size_bytes
        if session.state is State.CLOSED:
            return
        self._outbox.reply(session, verdict_answer(candidate, verdict))
        self._outbox.resume(session)

    def _deny(
        self, session: Session, refusal: Refusal, client_msg_id: str | None, subscription_id: str | None, now: Instant
    ) -> None:
        """Refuse a request beyond a capability or an allowance; a peer that repeats such requests is closed."""
        self._refuse(session, refusal, client_msg_id, subscription_id)
        session.limits_ignored += 1
        if session.limits_ignored >= self._in_force.now.limits_ignored:
            self._close(session, End.LIMIT_IGNORED, now)

    def _refuse(
        self, session: Session, refusal: Refusal, client_msg_id: str | None, subscription_id: str | None
    ) -> None:
        self._note_refusal(session, refusal)
        answer = encode_error(refusal, client_msg_id=client_msg_id, subscription_id=subscription_id)
        self._outbox.reply(session, answer)

    def _note_refusal(self, session: Session, refusal: Refusal) -> None:
        self._outbox.add(refused_fact(session, reason_of(refusal)))

    # Ends

    def _close(self, session: Session, end: End, now: Instant) -> None:
        if end in _OFFENCES:
            self._outbox.add(refused_fact(session, end.value))
        self._outbox.close(session, end)
        self._forget(session, end.value, now)

    def _forget(self, session: Session, reason: str, now: Instant) -> None:
        session.move(Move.CLOSE)
        self._outbox.congested.pop(session, None)
        for subscription_id in list(session.subscriptions):
            self._end_subscription(session, subscription_id, now)
        del self._sessions[session.peer]
        self._outbox.add(left_fact(session, reason))
