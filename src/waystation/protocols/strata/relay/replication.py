"""Replication: reads packets from other relays (upstreams) and passes them through the same intake as a client's.

The relay passes it what upstream connections bring. Each upstream has one ``StrataClient``, which authenticates,
subscribes to everything, turns pages and resumes. Its packets become candidates of the intake, with the upstream's time
as witness. A cursor is stored only when every packet before it has its verdict, in the same commit as the last of them
or later. So a crash can repeat packets but never skip one. A packet that no honest relay sends lowers the upstream's
score and ends the connection. Repetition bans the upstream.

If the upstream has forgotten a cursor, a time replaces it: everything that we could still accept is read again. That
``since`` is stored with the new cursor, because a cursor is valid for its filter only.

Spec: RFC-0007; specs/strata.md 15, 18; decision STRATA-REPLICA.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from waystation.core.dids import key_of_did
from waystation.core.effects import Close, Effect, Hold, Peer
from waystation.core.errors import LocalError
from waystation.core.facts import PeerIdentified, PeerLeft, RelayObserved
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant, after_ms
from waystation.core.records import Change, Record, Store
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.events import (
    Authenticated,
    AuthFailed,
    CursorLost,
    Event,
    HistoryEnded,
    Limited,
    PacketArrived,
    ProtocolFault,
    RelayError,
    SubscriptionRefused,
    Violation,
)
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.refusals import NOT_STORED, Code, End
from waystation.protocols.strata.relay.intake import Candidate, Verdict
from waystation.protocols.strata.relay.upstream_score import INCIDENTS, Report, UpstreamScore, UpstreamView, failure_of
from waystation.protocols.strata.session import REPLICATE, SUBSCRIBE
from waystation.protocols.strata.settings import Upstream
from waystation.protocols.strata.wire import LIMIT_MAX
from waystation.rules.relay_state import Incident, State

__all__ = ["UPSTREAMS_TABLE", "Place", "Replica", "Replication", "kept_score"]

PROTOCOL: Final = "strata"
UPSTREAMS_TABLE: Final = "strata_upstreams"
SUBSCRIPTION: Final = "replica"
EVALUATE_MS: Final = 60_000  # specs/strata.md 18
AUTH_WITHIN_MS: Final = 60_000  # ours: an upstream that has not authenticated us by then has failed
BACKFILL_S: Final = 604_800  # specs/strata.md 7: older packets are not accepted from any source
SKEW_S: Final = 300  # an upstream's clock may be so far ahead of its authors'
_TAMPERED: Final = frozenset({"bad_signature", "packet_id_mismatch"})


Offer = Callable[["Candidate", Instant], None]
"""Takes a packet into the intake."""


class Place:
    """One packet's place in an upstream's order, until everything before it is decided."""

    __slots__ = ("cursor", "decided", "received_at", "replica", "size_bytes")

    def __init__(self, replica: "Replica", cursor: str | None, received_at: int | None, size_bytes: int) -> None:
        """Remember how far the upstream has come with this packet."""
        self.replica = replica
        self.cursor = cursor
        self.received_at = received_at
        self.size_bytes = size_bytes
        self.decided = False


class _Kept(msgspec.Struct, omit_defaults=True):
    """The record of one upstream on disk."""

    cursor: str | None = None
    received_at: int | None = None
    since: int | None = None
    """The filter under which ``cursor`` was given."""
    upstream_score: bytes = msgspec.field(default=b"", name="repute")
    """The record on disk keeps its first name."""


class Replica:
    """Our side of one upstream."""

    def __init__(
        self,
        upstream: Upstream,
        key_pair: KeyPair,
        rng: random.Random,
        kept: bytes | None,
        limits: InForce[StrataLimits],
        backfill_s: int = BACKFILL_S,
        report: Report | None = None,
    ) -> None:
        """Continue from the stored record; a record that cannot be read is none.

        Args:
            upstream: The relay to read, and the profile.
            key_pair: Our identity, with which we authenticate.
            rng: Source of jitter.
            kept: Our record of it, None for none.
            limits: How much may be without a verdict.
            backfill_s: Oldest packets that the intake accepts, in seconds.
            report: Takes what is seen of it.
        """
        self.upstream = upstream
        self.client = StrataClient(
            rng,
            server_id=upstream.relay_id,
            key_pair=key_pair,
            capabilities=(REPLICATE, SUBSCRIBE),
            require_auth=True,
            keys_of=None,  # the intake checks signatures, in batches
        )
        self._kept, self.upstream_score = _read(kept)
        if report is not None:
            self.upstream_score.report_to(report, key_of_did(upstream.relay_id) or upstream.relay_id)
        self._limits = limits
        self._backfill_s = backfill_s
        self.peer: Peer | None = None
        self.auth_by: Instant | None = None
        """By when AUTH_OK must have come on this connection; None once it has."""
        self.trouble = ""
        self.held = False
        self.identified = False
        """Whether this connection's other side has proved itself by AUTH_OK."""
        self.places: deque[Place] = deque()
        self.bytes_under_way = 0
        self._dirty = False
        self._subscribed = False

    def begin(self, peer: Peer, now: Instant, wall_s: int) -> None:
        """Start on a new connection to the upstream."""
        self.peer = peer
        self.auth_by = after_ms(now, AUTH_WITHIN_MS)
        self.upstream_score.connected(wall_s)
        # The client resumes by itself on later connections; subscribing anew would lose its position.
        if not self._subscribed:
            self._subscribed = True
            kept = self._kept
            self.client.subscribe(
                SUBSCRIPTION,
                # Spec 15: everything; ``since`` stands there only after a lost cursor.
                Filters(since=kept.since),
                now,
                cursor=kept.cursor,
                received_at=kept.received_at,
                limit=LIMIT_MAX,
                profile=self.upstream.profile,
            )
        self.client.set_wall(now, wall_s * MICROSECONDS_PER_SECOND)
        self.client.connect(peer, now)

    def end(self, now: Instant, wall_s: int) -> None:
        """End a connection; one without AUTH_OK was a failure."""
        assert self.peer is not None
        self.client.disconnect(self.peer, now)
        self.peer = None
        self.held = False
        self.identified = False
        self.upstream_score.disconnected(wall_s)
        # Spec 18, ``fail``: a connection counts with its handshake.
        if self.auth_by is not None:
            self.auth_by = None
            self.upstream_score.failed(wall_s)
        self.note()

    def authenticated(self, latency_us: int, wall_s: int) -> None:
        """Note that AUTH_OK came."""
        self.trouble = ""
        self.auth_by = None
        self.upstream_score.succeeded(latency_us, wall_s)

    def lose_subscription(self) -> None:
        """Subscribe anew on the next connection, from the stored cursor."""
        self._subscribed = False

    def rewind(self) -> None:
        """Read on the next connection everything again that has no verdict, because a packet could not be stored."""
        # STRATA-REFUSED: those behind the refused packet may be stored; read again, they are duplicates.
        self.places.clear()
        self.bytes_under_way = 0
        self._subscribed = False
        self.trouble = "our own store took a packet of it not"

    def lose_cursor(self) -> None:
        """Read by time from the next connection on: everything that may have come since, and would be accepted."""
        kept = self._kept
        # Spec 13.1: as far back as a packet could still be accepted, and the clocks may differ.
        reaches_back_s = self._backfill_s + SKEW_S
        kept.since = max(0, kept.received_at - reaches_back_s) if kept.received_at is not None else None
        kept.cursor = None
        self._subscribed = False
        self._dirty = True

    def expect(self, cursor: str | None, received_at: int | None, size_bytes: int) -> Place:
        """Return the place of the next packet."""
        place = Place(self, cursor, received_at, size_bytes)
        self.places.append(place)
        self.bytes_under_way += size_bytes
        return place

    def decided(self, place: Place) -> None:
        """Note that a packet has its verdict, and move the cursor as far as that allows."""
        place.decided = True
        # STRATA-REPLICA: the cursor stands for everything before it, so it moves only from the front.
        while self.places and self.places[0].decided:
            first = self.places.popleft()
            self.bytes_under_way -= first.size_bytes
            if first.cursor is not None:
                self._kept.cursor = first.cursor
                self._kept.received_at = first.received_at or self._kept.received_at
                self._dirty = True

    def view(self, wall_s: int) -> UpstreamView:
        """Return its status."""
        state = self.upstream_score.standing.state.value
        return UpstreamView(
            self.upstream_score.score(wall_s), state, self.identified, self.trouble, self._kept.received_at
        )

    def must_hold(self) -> bool:
        """Return whether the upstream may not be read for now."""
        limits = self._limits.now
        return len(self.places) >= limits.upstream_packets or self.bytes_under_way >= limits.upstream_bytes

    def may_resume(self) -> bool:
        """Return whether little enough is under way to read on."""
        limits = self._limits.now
        # At half, or a busy upstream would be stopped and resumed with every packet.
        return len(self.places) <= limits.upstream_packets // 2 and self.bytes_under_way <= limits.upstream_bytes // 2

    def note(self) -> None:
        """Store the upstream's score with the next change."""
        self._kept.upstream_score = self.upstream_score.dump()
        self._dirty = True

    def change(self) -> Record | None:
        """Return the record to write, or None when nothing has changed."""
        if not self._dirty:
            return None
        self._dirty = False
        return Record(UPSTREAMS_TABLE, self.upstream.relay_id.encode(), msgspec.msgpack.encode(self._kept))


class Replication:
    """All upstreams of one relay."""

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        key_pair: KeyPair,
        store: Store,
        rng: random.Random,
        offer: Offer,
        limits: InForce[StrataLimits],
        backfill_s: int = BACKFILL_S,
    ) -> None:
        """Continue every upstream from its stored record.

        Args:
            upstreams: The relays to read.
            key_pair: Our identity.
            store: Has their cursors and scores.
            rng: Source of jitter.
            offer: Takes each packet; its verdict comes to ``on_verdict``.
            limits: How much of one upstream may be without a verdict.
            backfill_s: Oldest packets that the intake accepts, in seconds.
        """
        self._offer = offer
        self._replicas = {
            upstream.relay_id: Replica(
                upstream,
                key_pair,
                rng,
                store.get(UPSTREAMS_TABLE, upstream.relay_id.encode()),
                limits,
                backfill_s,
                self._report,
            )
            for upstream in upstreams
        }
        self._by_peer: dict[Peer, Replica] = {}
        self._effects: list[Effect] = []
        self._evaluate_at = Instant(0)

    def __len__(self) -> int:
        return len(self._replicas)

    def handles(self, peer: Peer) -> bool:
        """Return whether the connection is one to an upstream."""
        return peer in self._by_peer

    def rest_s(self, relay_id: str, wall_s: int) -> int:
        """Return for how many seconds this upstream must not be dialled."""
        standing = self._replicas[relay_id].upstream_score.standing
        # Spec 15: three violations in a day ban the upstream.
        return max(0, standing.banned_until_s - wall_s) if standing.state is State.BLACKLISTED else 0

    def views(self, wall_s: int) -> dict[str, UpstreamView]:
        """Return the status of each upstream, by its DID."""
        return {relay_id: replica.view(wall_s) for relay_id, replica in self._replicas.items()}

    # Inputs

    def connect(self, peer: Peer, relay_id: str, now: Instant, wall_s: int) -> None:
        """Take a connection that we dialled."""
        replica = self._replicas[relay_id]
        assert replica.peer is None
        self._by_peer[peer] = replica
        replica.begin(peer, now, wall_s)
        self._carry_out(replica, now, wall_s)

    def failed(self, relay_id: str, wall_s: int) -> None:
        """Take the report that an upstream could not be reached."""
        replica = self._replicas[relay_id]
        replica.upstream_score.failed(wall_s)
        replica.note()

    def receive(self, peer: Peer, data: bytes, now: Instant, wall_s: int) -> None:
        """Take a message of an upstream."""
        replica = self._by_peer[peer]
        replica.client.set_wall(now, wall_s * MICROSECONDS_PER_SECOND)
        replica.client.receive(peer, data, now)
        self._carry_out(replica, now, wall_s)

    def disconnect(self, peer: Peer, now: Instant, wall_s: int, reason: str = "ended") -> None:
        """Take the end of a connection to an upstream."""
        replica = self._by_peer.pop(peer)
        identity = replica.upstream.relay_id.encode() if replica.identified else None
        replica.end(now, wall_s)
        self._carry_out(replica, now, wall_s)
        self._effects.append(PeerLeft(PROTOCOL, peer, identity, reason))

    def on_verdict(self, place: Place, verdict: Verdict, wall_s: int, now: Instant) -> None:
        """Take the verdict on a packet of an upstream."""
        replica = place.replica
        refusal = verdict.refusal
        if refusal is NOT_STORED:
            # The cursor must not pass what we could not store: everything after it is read again (STRATA-REFUSED).
            replica.rewind()
            if replica.peer is not None:
                self._close(replica, End.NOT_STORED, now, wall_s)
            return
        replica.decided(place)
        if refusal is not None and refusal.code is Code.INVALID_SIGNATURE and refusal.detail in _TAMPERED:
            self._violated(replica, Incident.BAD_SIGNATURE, now, wall_s)
        if replica.held and replica.peer is not None and replica.may_resume():
            replica.held = False
            self._effects.append(Hold(replica.peer, held=False))

    def wake(self, now: Instant, wall_s: int) -> None:
        """Do what is due in every upstream."""
        evaluates = now >= self._evaluate_at
        if evaluates:
            self._evaluate_at = after_ms(now, EVALUATE_MS)
        for replica in self._replicas.values():
            if evaluates:
                replica.upstream_score.evaluate(wall_s)
                replica.note()
            is_banned = replica.upstream_score.standing.state is State.BLACKLISTED
            is_late = replica.auth_by is not None and now >= replica.auth_by
            if replica.peer is not None and (is_banned or is_late):
                self._close(replica, End.UPSTREAM_FAILED, now, wall_s)
            replica.client.wake(now)
            self._carry_out(replica, now, wall_s)

    def deadlines(self) -> list[Instant]:
        """Return when ``wake`` is due."""
        due = [self._evaluate_at] if self._replicas else []
        for replica in self._replicas.values():
            due += [at for at in (replica.client.deadline(), replica.auth_by) if at is not None]
        return due

    def shut(self, now: Instant, wall_s: int) -> None:
        """End every connection; none of them has failed."""
        for replica in list(self._by_peer.values()):
            replica.auth_by = None
            self._close(replica, End.SHUTDOWN, now, wall_s)

    # Outputs

    def take(self) -> list[Effect]:
        """Return and forget effects in their order."""
        effects, self._effects = self._effects, []
        return effects

    def changes(self) -> list[Change]:
        """Return and forget the records to write."""
        return [change for replica in self._replicas.values() if (change := replica.change()) is not None]

    def _report(self, seen: RelayObserved) -> None:
        self._effects.append(seen)

    def _carry_out(self, replica: Replica, now: Instant, wall_s: int) -> None:
        effects, events = replica.client.take(), replica.client.take_events()
        if replica.peer is not None:
            # Without the client's Close: ``_close`` makes the one that is sent, with our status.
            self._effects += [effect for effect in effects if not isinstance(effect, Close)]
        for event in events:
            peer = replica.peer
            if isinstance(event, PacketArrived):
                self._take_in(replica, event, now, wall_s)
            elif isinstance(event, HistoryEnded):
                # Spec 13.1: the cursor of EOSE waits its turn like a packet's.
                replica.decided(replica.expect(event.cursor, None, 0))
            elif isinstance(event, Authenticated):
                replica.authenticated(event.latency_us, wall_s)
                if peer is not None:
                    replica.identified = True
                    self._effects.append(PeerIdentified(PROTOCOL, peer, replica.upstream.relay_id.encode()))
            else:
                self._on_failure(replica, event, now, wall_s)
        # The client's own reason is in the events: one that reported an incident has ended the connection already.
        if replica.peer is not None and any(isinstance(effect, Close) for effect in effects):
            self._close(replica, End.UPSTREAM_FAILED, now, wall_s)

    def _on_failure(self, replica: Replica, output: Event, now: Instant, wall_s: int) -> None:
        """Note a failure of an upstream; end the connection where it cannot go on."""
        ends = False
        if isinstance(output, Violation):
            self._violated(replica, INCIDENTS[output.reason], now, wall_s)
        elif isinstance(output, Limited):
            replica.upstream_score.limited(output.retry_after_s, wall_s)
        elif isinstance(output, AuthFailed | RelayError | ProtocolFault | SubscriptionRefused):
            replica.upstream_score.erred(wall_s)
        replica.trouble = failure_of(output) or replica.trouble
        if isinstance(output, SubscriptionRefused):
            replica.lose_subscription()
            ends = True
        elif isinstance(output, CursorLost):
            replica.lose_cursor()
            ends = True
        if ends and replica.peer is not None:
            self._close(replica, End.UPSTREAM_FAILED, now, wall_s)

    def _take_in(self, replica: Replica, arrived: PacketArrived, now: Instant, wall_s: int) -> None:
        packet = arrived.packet
        # A time from the future must not become our cursor: every packet until then would be skipped.
        place = replica.expect(arrived.cursor, min(arrived.received_at, wall_s), len(packet.canonical))
        candidate = Candidate(
            packet.body,
            place,
            now,
            place.size_bytes,
            source=replica.upstream.relay_id,
            witness=arrived.received_at,
        )
        if replica.must_hold() and not replica.held and replica.peer is not None:
            replica.held = True
            self._effects.append(Hold(replica.peer, held=True))
        self._offer(candidate, now)

    def _violated(self, replica: Replica, incident: Incident, now: Instant, wall_s: int) -> None:
        replica.upstream_score.violated(incident, wall_s)
        replica.note()
        if replica.peer is not None:
            self._close(replica, End.INTEGRITY_VIOLATION, now, wall_s)

    def _close(self, replica: Replica, end: End, now: Instant, wall_s: int) -> None:
        peer = replica.peer
        assert peer is not None
        if replica.held:  # a held connection would never read its own close
            self._effects.append(Hold(peer, held=False))
        self._effects.append(Close(peer, end, status=end.status))
        self.disconnect(peer, now, wall_s, end.value)


def _read(kept: bytes | None) -> tuple[_Kept, UpstreamScore]:
    """Return the stored record; a damaged one begins afresh, which costs reading again and skips nothing."""
    if kept is None:
        return _Kept(), UpstreamScore()
    try:
        found = msgspec.msgpack.decode(kept, type=_Kept)
    except msgspec.MsgspecError:
        return _Kept(), UpstreamScore()
    try:
        return found, UpstreamScore.load(found.upstream_score)
    except LocalError:
        return found, UpstreamScore()


def kept_score(kept: bytes | None) -> UpstreamScore:
    """Return the score in a record of ``UPSTREAMS_TABLE``, for a program that reads the store from outside."""
    return _read(kept)[1]
