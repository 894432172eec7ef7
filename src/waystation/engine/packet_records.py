"""What the recorder makes of facts about packets and subscriptions.

An accepted packet is one event. Known and refused packets are gathered for a second each, so that a flood of them
becomes a few rows; what only one of several has (its id, its times) is left out of the row they share. Whoever forges
authors cannot multiply rows either: beyond ``PACKET_KEYS_MAX`` of a second the author is left out. Subscriptions of
connections that nobody knows are summed up by the minute, as those connections are.

No event holds a DID, a packet id, a filter, or a word that a stranger chose.
"""

from collections.abc import Callable
from typing import Final

from waystation.core import facts
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.journal import events
from waystation.journal.archive import ArchivedPacket
from waystation.journal.events import Event

__all__ = [
    "ACCEPTED",
    "KNOWN_CONTENT_TYPES",
    "OTHER_CONTENT_TYPE",
    "PACKET_KEYS_MAX",
    "SUBSCRIPTIONS_GATHER_MS",
    "VERDICTS_GATHER_MS",
    "PacketRecords",
]

ACCEPTED: Final = "accepted"
OTHER_CONTENT_TYPE: Final = "other"
VERDICTS_GATHER_MS: Final = 1_000
SUBSCRIPTIONS_GATHER_MS: Final = 60_000
PACKET_KEYS_MAX: Final = 64
"""Kinds of gathered verdicts in one second that name an author: about 20 kB a second at worst."""

KNOWN_CONTENT_TYPES: Final = frozenset(
    {
        *("POST", "MESSAGE", "TRUST_EDGE", "TRUST_REVOCATION", "ATTESTATION", "ATTESTATION_RETRACTION"),
        *("ATTESTATION_DISPUTE", "CONFIG", "STAKE", "STAKE_SLASH", "KEY_EVENT", "RECOVERY_APPROVAL"),
        *("CONSENSUS_METRIC", "CORRECTION", "RELAY_DESCRIPTOR", "CLIENT_MANIFEST"),
        *("PROFILE", "SOCIAL_EDGE", "SOCIAL_EDGE_REVOCATION", "REACTION", "GROUP", "GROUP_MEMBERSHIP"),
        *("LIST", "LIST_MEMBERSHIP", "strata.messaging.key_package.v1"),
    }
)
"""Types that RFC-0002, RFC-0200 and their kin define (specs/strata.md 5); any other is a stranger's word."""

_GatheredKey = tuple[str, bytes | None, bytes, str, str]
"""Protocol, author, relay, verdict, detail."""


class _Gathered:
    """Packets of one second that share a verdict."""

    __slots__ = ("first", "size_bytes", "times")

    def __init__(self, first: facts.PacketJudged) -> None:
        self.first = first
        self.size_bytes = 0
        self.times = 0


class PacketRecords:
    """Turns facts about packets and subscriptions into events and totals; the recorder's hand for them."""

    def __init__(
        self,
        append: Callable[[Event], None] | None,
        archive: Callable[[ArchivedPacket], None] | None,
        reference: Callable[[bytes], bytes],
        reference_once: Callable[[bytes], bytes],
    ) -> None:
        """Start with nothing gathered.

        Args:
            append: Takes each event; None keeps totals only.
            archive: Takes each stored packet; None keeps none.
            reference: Returns the keyed reference of an identity.
            reference_once: Returns the same for what will hardly come again, without remembering it.
        """
        self._append = append
        self._archive = archive
        self._reference = reference
        self._reference_once = reference_once
        self._verdict_totals: dict[tuple[str, str], int] = {}
        self._verdicts: dict[_GatheredKey, _Gathered] = {}
        self._verdicts_due: Instant | None = None
        self._opened: dict[str, list[int]] = {}
        self._ended: dict[str, list[int]] = {}
        self._subscriptions_due: Instant | None = None

    def totals(self) -> dict[tuple[str, str], int]:
        """Return packets since the start by protocol and verdict."""
        return dict(self._verdict_totals)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        due = [at for at in (self._verdicts_due, self._subscriptions_due) if at is not None]
        return min(due, default=None)

    def wake(self, now: Instant, wall_us: int) -> None:
        """Write what was gathered long enough; ``wall_us`` is ``now`` in microseconds UTC."""
        if self._verdicts_due is not None and self._verdicts_due <= now:
            self._flush_verdicts(wall_us)
        if self._subscriptions_due is not None and self._subscriptions_due <= now:
            self._flush_subscriptions(wall_us)

    def flush(self, wall_us: int) -> None:
        """Write everything that was gathered."""
        self._flush_verdicts(wall_us)
        self._flush_subscriptions(wall_us)

    def judged(self, fact: facts.PacketJudged, now: Instant, wall_us: int) -> None:
        """A packet has its verdict."""
        total = (fact.protocol, fact.verdict)
        self._verdict_totals[total] = self._verdict_totals.get(total, 0) + 1
        if self._append is None:
            return
        if fact.verdict == ACCEPTED:
            self._append(self._single(fact, wall_us))
        else:
            self._gather(fact, now)

    def stored(self, fact: facts.PacketStored, wall_us: int) -> None:
        """A packet is durable: it goes to the archive, never to the journal."""
        if self._archive is not None:
            self._archive(
                ArchivedPacket(
                    wall_us,
                    fact.protocol,
                    fact.packet_id,
                    fact.received_at,
                    fact.author_id,
                    fact.content_type,
                    fact.timestamp,
                    fact.expires_at,
                    fact.signer,
                    fact.canonical,
                )
            )

    def opened(self, fact: facts.SubscriptionOpened, conn_ref: bytes | None, now: Instant, wall_us: int) -> None:
        """A subscription began, on a connection that is known by ``conn_ref`` or not known."""
        if self._append is None:
            return
        counts = (int(fact.replicates), 1)
        if conn_ref is not None:
            self._append(events.SubscriptionOpened(wall_us, fact.protocol, conn_ref, *counts))
        else:
            self._sum_up(self._opened, fact.protocol, counts, now)

    def ended(self, fact: facts.SubscriptionEnded, conn_ref: bytes | None, now: Instant, wall_us: int) -> None:
        """A subscription is over, on a connection that is known by ``conn_ref`` or not known."""
        if self._append is None:
            return
        counts = (fact.history_events, fact.live_events, fact.lags, fact.duration_us, 1)
        if conn_ref is not None:
            self._append(events.SubscriptionEnded(wall_us, fact.protocol, conn_ref, *counts))
        else:
            self._sum_up(self._ended, fact.protocol, counts, now)

    def _gather(self, fact: facts.PacketJudged, now: Instant) -> None:
        key: _GatheredKey = (fact.protocol, fact.author, fact.relay, fact.verdict, fact.detail)
        if key not in self._verdicts and len(self._verdicts) >= PACKET_KEYS_MAX:
            key = (fact.protocol, None, fact.relay, fact.verdict, fact.detail)
        gathered = self._verdicts.get(key)
        if gathered is None:
            gathered = self._verdicts[key] = _Gathered(fact)
        gathered.times += 1
        gathered.size_bytes += fact.size_bytes
        if self._verdicts_due is None:
            self._verdicts_due = Instant(now + VERDICTS_GATHER_MS * MICROSECONDS_PER_MS)

    def _sum_up(self, sums: dict[str, list[int]], protocol: str, counts: tuple[int, ...], now: Instant) -> None:
        before = sums.get(protocol, [0] * len(counts))
        sums[protocol] = [total + count for total, count in zip(before, counts, strict=True)]
        if self._subscriptions_due is None:
            self._subscriptions_due = Instant(now + SUBSCRIPTIONS_GATHER_MS * MICROSECONDS_PER_MS)

    def _flush_verdicts(self, wall_us: int) -> None:
        waiting, self._verdicts = self._verdicts, {}
        self._verdicts_due = None
        for (_, author, *_rest), gathered in waiting.items():
            if gathered.times == 1 and author is not None:
                self._write(self._single(gathered.first, wall_us))
            else:
                self._write(self._shared(gathered, author, wall_us))

    def _flush_subscriptions(self, wall_us: int) -> None:
        opened, self._opened = self._opened, {}
        ended, self._ended = self._ended, {}
        self._subscriptions_due = None
        for protocol, counts in opened.items():
            self._write(events.SubscriptionOpened(wall_us, protocol, None, *counts))
        for protocol, counts in ended.items():
            self._write(events.SubscriptionEnded(wall_us, protocol, None, *counts))

    def _single(self, fact: facts.PacketJudged, wall_us: int) -> events.PacketJudged:
        known = fact.content_type in KNOWN_CONTENT_TYPES
        return events.PacketJudged(
            wall_us,
            fact.protocol,
            fact.verdict,
            fact.detail or None,
            self._reference(fact.author),
            self._reference(fact.relay) if fact.relay else None,
            _source(fact),
            fact.size_bytes,
            1,
            self._reference_once(fact.packet_id),
            fact.content_type if known else OTHER_CONTENT_TYPE,
            fact.timestamp,
            fact.received_at,
            fact.expires_at,
            fact.seq,
            fact.claimed_origin or None,
            fact.downgrade_reason or None,
            fact.latency_us,
        )

    def _shared(self, gathered: _Gathered, author: bytes | None, wall_us: int) -> events.PacketJudged:
        fact = gathered.first
        return events.PacketJudged(
            wall_us,
            fact.protocol,
            fact.verdict,
            fact.detail or None,
            self._reference(author) if author is not None else None,
            self._reference(fact.relay) if fact.relay else None,
            _source(fact),
            gathered.size_bytes,
            gathered.times,
        )

    def _write(self, event: Event) -> None:
        assert self._append is not None
        self._append(event)


def _source(fact: facts.PacketJudged) -> str:
    return "peer" if fact.relay else "client"
