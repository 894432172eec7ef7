"""The border between what the node knows and what it writes down.

Facts come in with raw identities; events leave with keyed references, or with counts. Connections that never identify
themselves are counted per minute and appear nowhere else; since a Bhumi sender is such a connection, and a delivery
names only its recipient, nothing in the journal joins a sender to a delivery. Refusals are gathered for a second
each, so that a flood of bad frames becomes one row and not a full disk. What becomes of packets and subscriptions
stands in ``packet_records``, what becomes of look-ups and links between nodes in ``mesh_records``, what was seen
of other relays in ``relay_records``, what becomes of leases and work in ``lease_records``, of messages of groups in
``graph_records``. Of whoever is turned away at the door the network leaves too, as a keyed reference.

Totals by outcome, reason, verdict and result serve the metrics; their keys come from closed enums.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from waystation.core import facts
from waystation.core.facts import Fact, Outcome
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.crypto.hashing import keyed_reference
from waystation.engine.admission import AdmissionRefusal
from waystation.engine.graph_records import GraphRecords
from waystation.engine.lease_records import LeaseRecords
from waystation.engine.mesh_records import MeshRecords
from waystation.engine.networks import network_of
from waystation.engine.packet_records import PacketRecords
from waystation.engine.relay_records import RelayRecords
from waystation.journal import events
from waystation.journal.archive import ArchivedPacket
from waystation.journal.events import Event

__all__ = ["CONNECTION_REFERENCE_BYTES", "Recorder", "Traffic"]

CONNECTION_REFERENCE_BYTES: Final = 8
REFUSALS_GATHER_MS: Final = 1_000
REFUSAL_KEYS_MAX: Final = 1_024  # who is refused in one second; beyond it, identities and networks are left out
ANONYMOUS_GATHER_MS: Final = 60_000
REFERENCES_CACHED_MAX: Final = 16_384
_BOOT_BYTES: Final = 8
_ATTEMPT_BYTES: Final = 8

_RefusalKey = tuple[str, bytes | None, str, str]
"""Protocol, identity, reason, network."""

# As effects.make_send: one of these belongs to every exchange. Fact and event agree from the outcome on.
_make_finished: Final = cast(
    "Callable[[tuple[object, ...]], events.DeliveryFinished]", partial(tuple.__new__, events.DeliveryFinished)
)


class Traffic:
    """Bytes of one connection; the node counts, the recorder reads."""

    __slots__ = ("bytes_in", "bytes_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0


class Recorder:
    """Turns facts into events and totals."""

    def __init__(
        self,
        append: Callable[[Event], None] | None,
        rng: random.Random,
        archive: Callable[[ArchivedPacket], None] | None = None,
    ) -> None:
        """Make a recorder; call ``set_wall`` and ``use_key`` before anything happens.

        Args:
            append: Takes each event; None keeps totals only.
            rng: Source of connection references.
            archive: Takes each packet that is durable; None keeps none.
        """
        self._append = append
        self._rng = rng
        self._wall_offset = 0
        self._key = b""
        self._references: dict[bytes, bytes] = {}
        self._boot = rng.randbytes(_BOOT_BYTES)
        self._traffic: dict[int, Traffic] = {}
        self._gone = Traffic()
        self._connections: dict[int, bytes] = {}
        self._refusals: dict[_RefusalKey, int] = {}
        self._refusals_due: Instant | None = None
        self._anonymous: dict[str, list[int]] = {}
        self._anonymous_due: Instant | None = None
        self._delivery_totals: dict[tuple[str, Outcome], int] = {}
        self._refusal_totals: dict[tuple[str, str], int] = {}
        self._packets = PacketRecords(append, archive, self._reference, self._reference_once)
        self._mesh = MeshRecords(append, self._reference)
        self._relays = RelayRecords(append)
        self._leases = LeaseRecords(append, self._reference)
        self._graphs = GraphRecords(append, self._reference)
        self._at_once: dict[type, Callable[[Any, int], None]] = {
            facts.MessageStored: self._graphs.stored,
            facts.MessageHeld: self._graphs.held,
            facts.MessageChanged: self._graphs.changed,
            facts.PacketStored: self._packets.stored,
            facts.LookupFinished: self._mesh.looked_up,
            facts.LinkEnded: self._mesh.link_ended,
            facts.LeaseChanged: self._leases.changed,
        }
        """Who takes a fact that needs no more than the time of day."""

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset = wall_us - now

    def use_key(self, key: bytes) -> None:
        """Make references with ``key`` from now on; those made before cannot be joined with them."""
        if key != self._key:
            self._key = key
            self._references.clear()

    def totals(self) -> dict[str, dict[tuple[str, str], int]]:
        """Return counts since the start, by protocol and word.

        Deliveries are counted by outcome, refusals by reason, packets by verdict, look-ups by result, leases and
        messages of groups by what became of them, work by verdict.
        """
        deliveries = {(protocol, outcome.value): n for (protocol, outcome), n in self._delivery_totals.items()}
        return {
            "deliveries": deliveries,
            "refusals": dict(self._refusal_totals),
            "packets": self._packets.totals(),
            "lookups": self._mesh.totals(),
            "leases": self._leases.lease_totals(),
            "work": self._leases.work_totals(),
            "messages": self._graphs.totals(),
        }

    def carried(self) -> tuple[int, int]:
        """Return the bytes received and sent on connections since the start, those that are over included.

        Cost: O(connections).
        """
        all_of_them = [self._gone, *self._traffic.values()]
        return sum([each.bytes_in for each in all_of_them]), sum([each.bytes_out for each in all_of_them])

    # What the node tells

    def node_started(self, now: Instant, version: str) -> None:
        """The node began to listen."""
        self._write(events.NodeStarted(now + self._wall_offset, version))

    def node_stopped(self, now: Instant, reason: str = "stopped") -> None:
        """The node is about to end: write what was gathered, then that."""
        self._flush_refusals(now)
        self._flush_anonymous(now)
        self._packets.flush(now + self._wall_offset)
        self._leases.flush(now + self._wall_offset)
        self._relays.flush()
        self._write(events.NodeStopped(now + self._wall_offset, reason))

    def connected(self, protocol: str, peer: int, traffic: Traffic, now: Instant) -> None:
        """A connection stands that nobody knows yet."""
        self._traffic[peer] = traffic
        self._count_anonymous(protocol, opened=1, closed=0, now=now)

    def refused_at_door(self, protocol: str, refusal: AdmissionRefusal, now: Instant, address: str = "") -> None:
        """A connection was closed before it stood; ``address`` is what admission counts it under."""
        self._gather_refusal(protocol, None, refusal.value, 1, now, network_of(address))

    def note(self, fact: Fact, now: Instant) -> None:
        """Record one fact of a relay."""
        if type(fact) is facts.DeliveryFinished:
            self._finished(fact, now)
        elif type(fact) is facts.DeliveryAccepted:
            self._accepted(fact, now)
        elif type(fact) is facts.PeerIdentified:
            self._identified(fact, now)
        elif type(fact) is facts.PeerLeft:
            self._left(fact, now)
        elif type(fact) is facts.Refused:
            self._gather_refusal(fact.protocol, fact.identity, fact.reason, fact.times, now)
        else:
            self._hand_on(fact, now)

    def wake(self, now: Instant) -> None:
        """Write the counts whose time has come."""
        if self._refusals_due is not None and self._refusals_due <= now:
            self._flush_refusals(now)
        if self._anonymous_due is not None and self._anonymous_due <= now:
            self._flush_anonymous(now)
        self._packets.wake(now, now + self._wall_offset)
        self._leases.wake(now, now + self._wall_offset)
        self._relays.wake(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        gathering = (self._packets.deadline(), self._leases.deadline(), self._relays.deadline())
        due = [at for at in (self._refusals_due, self._anonymous_due, *gathering) if at is not None]
        return min(due, default=None)

    # Facts

    def _finished(self, fact: facts.DeliveryFinished, now: Instant) -> None:
        key = (fact.protocol, fact.outcome)
        times = fact.tries if fact.latency_us is None else 1
        self._delivery_totals[key] = self._delivery_totals.get(key, 0) + times
        if self._append is not None:
            self._append(
                _make_finished(
                    (
                        now + self._wall_offset,
                        fact.protocol,
                        self._boot + fact.attempt.to_bytes(_ATTEMPT_BYTES, "big"),
                        self._references.get(fact.recipient) or self._reference(fact.recipient),
                        *fact[3:],
                    )
                )
            )

    def _accepted(self, fact: facts.DeliveryAccepted, now: Instant) -> None:
        if self._append is not None:
            self._append(
                events.DeliveryAccepted(
                    now + self._wall_offset,
                    fact.protocol,
                    self._boot + fact.attempt.to_bytes(_ATTEMPT_BYTES, "big"),
                    self._reference(fact.recipient),
                    fact.payload_bytes,
                )
            )

    def _identified(self, fact: facts.PeerIdentified, now: Instant) -> None:
        reference = self._rng.randbytes(CONNECTION_REFERENCE_BYTES)
        self._connections[fact.peer] = reference
        self._write(
            events.PeerIdentified(now + self._wall_offset, fact.protocol, reference, self._reference(fact.identity))
        )

    def _left(self, fact: facts.PeerLeft, now: Instant) -> None:
        traffic = self._traffic.pop(fact.peer)
        self._gone.bytes_in += traffic.bytes_in
        self._gone.bytes_out += traffic.bytes_out
        if fact.identity is None:
            self._count_anonymous(fact.protocol, opened=0, closed=1, now=now)
            return
        reference = self._connections.pop(fact.peer)
        self._write(
            events.PeerLeft(
                now + self._wall_offset,
                fact.protocol,
                reference,
                self._reference(fact.identity),
                fact.reason,
                traffic.bytes_in,
                traffic.bytes_out,
            )
        )

    def _hand_on(self, fact: Fact, now: Instant) -> None:
        wall_us = now + self._wall_offset
        take = self._at_once.get(type(fact))
        if take is not None:
            take(fact, wall_us)
        elif type(fact) is facts.PacketJudged:
            self._packets.judged(fact, now, wall_us)
        elif type(fact) is facts.SubscriptionOpened:
            self._packets.opened(fact, self._connections.get(fact.peer), now, wall_us)
        elif type(fact) is facts.SubscriptionEnded:
            self._packets.ended(fact, self._connections.get(fact.peer), now, wall_us)
        elif type(fact) is facts.WorkJudged:
            self._leases.judged(fact, now, wall_us)
        elif type(fact) is facts.RelayObserved:
            self._relays.observed(fact, now, wall_us)

    def _gather_refusal(
        self, protocol: str, identity: bytes | None, reason: str, times: int, now: Instant, network: str = ""
    ) -> None:
        total = (protocol, reason)
        self._refusal_totals[total] = self._refusal_totals.get(total, 0) + times
        key = (protocol, identity, reason, network)
        if key not in self._refusals and len(self._refusals) >= REFUSAL_KEYS_MAX:
            key = (protocol, None, reason, "")
        self._refusals[key] = self._refusals.get(key, 0) + times
        if self._refusals_due is None:
            self._refusals_due = Instant(now + REFUSALS_GATHER_MS * MICROSECONDS_PER_MS)

    def _count_anonymous(self, protocol: str, *, opened: int, closed: int, now: Instant) -> None:
        counts = self._anonymous.setdefault(protocol, [0, 0])
        counts[0] += opened
        counts[1] += closed
        if self._anonymous_due is None:
            self._anonymous_due = Instant(now + ANONYMOUS_GATHER_MS * MICROSECONDS_PER_MS)

    def _flush_refusals(self, now: Instant) -> None:
        gathered, self._refusals = self._refusals, {}
        self._refusals_due = None
        for (protocol, identity, reason, network), times in gathered.items():
            peer = self._reference(identity) if identity is not None else None
            source = self._reference_once(network.encode()) if network else None
            self._write(events.Refused(now + self._wall_offset, protocol, peer, reason, times, source))

    def _flush_anonymous(self, now: Instant) -> None:
        gathered, self._anonymous = self._anonymous, {}
        began = (self._anonymous_due or now) - ANONYMOUS_GATHER_MS * MICROSECONDS_PER_MS
        self._anonymous_due = None
        for protocol, (opened, closed) in gathered.items():
            self._write(events.AnonymousCounted(began + self._wall_offset, protocol, opened, closed))

    def _reference(self, identity: bytes) -> bytes:
        """Return the keyed reference of an identity; whoever has no key of ours cannot make or undo it."""
        reference = self._references.get(identity)
        if reference is None:
            if len(self._references) >= REFERENCES_CACHED_MAX:
                self._references.clear()
            reference = keyed_reference(self._key, identity)
            self._references[identity] = reference
        return reference

    def _reference_once(self, subject: bytes) -> bytes:
        return keyed_reference(self._key, subject)

    def _write(self, event: Event) -> None:
        if self._append is not None:
            self._append(event)
