"""The Bhumi relay: who is here, who may send to whom, and where other relays are.

What moves it: frames of clients and other relays, the end of connections, and time. What it holds is soft (spec
principle 5): bindings of identities to connections with their commits, exchanges under way, the response cache, and
what devices and relays have signed about where they are. What it refuses to know: who a sender is.

Parts, each with its own theory: ``connections`` says who is here, ``registration`` (with ``binding``) which identity
counts, ``deliveries`` what becomes of a SEND, ``relay_guide`` answers who asks where somebody is, ``neighbourhood``
(with ``links``, ``gossip`` and ``records``) knows other relays, ``probes_asked`` asks devices to try them. This module
cuts what arrives into frames and says which part takes which.

A relay without a key has the core only: it knows no other relay and signs nothing.

Spec: Bhumi v2; BHUMI-1 to BHUMI-28, BHUMI-L, BHUMI-A1 to BHUMI-A21, BHUMI-C1 to BHUMI-C8, BHUMI-X.
"""

import random
from collections.abc import Callable
from typing import Any, ClassVar, Final

from waystation.core.effects import Effect, Hold, Peer, Send
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.machine import AsksNothing
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import extension_wire, wire
from waystation.protocols.bhumi.binding import Binding
from waystation.protocols.bhumi.connections import Connections
from waystation.protocols.bhumi.deliveries import Deliveries
from waystation.protocols.bhumi.messages import Feature, FrameType, Hello, Keepalive
from waystation.protocols.bhumi.neighbourhood import Neighbourhood
from waystation.protocols.bhumi.probes_asked import ProbesAsked
from waystation.protocols.bhumi.records import Records
from waystation.protocols.bhumi.refusals import MalformedError, Refusal
from waystation.protocols.bhumi.registration import Registration
from waystation.protocols.bhumi.relay_guide import RelayGuide
from waystation.protocols.bhumi.session import Session, State
from waystation.protocols.bhumi.settings import BhumiSettings

__all__ = ["UPSTREAM_DOOR", "BhumiRelay"]

UPSTREAM_DOOR: Final = "upstream"
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
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _identity: True,
        key_pair: KeyPair | None = None,
    ) -> None:
        """Make a relay without connections.

        Args:
            settings: What the operator chose.
            rng: Source of nonces and message numbers; must be unpredictable to peers.
            rate_limits: False lifts the token buckets, and nothing else (BHUMI-C6).
            admits: Asked with each identity that proved itself; False closes the connection.
            key_pair: Who we are to other relays; None for a relay that stands alone.
        """
        self._settings = settings
        self._rng = rng
        self._rate_limits = rate_limits
        self._frame_limits = wire.relay_frame_limits(settings.max_payload_bytes)
        self._connections = Connections()
        self._sessions = self._connections.sessions
        self._runnable = self._connections.runnable
        self._outbox = self._connections.outbox
        self._deliveries = self.deliveries_class(self._connections, settings, rng)
        self._records: Records | None = None
        self._neighbourhood: Neighbourhood | None = None
        self._probes: ProbesAsked | None = None
        self._handlers: dict[int, _Handler] = {}
        binding = None
        if key_pair is not None:
            binding = Binding(key_pair.public, rng, is_required=settings.require_binding)
        offered = _offered(settings, key_pair)
        registration = self._add_core(binding, offered, admits)
        if key_pair is not None and Feature.PRESENCE in offered:
            self._records = Records(key_pair, settings.advertise, takes_private=settings.dials_private)
            self._neighbourhood = self._add_gossip(self._records, key_pair)
        if Feature.QA in offered:
            self._probes = self._add_probes(registration)

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        if self._records is not None:
            self._records.set_wall(now, wall_us)

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "", door: str = "") -> None:
        """A client connected: greet it with a fresh nonce.

        Args:
            peer: Its number.
            now: Monotonic time.
            address: Counts where somebody wants to gossip, and nowhere else.
            door: ``UPSTREAM_DOOR``, or "" for everybody else's.
        """
        assert door in ("", UPSTREAM_DOOR)
        session = Session(peer, self._rng.getrandbits(32), self._frame_limits, now, rate_limits=self._rate_limits)
        session.always_preimage = door == UPSTREAM_DOOR or self._settings.deliver_layout == "preimage"
        session.with_preimage = session.always_preimage
        session.host = address
        self._sessions[peer] = session
        self._outbox.append(Send(peer, wire.encode(Hello(session.nonce, self._settings.max_payload_bytes))))
        self._connections.arm(session)

    def connect_by(self, peer: Peer, door: str, now: Instant, address: str = "") -> None:
        """A client connected through ``door``; else as ``connect``."""
        self.connect(peer, now, address, door)

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """A connection that a ``Dial`` asked for stands; ``name`` is its address."""
        assert self._neighbourhood is not None
        self._neighbourhood.connect_upstream(peer, name, now)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """The address ``name`` could not be reached."""
        assert self._neighbourhood is not None
        self._neighbourhood.upstream_failed(name, now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Bytes of a client or another relay, in any chunking."""
        session = self._sessions.get(peer)
        if session is None:
            if self._neighbourhood is not None:
                self._neighbourhood.receive(peer, data, now)
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
        """A connection ended."""
        session = self._sessions.get(peer)
        if session is None:
            if self._neighbourhood is not None:
                self._neighbourhood.disconnect(peer, now)
            return
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
        elif self._neighbourhood is not None:
            self._neighbourhood.congested(peer, now)

    def drained(self, peer: Peer, now: Instant) -> None:
        """Everything for this peer has left: what it got from the cache is done with."""
        session = self._sessions.get(peer)
        if session is None:
            if self._neighbourhood is not None:
                self._neighbourhood.drained(peer, now)
            return
        session.waiting_since = None
        session.unread_timeouts = 0
        self._deliveries.drained(session)
        if session.held:
            self._runnable.append(session)
            self._run(now)

    def wake(self, now: Instant) -> None:
        """Time passed: end what is overdue."""
        self._deliveries.wake(now)
        for key in list(self._connections.alarms.due(now)):
            session = self._sessions.get(Peer(key))
            if session is not None:
                self._look_at(session, now)
        self._deliveries.sweep(now)
        if self._records is not None:
            self._records.sweep(now)
        if self._neighbourhood is not None:
            self._neighbourhood.wake(now)
        if self._probes is not None:
            self._probes.wake(now)
        self._run(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        candidates = [self._deliveries.deadline(), self._connections.alarms.next_at()]
        if self._records is not None:
            candidates.append(self._records.next_sweep())
        if self._neighbourhood is not None:
            candidates.append(self._neighbourhood.deadline())
        if self._probes is not None:
            candidates.append(self._probes.deadline())
        return min((at for at in candidates if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return the effects since the last call, in their order."""
        if self._neighbourhood is not None:
            self._neighbourhood.gossip.flush()
        outbox = self._outbox
        effects = outbox[:]
        outbox.clear()
        self._deliveries.turn += 1
        return effects

    # Commands of the node

    def heard_of(self, address: str, now: Instant, relay_id: PublicKey | None = None) -> None:
        """Note a relay of the local network, which may be dialled though its address is private.

        Args:
            address: As ``extension_wire.is_address`` has it; anything else is ignored.
            now: Monotonic time.
            relay_id: Who is said to be there.
        """
        if self._neighbourhood is not None and extension_wire.is_address(address):
            self._neighbourhood.heard_of(address, now, relay_id)

    def retire(self) -> None:
        """Take no new work: a SEND that is not answered from the cache gets status 1 (BHUMI-28)."""
        self._deliveries.retire()
        if self._neighbourhood is not None:
            self._neighbourhood.retire()

    def settled(self) -> bool:
        """Return whether no exchange is under way."""
        return not len(self._deliveries.exchanges)

    def shut(self, now: Instant) -> None:
        """Close every connection; whoever still waits for a result gets it first."""
        self._deliveries.shut(now)
        for session in list(self._sessions.values()):
            self._connections.close(session, Refusal.SHUTDOWN, now)
        if self._neighbourhood is not None:
            self._neighbourhood.shut(now)
        self._run(now)

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of an identity that is not admitted any more."""
        session = self._connections.bindings.get(identity)
        if session is not None:
            self._connections.close(session, Refusal.IDENTITY_BANNED, now)
            self._run(now)
        if self._neighbourhood is not None:
            self._neighbourhood.expel(identity, now)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is, for metrics and invariant checkers."""
        exchanges, cache = self._deliveries.exchanges, self._deliveries.cache
        sizes = {
            "connections": len(self._sessions),
            "identities": len(self._connections.bindings),
            "commits": sum(len(session.commits) for session in self._connections.bindings.values()),
            "exchanges": len(exchanges),
            "late_acks": exchanges.late_count,
            "cached_responses": len(cache),
            "cached_bytes": cache.total_bytes,
            "alarms": len(self._connections.alarms),
        }
        if self._records is not None:
            sizes |= self._records.sizes()
        if self._neighbourhood is not None:
            sizes |= self._neighbourhood.sizes()
        if self._probes is not None:
            sizes |= self._probes.sizes()
        return sizes

    def view(self, now: Instant) -> dict[str, Any]:
        """Return what an operator may know of other relays and of devices elsewhere, as plain JSON values.

        Where a single device is, nobody is told here: who asks for it by its identity learns it on the wire.
        """
        records, neighbourhood, probes = self._records, self._neighbourhood, self._probes
        shown: dict[str, Any] = {"address": self._settings.advertise, "contacts": [], "neighbours": []}
        if neighbourhood is not None:
            shown |= neighbourhood.view(now)
        shown["presences"] = len(records.presences) if records is not None else 0
        shown["devices"] = records.presences.devices_count if records is not None else 0
        shown["probes"] = probes.view() if probes is not None else {}
        return shown

    # Parts

    def _add_core(self, binding: Binding | None, offered: Feature, admits: Callable[[PublicKey], bool]) -> Registration:
        """Build what every relay has, and say which frame goes where."""
        registration = Registration(
            self._connections, self._deliveries, binding, offered, self._settings.max_payload_bytes, admits
        )
        self._handlers |= {
            FrameType.I_AM: registration.on_i_am,
            FrameType.SEND: self._deliveries.on_send,
            FrameType.ACK: self._deliveries.on_ack,
            FrameType.KEEPALIVE: self._on_keepalive,
            FrameType.UPDATE_COMMITS: registration.on_update_commits,
            FrameType.OPTIONS: registration.on_options,
            FrameType.REVOKE_COMMITS: self._if_agreed(Feature(0), registration.on_revoke_commits),
        }
        if binding is not None:
            self._handlers[FrameType.BIND] = self._if_agreed(Feature.BINDING, registration.on_bind)
        return registration

    def _add_gossip(self, records: Records, key_pair: KeyPair) -> Neighbourhood:
        """Build what knows other relays."""
        settings, limited = self._settings, self._rate_limits
        neighbourhood = Neighbourhood(self._connections, records, key_pair, settings, self._rng, rate_limits=limited)
        guide = RelayGuide(self._connections, records, self._rng, neighbourhood.told, rate_limits=limited)
        taken = {
            FrameType.PRESENCE: guide.on_presence,
            FrameType.RELAY_AD: guide.on_advert,
            FrameType.WHERE: guide.on_where,
            FrameType.RELAYS_REQUEST: guide.on_relays_request,
            FrameType.GOSSIP: neighbourhood.on_gossip,
        }
        self._handlers |= {kind: self._if_agreed(Feature.PRESENCE, handler) for kind, handler in taken.items()}
        return neighbourhood

    def _add_probes(self, registration: Registration) -> ProbesAsked:
        """Build what asks devices to try other relays."""
        probes = ProbesAsked(self._connections, self._rng, self._candidates)
        registration.on_identified.append(probes.on_identified)
        self._handlers[FrameType.QA_REPORT] = self._if_agreed(Feature.QA, probes.on_report)
        return probes

    def _candidates(self, now: Instant) -> list[str]:
        """Return the addresses that a device may be asked to probe."""
        if self._records is None or self._neighbourhood is None:
            return list(self._settings.peers)
        live = self._records.neighbours.live(self._records.now_s(now))
        advertised = [neighbour.advert.address for neighbour in live]
        return list(dict.fromkeys(self._neighbourhood.configured() + advertised))

    def _if_agreed(self, feature: Feature, handler: _Handler) -> _Handler:
        """Return a handler for connections that have negotiated a feature; for others the frame is unknown."""

        def handle(session: Session, payload: bytes, now: Instant) -> None:
            negotiated = session.negotiated
            if negotiated is not None and feature & negotiated.features == feature:
                handler(session, payload, now)
            else:
                self._on_unknown(session, payload, now)

        return handle

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


def _offered(settings: BhumiSettings, key_pair: KeyPair | None) -> Feature:
    """Return the features that a relay accepts."""
    offered = Feature.DELIVER_WITH_PREIMAGE | Feature.I_AM_OK
    if key_pair is None:
        return offered
    offered |= Feature.BINDING
    if settings.gossip:
        offered |= Feature.PRESENCE
    return offered | Feature.QA if settings.qa else offered
