"""Converts facts with raw identities into journal events with keyed references or counts.

``engine.node`` passes each fact in; the events go to the segment writer. Connections that never identify themselves are
only counted per minute. A Bhumi sender is such a connection, and a delivery names only its recipient. Therefore no
event joins a sender to a delivery. Most facts become one event at once. Facts that a peer can repeat at no cost are
aggregated first (``gathering``, ``observations``). For a connection rejected by admission, the event contains its
network as a keyed reference.

Group ids become references too (``references``). No event contains a DID, a packet id, a filter, or text that a peer
chose. Work for a relay never names its worker: a delivery at the same time names its recipient, so both rows together
would link the two.

Totals by outcome, reason, verdict and result are kept for the metrics; their keys are closed enums.
"""

import random
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from waystation.core import facts
from waystation.core.facts import Fact
from waystation.core.instant import Instant
from waystation.core.networks import network_of
from waystation.core.node_facts import AnonymousCounted, NodeStarted, NodeStopped
from waystation.engine.admission import AdmissionRefusal
from waystation.engine.connections import Connection, Connections, Traffic
from waystation.engine.gathering import Gathering, Rule
from waystation.engine.observations import Observations
from waystation.engine.references import References
from waystation.engine.refused_peers import RefusedPeers
from waystation.journal.archive import ArchivedPacket
from waystation.journal.events import RECORDED, Event

__all__ = ["HELD", "WEB", "Recorder"]

ACCEPTED: Final = "accepted"
RELAY_WORK: Final = "relay"
WEB: Final = "web"
"""What counts call the public pages, and connections to a port of several protocols that say no path (NODE-WEB)."""
HELD: Final = "held"
"""What totals call a message that a peer is known to hold."""

REFUSALS_GATHER_MS: Final = 1_000
REFUSAL_KEYS_MAX: Final = 1_024
VERDICTS_GATHER_MS: Final = 1_000
PACKET_KEYS_MAX: Final = 64
"""Rows of packets in one second that name an author: about 20 kB a second at worst."""
WORK_GATHER_MS: Final = 1_000
WORK_KEYS_MAX: Final = 64
"""Rows of rejected work in one second that name a worker: about 15 kB a second at worst."""
ANONYMOUS_GATHER_MS: Final = 60_000
SUBSCRIPTIONS_GATHER_MS: Final = 60_000

_REFUSALS: Final = Rule(facts.Refused, sums=("times",), named=("identity", "network"))
_VERDICTS: Final = Rule(
    facts.PacketJudged,
    sums=("size_bytes", "times"),
    alone=(
        *("packet_id", "content_type", "packet_ts", "received_at", "expires_at", "store_seq"),
        *("origin", "downgrade", "latency_us"),
    ),
    named=("author",),
)
_OPENED: Final = Rule(facts.SubscriptionOpened, sums=("replicates", "times"), dropped=("peer",))
_ENDED: Final = Rule(
    facts.SubscriptionEnded, sums=("history_events", "live_events", "lags", "duration_us", "times"), dropped=("peer",)
)
_WORK: Final = Rule(facts.WorkJudged, sums=("times",), named=("worker",), dropped=("bits", "latency_us"))
_ANONYMOUS: Final = Rule(AnonymousCounted, sums=("opened", "closed"))
_SUMMED: Final = frozenset(
    {each.fact for each in (_REFUSALS, _VERDICTS, _OPENED, _ENDED, _WORK)} | {facts.RelayObserved}
)
"""Kinds that stay in memory for a while; without a journal they are only counted."""

_TOTALS: Final = ("deliveries", "refusals", "packets", "lookups", "leases", "work", "messages")
_COUNTED: Final[dict[type[Any], tuple[str, str]]] = {
    facts.Refused: ("refusals", "reason"),
    facts.PacketJudged: ("packets", "verdict"),
    facts.MeshLookup: ("lookups", "result"),
    facts.LeaseChanged: ("leases", "change"),
    facts.WorkJudged: ("work", "verdict"),
    facts.MessageStored: ("messages", "state"),
    facts.MessageChanged: ("messages", "state"),
}
"""Totals that a fact counts in, and the field that they are counted by."""


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
        self.refused_peers = RefusedPeers()
        """The peers of the last refusals, in memory only."""
        self.connections = Connections()
        """Those that are open, in memory only."""
        self._has_journal = append is not None
        self._archive = archive
        self._wall_offset = 0
        self._gone = Traffic()
        self._totals: dict[str, dict[tuple[str, str], int]] = {total: {} for total in _TOTALS}
        self._references = References(rng)
        self._writers = {fact: self._references.writer(fact, append) if append else _drop for fact in RECORDED}
        self._write_finished = self._writers[facts.DeliveryFinished]
        write = self._write
        self._refusals = Gathering(write, REFUSALS_GATHER_MS, _REFUSALS, keys_max=REFUSAL_KEYS_MAX)
        self._anonymous = Gathering(write, ANONYMOUS_GATHER_MS, _ANONYMOUS, dated_back=True)
        self._verdicts = Gathering(write, VERDICTS_GATHER_MS, _VERDICTS, keys_max=PACKET_KEYS_MAX)
        self._subscriptions = Gathering(write, SUBSCRIPTIONS_GATHER_MS, _OPENED, _ENDED)
        self._rejected_work = Gathering(write, WORK_GATHER_MS, _WORK, keys_max=WORK_KEYS_MAX)
        self._observations = Observations(self._writers[facts.RelayObserved])
        self._sums = (self._refusals, self._anonymous, self._verdicts, self._subscriptions, self._rejected_work)
        self._handlers = {fact: self._handler(fact) for fact in (*RECORDED, facts.PacketStored)}

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset = wall_us - now

    def use_key(self, key: bytes) -> None:
        """Make references with ``key`` from now on; those made before cannot be joined with them."""
        self._references.use_key(key)

    def reference_of(self, identity: bytes) -> bytes:
        """Return the journal's reference of an identity under the present key, 16 bytes."""
        return self._references.of(identity)

    def totals(self) -> dict[str, dict[tuple[str, str], int]]:
        """Return counts since the start, by protocol and value.

        Deliveries are counted by outcome, refusals by reason, packets by verdict, look-ups by result, leases and
        messages of groups by what became of them, work by verdict.
        """
        return {total: dict(counts) for total, counts in self._totals.items()}

    def carried(self) -> tuple[int, int]:
        """Return the bytes received and sent on connections since the start, those that are over included.

        Cost: O(connections).
        """
        all_of_them = [self._gone, *(connection.traffic for connection in self.connections)]
        return sum([each.bytes_in for each in all_of_them]), sum([each.bytes_out for each in all_of_them])

    # What the node reports itself

    def node_started(self, now: Instant, version: str) -> None:
        """The node began to listen."""
        self._write(NodeStarted(version), now)

    def node_stopped(self, now: Instant, reason: str = "stopped") -> None:
        """The node is about to end: write what was gathered, then that."""
        for each in self._sums:
            each.flush(now)
        self._observations.flush()
        self._write(NodeStopped(reason), now)

    def connected(self, connection: Connection) -> None:
        """A connection is established that has not identified itself."""
        self.connections.add(connection)
        self._anonymous.add(AnonymousCounted(connection.protocol, 1, 0), connection.since)

    def refused_by_admission(self, protocol: str, refusal: AdmissionRefusal, now: Instant, address: str = "") -> None:
        """Admission closed a connection; ``address`` is what admission counts it under."""
        self.note(facts.Refused(protocol, None, refusal.value, 1, network_of(address).encode() or None), now)

    def refused_get(self, refusal: AdmissionRefusal, now: Instant, address: str) -> None:
        """A GET of a public page was refused."""
        self.refused_in_memory(WEB, refusal, now, address)

    def refused_in_memory(self, port: str, refusal: Enum, now: Instant, address: str) -> None:
        """A port that belongs to no protocol refused something, which no journal has a row for.

        Args:
            port: "web", "admin" or "bsp_box".
            refusal: The reason.
            now: Monotonic time.
            address: As in ``refused_by_admission``.
        """
        key, counts = (port, refusal.value), self._totals["refusals"]
        counts[key] = counts.get(key, 0) + 1
        self.refused_peers.note(facts.Refused(port, None, refusal.value, 1, network_of(address).encode() or None), now)

    def note(self, fact: Fact, now: Instant) -> None:
        """Record one fact of a relay."""
        self._handlers[type(fact)](fact, now)

    def wake(self, now: Instant) -> None:
        """Write the counts whose time has come."""
        for each in (*self._sums, self._observations):
            each.wake(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        due = [at for at in [each.deadline() for each in (*self._sums, self._observations)] if at is not None]
        return min(due, default=None)

    def _handler(self, fact: type[Any]) -> Callable[[Any, Instant], None]:
        """Return what is done with facts of a kind: most are counted, if at all, and written at once."""
        special: dict[type[Any], Callable[[Any, Instant], None]] = {
            facts.DeliveryFinished: self._finished,
            facts.MessageHeld: self._held,
            facts.PacketJudged: self._judged,
            facts.PacketStored: self._stored,
            facts.PeerIdentified: self._identified,
            facts.PeerLeft: self._left,
            facts.Refused: self._refused,
            facts.RelayObserved: self._observed,
            facts.SubscriptionEnded: self._subscribed,
            facts.SubscriptionOpened: self._subscribed,
            facts.WorkJudged: self._worked,
        }
        then = special.get(fact, self._write)
        if not self._has_journal and fact in _SUMMED:
            then = _drop if fact is not facts.Refused else self.refused_peers.note
        if fact not in _COUNTED:
            return then
        total, field = _COUNTED[fact]
        counts, fields = self._totals[total], fact._fields
        word, times = fields.index(field), fields.index("times") if "times" in fields else None

        def count(fact: Any, now: Instant) -> None:
            key = fact[0], fact[word]
            counts[key] = counts.get(key, 0) + (1 if times is None else fact[times])
            then(fact, now)

        return count

    def _write(self, fact: Any, now: Instant) -> None:
        self._writers[type(fact)](fact, now + self._wall_offset)

    # Facts that need more than to be counted and written

    def _refused(self, fact: facts.Refused, now: Instant) -> None:
        self.refused_peers.note(fact, now)
        self._refusals.add(fact, now)

    def _finished(self, fact: facts.DeliveryFinished, now: Instant) -> None:
        # ``value`` is a property in Python, which costs a fifth of this call.
        key, counts = (fact.protocol, fact.outcome._value_), self._totals["deliveries"]
        counts[key] = counts.get(key, 0) + (fact.tries if fact.latency_us is None else 1)
        self._write_finished(fact, now + self._wall_offset)

    def _held(self, fact: facts.MessageHeld, now: Instant) -> None:
        key, counts = (fact.protocol, HELD), self._totals["messages"]
        counts[key] = counts.get(key, 0) + 1
        self._write(fact, now)

    def _identified(self, fact: facts.PeerIdentified, now: Instant) -> None:
        self._references.identify(fact.peer)
        self.connections.identify(fact.peer, fact.identity)
        self._write(fact, now)

    def _left(self, fact: facts.PeerLeft, now: Instant) -> None:
        traffic = self.connections.remove(fact.peer, fact.reason, now).traffic
        self._gone.bytes_in += traffic.bytes_in
        self._gone.bytes_out += traffic.bytes_out
        if fact.identity is None:
            self._anonymous.add(AnonymousCounted(fact.protocol, 0, 1), now)
            return
        self._write(fact._replace(bytes_in=traffic.bytes_in, bytes_out=traffic.bytes_out), now)
        self._references.forget(fact.peer)

    def _judged(self, fact: facts.PacketJudged, now: Instant) -> None:
        """Write an accepted packet; one that is refused or known costs its sender little, and is summed up."""
        (self._write if fact.verdict == ACCEPTED else self._verdicts.add)(fact, now)

    def _stored(self, fact: facts.PacketStored, now: Instant) -> None:
        """Give a durable packet to the archive; the journal has nothing of it."""
        if self._archive is not None:
            self._archive(
                ArchivedPacket(
                    ts_us=now + self._wall_offset,
                    protocol=fact.protocol,
                    packet_id=fact.packet_id,
                    received_at=fact.received_at,
                    author_id=fact.author_id,
                    content_type=fact.content_type,
                    packet_ts=fact.timestamp,
                    expires_at=fact.expires_at,
                    pubkey=fact.signer,
                    canonical=fact.canonical,
                )
            )

    def _subscribed(self, fact: facts.SubscriptionOpened | facts.SubscriptionEnded, now: Instant) -> None:
        """Write the subscription of an identified connection, and sum up those of anonymous ones."""
        if self._references.is_identified(fact.peer):
            self._write(fact, now)
        else:
            self._subscriptions.add(fact, now)

    def _worked(self, fact: facts.WorkJudged, now: Instant) -> None:
        """Write accepted work, since its worker has paid for it; rejected work is free to offer, and is summed up."""
        if fact.work == RELAY_WORK:
            fact = fact._replace(worker=None)
        (self._write if fact.verdict == ACCEPTED else self._rejected_work.add)(fact, now)

    def _observed(self, fact: facts.RelayObserved, now: Instant) -> None:
        self._observations.add(fact, now, now + self._wall_offset)


def _drop(fact: Any, ts_us: int) -> None:
    """Take the place of a writer where there is no journal."""
