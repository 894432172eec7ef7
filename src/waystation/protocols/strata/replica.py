"""Reading other relays: each upstream's packets go the same way as a client's, and nothing of theirs is believed.

One ``StrataClient`` per upstream authenticates, subscribes to everything, turns pages and resumes; here its packets
become candidates of the intake, with the upstream's time as witness. A cursor is written down only when every packet
before it has its verdict, in the same commit as the last of them or later, so that a crash repeats packets and never
skips one. What an honest relay could not have sent counts against the upstream's quality, ends the connection, and in
the end bans it.

A cursor that the upstream does not know any more is given up for a time: everything that we could still accept is read
again, under a ``since`` that is kept with the cursor, because a cursor holds for its filter only.

Spec: RFC-0007; specs/strata.md 15, 18; decision STRATA-REPLICA.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from waystation.core.dids import key_of_did
from waystation.core.effects import Close, Effect, Hold, Peer, make_send
from waystation.core.errors import LocalError
from waystation.core.facts import PeerIdentified, PeerLeft, RelayObserved
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Change, Record, Store
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client import StrataClient
from waystation.protocols.strata.client_events import (
    Authenticated,
    AuthFailed,
    ChallengeRefused,
    CloseConnection,
    CursorLost,
    HistoryEnded,
    Limited,
    Output,
    PacketArrived,
    ProtocolFault,
    RelayError,
    SubscriptionRefused,
    Violation,
)
from waystation.protocols.strata.intake import Candidate, Verdict
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.refusals import Code, End
from waystation.protocols.strata.repute import INCIDENTS, Repute, Tell
from waystation.protocols.strata.session import REPLICATE, SUBSCRIBE
from waystation.protocols.strata.settings import Upstream
from waystation.protocols.strata.wire import LIMIT_MAX
from waystation.rules.relay_state import Incident, State

__all__ = ["UPSTREAMS_TABLE", "Place", "Replica", "Replication", "kept_repute"]

PROTOCOL: Final = "strata"
UPSTREAMS_TABLE: Final = "strata_upstreams"
SUBSCRIPTION: Final = "replica"
UNDER_WAY_MAX: Final = 1_024  # packets of one upstream without a verdict; then it is not read
UNDER_WAY_BYTES_MAX: Final = 16_777_216
EVALUATE_MS: Final = 60_000  # specs/strata.md 18
AUTH_WITHIN_MS: Final = 60_000  # ours: an upstream that has not let us in by then does not do so
BACKFILL_S: Final = 604_800  # specs/strata.md 7: older packets are not accepted from anybody
SKEW_S: Final = 300  # an upstream's clock may be so far ahead of its authors'
_TAMPERED: Final = frozenset({"bad_signature", "packet_id_mismatch"})


Offer = Callable[["Candidate", Instant], None]
"""Takes a packet into the intake."""


class UpstreamView(NamedTuple):
    """How an upstream stands, for people."""

    score: float
    """0 to 1."""
    state: str
    """``probation``, ``active``, ``backup`` or ``blacklisted``."""
    reads: bool
    """Whether it has let us in on a connection that stands."""
    trouble: str
    """Why it last did not, empty when nothing is wrong."""
    received_at: int | None
    """``received_at`` of the newest packet that is behind us, Unix seconds."""


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
    """What is on the disk of one upstream."""

    cursor: str | None = None
    received_at: int | None = None
    since: int | None = None
    """The filter under which ``cursor`` was given."""
    repute: bytes = b""


class Replica:
    """Our side of one upstream."""

    def __init__(
        self,
        upstream: Upstream,
        key_pair: KeyPair,
        rng: random.Random,
        kept: bytes | None,
        backfill_s: int = BACKFILL_S,
        tell: Tell | None = None,
    ) -> None:
        """Go on where the disk says; a record that cannot be read is none.

        Args:
            upstream: Whom to read, and as what.
            key_pair: Our identity, with which we authenticate.
            rng: Source of jitter.
            kept: Our record of it, None for none.
            backfill_s: Oldest packets that the intake accepts, in seconds.
            tell: Takes what is seen of it.
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
        self._kept, self.repute = _read(kept)
        if tell is not None:
            self.repute.tell_to(tell, key_of_did(upstream.relay_id) or upstream.relay_id)
        self._backfill_s = backfill_s
        self.peer: Peer | None = None
        self.auth_by: Instant | None = None
        """By when AUTH_OK must have come on this connection; None once it has."""
        self.trouble = ""
        self.held = False
        self.identified = False
        """Whether this connection's other side has proved itself by letting us in."""
        self.places: deque[Place] = deque()
        self.bytes_under_way = 0
        self._dirty = False
        self._subscribed = False

    def begin(self, peer: Peer, now: Instant, wall_s: int) -> None:
        """A connection to the upstream stands."""
        self.peer = peer
        self.auth_by = after_ms(now, AUTH_WITHIN_MS)
        self.repute.connected(wall_s)
        if not self._subscribed:
            self._subscribed = True
            kept = self._kept
            self.client.subscribe(
                SUBSCRIPTION,
                Filters(since=kept.since),
                now,
                cursor=kept.cursor,
                received_at=kept.received_at,
                limit=LIMIT_MAX,
                profile=self.upstream.profile,
            )
        self.client.opened(now, wall_s)

    def end(self, now: Instant, wall_s: int) -> None:
        """The connection is over; one that never let us in was a failure."""
        self.peer = None
        self.held = False
        self.identified = False
        self.repute.disconnected(wall_s)
        if self.auth_by is not None:
            self.auth_by = None
            self.repute.failed(wall_s)
        self.note()
        self.client.closed(now)

    def let_in(self, latency_us: int, wall_s: int) -> None:
        """AUTH_OK came."""
        self.trouble = ""
        self.auth_by = None
        self.repute.succeeded(latency_us, wall_s)

    def lose_subscription(self) -> None:
        """Subscribe anew on the next connection, from where the disk says."""
        self._subscribed = False

    def lose_cursor(self) -> None:
        """Read by time from the next connection on: everything that may have come since, and would be accepted."""
        kept = self._kept
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
        while self.places and self.places[0].decided:
            first = self.places.popleft()
            self.bytes_under_way -= first.size_bytes
            if first.cursor is not None:
                self._kept.cursor = first.cursor
                self._kept.received_at = first.received_at or self._kept.received_at
                self._dirty = True

    def view(self, wall_s: int) -> UpstreamView:
        """Return how it stands."""
        state = self.repute.standing.state.value
        return UpstreamView(self.repute.score(wall_s), state, self.identified, self.trouble, self._kept.received_at)

    def must_hold(self) -> bool:
        """Return whether the upstream may not be read for now."""
        return len(self.places) >= UNDER_WAY_MAX or self.bytes_under_way >= UNDER_WAY_BYTES_MAX

    def may_resume(self) -> bool:
        """Return whether little enough is under way to read on."""
        return len(self.places) <= UNDER_WAY_MAX // 2 and self.bytes_under_way <= UNDER_WAY_BYTES_MAX // 2

    def note(self) -> None:
        """Write the upstream's quality down with the next change."""
        self._kept.repute = self.repute.dump()
        self._dirty = True

    def change(self) -> Record | None:
        """Return what to write, or None when nothing has moved."""
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
        backfill_s: int = BACKFILL_S,
    ) -> None:
        """Take up every upstream where the store says.

        Args:
            upstreams: Whom to read.
            key_pair: Our identity.
            store: Holds their cursors and quality.
            rng: Source of jitter.
            offer: Takes each packet; its verdict comes to ``judged``.
            backfill_s: Oldest packets that the intake accepts, in seconds.
        """
        self._offer = offer
        self._replicas = {
            upstream.relay_id: Replica(
                upstream, key_pair, rng, store.get(UPSTREAMS_TABLE, upstream.relay_id.encode()), backfill_s, self._tell
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
        standing = self._replicas[relay_id].repute.standing
        return max(0, standing.banned_until_s - wall_s) if standing.state is State.BLACKLISTED else 0

    def views(self, wall_s: int) -> dict[str, UpstreamView]:
        """Return how each upstream stands, by its DID."""
        return {relay_id: replica.view(wall_s) for relay_id, replica in self._replicas.items()}

    # Inputs

    def connect(self, peer: Peer, relay_id: str, now: Instant, wall_s: int) -> None:
        """A connection that we dialled stands."""
        replica = self._replicas[relay_id]
        assert replica.peer is None
        self._by_peer[peer] = replica
        replica.begin(peer, now, wall_s)
        self._carry_out(replica, now, wall_s)

    def failed(self, relay_id: str, wall_s: int) -> None:
        """An upstream could not be reached."""
        replica = self._replicas[relay_id]
        replica.repute.failed(wall_s)
        replica.note()

    def receive(self, peer: Peer, data: bytes, now: Instant, wall_s: int) -> None:
        """A message of an upstream arrived."""
        replica = self._by_peer[peer]
        replica.client.receive(data, now, wall_s)
        self._carry_out(replica, now, wall_s)

    def disconnect(self, peer: Peer, now: Instant, wall_s: int, reason: str = "ended") -> None:
        """A connection to an upstream is over."""
        replica = self._by_peer.pop(peer)
        identity = replica.upstream.relay_id.encode() if replica.identified else None
        replica.end(now, wall_s)
        self._carry_out(replica, now, wall_s)
        self._effects.append(PeerLeft(PROTOCOL, peer, identity, reason))

    def judged(self, place: Place, verdict: Verdict, wall_s: int, now: Instant) -> None:
        """A packet of an upstream has its verdict."""
        replica = place.replica
        replica.decided(place)
        refusal = verdict.refusal
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
                replica.repute.evaluate(wall_s)
                replica.note()
            is_banned = replica.repute.standing.state is State.BLACKLISTED
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
        """Return and forget what has to be written."""
        return [change for replica in self._replicas.values() if (change := replica.change()) is not None]

    def _tell(self, seen: RelayObserved) -> None:
        self._effects.append(seen)

    def _carry_out(self, replica: Replica, now: Instant, wall_s: int) -> None:
        for output in replica.client.take():
            peer = replica.peer
            if isinstance(output, bytes):
                if peer is not None:
                    self._effects.append(make_send((peer, output, False)))
            elif isinstance(output, PacketArrived):
                self._take_in(replica, output, now, wall_s)
            elif isinstance(output, HistoryEnded):
                replica.decided(replica.expect(output.cursor, None, 0))
            elif isinstance(output, Authenticated):
                replica.let_in(output.latency_us, wall_s)
                if peer is not None:
                    replica.identified = True
                    self._effects.append(PeerIdentified(PROTOCOL, peer, replica.upstream.relay_id.encode()))
            else:
                self._on_trouble(replica, output, now, wall_s)

    def _on_trouble(self, replica: Replica, output: Output, now: Instant, wall_s: int) -> None:
        """Note what an upstream should not do; end the connection where there is no going on."""
        ends = isinstance(output, CloseConnection)
        if isinstance(output, Violation):
            self._violated(replica, INCIDENTS[output.reason], now, wall_s)
        elif isinstance(output, Limited):
            replica.repute.limited(output.retry_after_s, wall_s)
        elif isinstance(output, AuthFailed | RelayError | ProtocolFault | SubscriptionRefused):
            replica.repute.erred(wall_s)
        replica.trouble = _trouble_of(output) or replica.trouble
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
        # A time from the future must not be where we resume: what comes until then would be skipped.
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
        replica.repute.violated(incident, wall_s)
        replica.note()
        if replica.peer is not None:
            self._close(replica, End.INTEGRITY_VIOLATION, now, wall_s)

    def _close(self, replica: Replica, end: End, now: Instant, wall_s: int) -> None:
        peer = replica.peer
        assert peer is not None
        if replica.held:  # what is not read never hears of its own end
            self._effects.append(Hold(peer, held=False))
        self._effects.append(Close(peer, end, status=end.status))
        self.disconnect(peer, now, wall_s, end.value)


def _trouble_of(output: Output) -> str:
    """Return in words what went wrong, empty for what is no trouble."""
    if isinstance(output, ChallengeRefused):
        return f"its challenge was not answered: {output.reason} (is relay_id in [[strata.upstreams]] its DID?)"
    if isinstance(output, AuthFailed):
        return f"it does not let us in: {output.code} {output.detail}".rstrip() + _hint(output.detail)
    if isinstance(output, SubscriptionRefused):
        return f"it refused our subscription: {output.code} {output.detail}".rstrip() + _hint(output.detail)
    return f"it sent what it must not: {output.reason}" if isinstance(output, Violation) else ""


def _hint(detail: str) -> str:
    lacking = detail in ("no_capability", "missing_capability")
    return " (is our DID in its strata.replicate_allow?)" if lacking else ""


def _read(kept: bytes | None) -> tuple[_Kept, Repute]:
    """Return what is on the disk; what is damaged there begins afresh, which costs reading again and skips nothing."""
    if kept is None:
        return _Kept(), Repute()
    try:
        found = msgspec.msgpack.decode(kept, type=_Kept)
    except msgspec.MsgspecError:
        return _Kept(), Repute()
    try:
        return found, Repute.load(found.repute)
    except LocalError:
        return found, Repute()


def kept_repute(kept: bytes | None) -> Repute:
    """Return the quality that a record of ``UPSTREAMS_TABLE`` tells, for whoever looks at a store from outside."""
    return _read(kept)[1]
