"""The Bhumi relay: it binds identities to connections and delivers requests to them.

Inputs are frames of clients and other relays, ends of connections, and time. All state is in memory (Bhumi v2,
principle 5): bound identities with their commits, exchanges, the response cache, and signed records. The relay never
learns a sender's identity.

``connections`` keeps the sessions. ``registration`` (with ``binding``) accepts identities. ``deliveries`` handles SEND
and ACK, and ``guide`` the questions about devices and relays. ``peering`` (with ``links``, ``gossip`` and ``records``)
connects other relays, and ``probes`` asks devices to try them. This module cuts bytes into frames and dispatches each
frame to one of them.

A relay without a key supports the core frames only: it has no peers and signs nothing.

Spec: Bhumi v2; BHUMI-1 to BHUMI-28, BHUMI-L, BHUMI-A1 to BHUMI-A21, BHUMI-C1 to BHUMI-C8, BHUMI-X.
"""

import random
from collections.abc import Callable
from typing import Any, ClassVar, Final

from waystation.core.effects import Effect, Hold, Peer, Send
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.machine import AsksNothing
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import extension_wire, wire
from waystation.protocols.bhumi.limits import DEFAULT_LIMITS, BhumiLimits
from waystation.protocols.bhumi.messages import Feature, FrameType, Hello, Keepalive
from waystation.protocols.bhumi.refusals import MalformedError, Refusal
from waystation.protocols.bhumi.relay.authorities import Authorities
from waystation.protocols.bhumi.relay.binding import Binding
from waystation.protocols.bhumi.relay.connections import Connections
from waystation.protocols.bhumi.relay.deliveries import Deliveries
from waystation.protocols.bhumi.relay.guide import RelayGuide
from waystation.protocols.bhumi.relay.negotiated import offered_features
from waystation.protocols.bhumi.relay.peering import Peering
from waystation.protocols.bhumi.relay.probes import ProbesAsked
from waystation.protocols.bhumi.relay.records import Records
from waystation.protocols.bhumi.relay.registration import Registration
from waystation.protocols.bhumi.relay.watches import Watches
from waystation.protocols.bhumi.session import Session, State
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.rules.twins import Twins

__all__ = ["UPSTREAM_ENDPOINT", "BhumiRelay"]

UPSTREAM_ENDPOINT: Final = "upstream"
"""Whoever comes through it gets the preimage in every DELIVER, as at an original relay."""

_KEEPALIVE: Final = wire.encode(Keepalive())

_Handler = Callable[[Session, bytes, Instant], None]


class BhumiRelay(AsksNothing):
    """One relay; see ``core.machine.Machine`` for how to drive it."""

    deliveries_class: ClassVar[type[Deliveries]] = Deliveries
    """What keeps the exchanges; the simulator's tests put one with a mistake in its place."""

    def __init__(
        self,
        settings: BhumiSettings,
        rng: random.Random,
        *,
        limits: BhumiLimits = DEFAULT_LIMITS,
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _identity: True,
        is_unlimited: Callable[[PublicKey], bool] = lambda _identity: False,
        key_pair: KeyPair | None = None,
    ) -> None:
        """Make a relay without connections.

        Args:
            settings: What the operator chose.
            rng: Source of nonces and message numbers; must be unpredictable to peers.
            limits: What peers may have and do; ``use_limits`` replaces them.
            rate_limits: False lifts the token buckets, and nothing else (BHUMI-C6).
            admits: Asked with each identity that proved itself; False closes the connection.
            is_unlimited: Asked with the same; True lifts the token buckets of its connection.
            key_pair: Who we are to other relays; None for a relay that stands alone.
        """
        self._settings = settings
        self._rng = rng
        self._rate_limits = rate_limits
        self._admits = admits
        self._is_unlimited = is_unlimited
        self._frame_limits = wire.relay_frame_limits(settings.max_payload_bytes)
        self._limits = InForce(limits)
        self._connections = Connections(self._limits)
        self._sessions = self._connections.sessions
        self._runnable = self._connections.runnable
        self._outbox = self._connections.outbox
        self._deliveries = self.deliveries_class(self._connections, settings, rng)
        self._watches = Watches(self._connections)
        self.authorities = Authorities(self._connections)
        self._records: Records | None = None
        self._peering: Peering | None = None
        self.twins: Twins | None = None
        self._probes: ProbesAsked | None = None
        self._handlers: dict[int, _Handler] = {}
        self._binding: Binding | None = None
        if key_pair is not None:
            self._binding = Binding(key_pair.public, rng, self._limits, is_required=settings.require_binding)
        offered = offered_features(settings, has_key=key_pair is not None)
        registration = self._add_core(self._binding, offered)
        if key_pair is not None and Feature.PRESENCE in offered:
            takes_private = settings.dials_private
            self._records = Records(key_pair, settings.advertise, self._limits, takes_private=takes_private)
            self._peering = self._add_gossip(self._records, key_pair)
            self.twins = self._peering.twins
        if Feature.QA in offered:
            self._probes = self._add_probes(registration)

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        if self._records is not None:
            self._records.set_wall(now, wall_us)

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "", endpoint: str = "") -> None:
        """A client connected: greet it with a fresh nonce.

        Args:
            peer: Its number.
            now: Monotonic time.
            address: Counts where somebody wants to gossip, and nowhere else.
            endpoint: ``UPSTREAM_ENDPOINT``, or "" for everybody else's.
        """
        assert endpoint in ("", UPSTREAM_ENDPOINT)
        nonce = self._rng.getrandbits(32)
        session = Session(peer, nonce, self._frame_limits, self._limits, now, rate_limits=self._rate_limits)
        session.is_original = endpoint == UPSTREAM_ENDPOINT
        # BHUMI-2: the original always shows the preimage in DELIVER; its listener and the setting do the same.
        shown = session.is_original or self._settings.deliver_layout == "preimage"
        session.always_preimage = session.with_preimage = shown
        session.host = address
        self._sessions[peer] = session
        # Bhumi v2 5.1: HELLO leaves at once, before anything is received.
        self._outbox.append(Send(peer, wire.encode(Hello(session.nonce, self._settings.max_payload_bytes))))
        self._connections.arm(session)

    def connect_by(self, peer: Peer, endpoint: str, now: Instant, address: str = "") -> None:
        """A client connected through ``endpoint``; else as ``connect``."""
        self.connect(peer, now, address, endpoint)

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """A connection that a ``Dial`` asked for stands; ``name`` is its address."""
        assert self._peering is not None
        self._peering.connect_upstream(peer, name, now)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """The address ``name`` could not be reached."""
        assert self._peering is not None
        self._peering.upstream_failed(name, now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Bytes of a client or another relay, in any chunking."""
        session = self._sessions.get(peer)
        if session is None:
            if self._peering is not None:
                self._peering.receive(peer, data, now)
            return
        session.active_at = now
        # Fast path: one read is one whole frame, which needs no copy into the buffer.
        frame = None if session.held else session.frames.only_frame(data)
        if frame is None:
            session.frames.feed(data)
        if not session.held:
            self._advance(session, now, frame)
        if self._runnable:
            self._run(now)

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """A connection ended."""
        session = self._sessions.get(peer)
        if session is None:
            if self._peering is not None:
                self._peering.disconnect(peer, now)
            return
        # BHUMI-C4: the end of the stream inside a frame is malformed; a held connection was not read to its end.
        if session.frames.waiting and not session.held:
            self._connections.note_refused(session, Refusal.END_INSIDE_FRAME)
        self._connections.forget(session, "disconnected", now)
        self._run(now)

    def congested(self, peer: Peer, now: Instant) -> None:
        """Bytes wait for this peer; called again whenever some of them have left."""
        session = self._sessions.get(peer)
        if session is not None:
            session.note_congested(now)
            self._connections.arm(session)
        elif self._peering is not None:
            self._peering.congested(peer, now)

    def drained(self, peer: Peer, now: Instant) -> None:
        """Everything for this peer has left: what it got from the cache is done with."""
        session = self._sessions.get(peer)
        if session is None:
            if self._peering is not None:
                self._peering.drained(peer, now)
            return
        session.waiting_since = None
        session.unread_timeouts = 0
        # BHUMI-18: cached answers are evicted only now, since their bytes have left our process.
        self._deliveries.drained(session)
        if session.held:
            self._runnable.append(session)
            self._run(now)

    def wake(self, now: Instant) -> None:
        """Time passed: end what is overdue."""
        self._deliveries.wake(now)
        # Alarms are lazy: they ring early when a timer was moved, so each session is asked again which timer is due.
        for key in list(self._connections.alarms.due(now)):
            session = self._sessions.get(Peer(key))
            if session is not None:
                self._look_at(session, now)
        self._deliveries.sweep(now)
        if self._records is not None:
            self._records.sweep(now)
        if self._peering is not None:
            self._peering.wake(now)
        if self._probes is not None:
            self._probes.wake(now)
        self._run(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        candidates = [self._deliveries.deadline(), self._connections.alarms.next_at()]
        if self._records is not None:
            candidates.append(self._records.next_sweep())
        if self._peering is not None:
            candidates.append(self._peering.deadline())
        if self._probes is not None:
            candidates.append(self._probes.deadline())
        return min((at for at in candidates if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return the effects since the last call, in their order."""
        if self._peering is not None:
            # BHUMI-RUMOUR: what became new in this turn leaves at its end, in as few frames as possible.
            self._peering.gossip.flush()
        self._watches.flush()
        outbox = self._outbox
        effects = outbox[:]
        outbox.clear()
        # Leases remember the turn in which they left, so that an early drain evicts nothing that is still in the
        # outbox.
        self._deliveries.turn += 1
        return effects

    # Commands of the node

    def use_limits(self, limits: BhumiLimits) -> None:
        """Hold peers to these limits from now on; allowances that are counted already get the new size."""
        self._limits.now = limits
        for session in self._sessions.values():
            session.use_limits()
        if self._peering is not None:
            self._peering.use_limits()

    def discovered(self, address: str, now: Instant, relay_id: PublicKey | None = None) -> None:
        """Note a relay of the local network, which may be dialled though its address is private.

        Args:
            address: As ``extension_wire.is_address`` has it; anything else is ignored.
            now: Monotonic time.
            relay_id: Who is said to be there.
        """
        if self._peering is not None and extension_wire.is_address(address):
            self._peering.discovered(address, now, relay_id)

    def retire(self) -> None:
        """Take no new work: a SEND that is not answered from the cache gets status 1 (BHUMI-28)."""
        self._deliveries.retire()
        if self._peering is not None:
            self._peering.retire()

    def settled(self) -> bool:
        """Return whether no exchange is under way."""
        return not len(self._deliveries.exchanges)

    def shut(self, now: Instant) -> None:
        """Close every connection; whoever still waits for a result gets it first."""
        self._deliveries.shut(now)
        for session in list(self._sessions.values()):
            self._connections.close(session, Refusal.SHUTDOWN, now)
        if self._peering is not None:
            self._peering.shut(now)
        self._run(now)

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of an identity that is not admitted any more."""
        session = self._connections.bindings.get(identity)
        if session is not None:
            self._connections.close(session, Refusal.IDENTITY_BANNED, now)
            self._run(now)
        if self._peering is not None:
            self._peering.expel(identity, now)

    def review(self, now: Instant) -> None:
        """Close the connections of every identity that is not admitted any more."""
        known = set(map(PublicKey, self._connections.bindings))
        if self._peering is not None:
            known |= self._peering.relay_ids()
        for identity in sorted(known):
            if not self._admits(identity):
                self.expel(identity, now)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is, for metrics and invariant checkers."""
        exchanges, cache = self._deliveries.exchanges, self._deliveries.cache
        sizes = {
            "connections": len(self._sessions),
            "identities": len(self._connections.bindings),
            "commits": sum(len(session.commits) for session in self._connections.bindings.values()),
            "exchanges": len(exchanges),
            "late_acks": exchanges.late_count,
            "remembered_recipients": exchanges.remembered_recipients,
            "unproven_bytes": self._binding.waiting_bytes if self._binding is not None else 0,
            "cached_responses": len(cache),
            "cached_bytes": cache.total_bytes,
            "watches": len(self._watches),
            "alarms": len(self._connections.alarms),
        }
        if self._records is not None:
            sizes |= self._records.sizes()
        if self._peering is not None:
            sizes |= self._peering.sizes()
        if self._probes is not None:
            sizes |= self._probes.sizes()
        return sizes

    def view(self, now: Instant) -> dict[str, Any]:
        """Return what an operator may know of other relays and of devices elsewhere, as plain JSON values.

        The place of a single device is not shown: a client asks for it by identity, on the wire.
        """
        records, peering, probes = self._records, self._peering, self._probes
        shown: dict[str, Any] = {"address": self._settings.advertise, "contacts": [], "neighbours": []}
        if peering is not None:
            shown |= peering.view(now)
        shown["presences"] = len(records.presences) if records is not None else 0
        shown["devices"] = records.presences.devices_count if records is not None else 0
        shown["probes"] = probes.view() if probes is not None else {}
        return shown

    # Parts

    def _add_core(self, binding: Binding | None, offered: Feature) -> Registration:
        """Build what every relay has, and say which frame goes where."""
        registration = Registration(
            self._connections, self._deliveries, binding, offered, self._settings.max_payload_bytes, self._admits
        )
        registration.on_identified.append(self._lift_rates)
        self._handlers |= {
            FrameType.I_AM: registration.on_i_am,
            FrameType.SEND: self.authorities.before(self._deliveries.on_send),
            FrameType.ACK: self._deliveries.on_ack,
            FrameType.KEEPALIVE: self._on_keepalive,
            FrameType.UPDATE_COMMITS: registration.on_update_commits,
            FrameType.OPTIONS: registration.on_options,
            # Spec 5: REVOKE_COMMITS has no feature bit of its own; any OPTIONS agrees on it.
            FrameType.REVOKE_COMMITS: self._if_agreed(Feature(0), registration.on_revoke_commits),
        }
        registration.on_identified += [self._watches.on_identified, self.authorities.on_identified]
        self._handlers[FrameType.WATCH] = self._if_agreed(Feature.WATCH, self._watches.on_watch)
        if binding is not None:
            self._handlers[FrameType.BIND] = self._if_agreed(Feature.BINDING, registration.on_bind)
        return registration

    def _add_gossip(self, records: Records, key_pair: KeyPair) -> Peering:
        """Build what knows other relays."""
        settings, limited = self._settings, self._rate_limits
        peering = Peering(
            self._connections,
            records,
            key_pair,
            settings,
            self._rng,
            rate_limits=limited,
            admits=self._admits,
        )
        guide = RelayGuide(self._connections, records, self._rng, peering.on_new_record, rate_limits=limited)
        taken = {
            FrameType.PRESENCE: guide.on_presence,
            FrameType.RELAY_AD: guide.on_advert,
            FrameType.WHERE: guide.on_where,
            FrameType.RELAYS_REQUEST: guide.on_relays_request,
            FrameType.GOSSIP: peering.on_gossip,
        }
        self._handlers |= {kind: self._if_agreed(Feature.PRESENCE, handler) for kind, handler in taken.items()}
        return peering

    def _add_probes(self, registration: Registration) -> ProbesAsked:
        """Build what asks devices to try other relays."""
        probes = ProbesAsked(self._connections, self._rng, self._candidates)
        registration.on_identified.append(probes.on_identified)
        self._handlers[FrameType.QA_REPORT] = self._if_agreed(Feature.QA, probes.on_report)
        return probes

    def _candidates(self, now: Instant) -> list[str]:
        """Return the addresses that a device may be asked to probe."""
        if self._records is None or self._peering is None:
            return list(self._settings.peers)
        # Spec 5: a candidate is a live, verified advert or the operator's own peer, so that nobody sends devices
        # elsewhere.
        live = self._records.neighbours.live(self._records.now_s(now))
        advertised = [neighbour.advert.address for neighbour in live]
        return list(dict.fromkeys(self._peering.configured() + advertised))

    def _if_agreed(self, feature: Feature, handler: _Handler) -> _Handler:
        """Return a handler for connections that have negotiated a feature; for others the frame is unknown."""

        def handle(session: Session, payload: bytes, now: Instant) -> None:
            negotiated = session.negotiated
            # BHUMI-24: without agreement an extension frame is ignored and counted, never a reason to close.
            if negotiated is not None and feature & negotiated.features == feature:
                handler(session, payload, now)
            else:
                self._on_unknown(session, payload, now)

        return handle

    def _lift_rates(self, session: Session, _now: Instant) -> None:
        """Hold an identity to no rate that the operator exempts; size and table limits stay."""
        assert session.identity is not None
        if self._is_unlimited(session.identity):
            session.limited = False
            session.bucket = None
            if session.negotiated is not None:
                session.negotiated.lift_rates()

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
            # BHUMI-A11: the allowance stops the reading, never a connection.
            session.bucket.refill(now)
        frames = session.frames
        progressed = False
        hold = session.held and session.must_hold()
        try:
            while not hold and (frame is not None or frames.waiting):
                frame = frame or frames.next_frame()
                if frame is None:
                    break
                # Types that are malformed here were refused by the frame limits; what is left and unknown is an
                # extension.
                handler = self._handlers.get(frame[0], self._on_unknown)
                handler(session, frame[1], now)
                if session.state is State.CLOSED:
                    return
                progressed, frame = True, None
                hold = session.must_hold()
        except MalformedError as error:
            # BHUMI-L: the wire has no error frame; malformed means close, with the reason in the journal.
            self._connections.close(session, error.refusal, now)
            return
        if hold is not session.held:
            session.held = hold
            self._outbox.append(Hold(session.peer, hold))
        if frames.waiting or hold or session.frame_since is not None:
            session.watch_frame(now, progressed=progressed)
            self._connections.arm(session)

    def _on_unknown(self, session: Session, _payload: bytes, _now: Instant) -> None:
        """Ignore and count an extension frame that this connection has not agreed on. BHUMI-24."""
        self._connections.note_refused(session, Refusal.UNKNOWN_EXTENSION)

    def _on_keepalive(self, session: Session, _payload: bytes, _now: Instant) -> None:
        self._connections.reply(session, _KEEPALIVE)

    # Time

    def _look_at(self, session: Session, now: Instant) -> None:
        """An alarm of this connection rang: close it, let it go on, or look again later."""
        if session.state is State.ANONYMOUS and session.outstanding:
            session.active_at = now  # who waits for a result is not idle, BHUMI-L
        refusal = session.overdue(now)
        if refusal is not None:
            self._connections.close(session, refusal, now)
            return
        if session.held:
            self._advance(session, now)
        if session.state is not State.CLOSED:
            self._connections.arm(session)
