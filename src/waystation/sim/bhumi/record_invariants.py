"""Invariants of the presence and advert records that Bhumi relays send: owner, age, origin and permitted receivers.

A presence is a device's signed record of its relay, an advert a relay's signed record of its address. They follow
specs/bhumi.md 5 and 7 and use only what a ``Tap`` observed, never the relay's own tables.
"""

from collections import deque
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim.bhumi import codec
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.codec import WireRecord
from waystation.sim.invariants import Invariant

__all__ = ["QUESTIONS_BURST", "QUESTIONS_PER_SECOND", "Fresh", "Newest", "NoEcho", "OnlySigned", "OwnWord"]

TOLERANCE_S: Final = 120
"""Between two clocks."""
TTL_MAX_S: Final = {codec.PRESENCE: 600, codec.RELAY_AD: 3_600}
HINTS_MAX: Final = 8
SURE_AFTER_US: Final = MICROSECONDS_PER_SECOND
"""Until a relay has certainly processed what it received."""
SEEN_MAX: Final = 8
QUESTIONS_BURST: Final = 20
QUESTIONS_PER_SECOND: Final = 5


class Fresh(Invariant):
    """A relay sends no record past its end, nor one that no time allows, by its own clock."""

    name = "fresh"

    def _on_sent(self, sent: seen.RecordSent, _now: Instant) -> None:
        record = sent.record
        if record.expires_at_s <= sent.wall_s:
            late_s = sent.wall_s - record.expires_at_s
            raise self.broken(f"relay {sent.node} sends a record {late_s} s after its end")
        if not 0 < record.ttl_s <= TTL_MAX_S[record.kind]:
            raise self.broken(f"relay {sent.node} sends a record that lasts {record.ttl_s} s")
        if record.issued_at_s > sent.wall_s + TOLERANCE_S:
            raise self.broken(f"relay {sent.node} sends a record of the future")


class OnlySigned(Invariant):
    """What a relay sends was signed by its owner, to the byte; a relay's advert was first sent by itself."""

    name = "only-signed"

    def __init__(self) -> None:
        self._made: set[bytes] = set()
        self._relays: set[bytes] = set()
        self._keys: dict[int, bytes] = {}
        self._checked: set[bytes] = set()

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._made.add(made.data)

    def _on_relay(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._relays.add(began.key)
        self._keys[began.node] = began.key

    def _on_sent(self, sent: seen.RecordSent, _now: Instant) -> None:
        record = sent.record
        if record.kind == codec.PRESENCE:
            if record.data not in self._made:
                raise self.broken(f"relay {sent.node} sends a presence that {record.owner.hex()[:16]} never signed")
            return
        if record.data in self._checked:
            return
        if not codec.is_genuine(record):
            raise self.broken(f"relay {sent.node} sends an advert that {record.owner.hex()[:16]} never signed")
        if record.owner in self._relays and record.owner != self._keys[sent.node]:
            raise self.broken(f"relay {sent.node} knows an advert that its relay has not sent yet")
        self._checked.add(record.data)


class OwnWord(Invariant):
    """A presence that a relay sends came by gossip or from the device itself, in this life of the relay."""

    name = "own-word"

    def __init__(self) -> None:
        self._received: dict[int, set[bytes]] = {}

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._received[began.node] = set()

    def _on_received(self, received: seen.RecordReceived, _now: Instant) -> None:
        if received.is_gossip or received.is_owner:
            self._received[received.node].add(received.record.data)

    def _on_sent(self, sent: seen.RecordSent, _now: Instant) -> None:
        if sent.record.kind == codec.PRESENCE and sent.record.data not in self._received[sent.node]:
            raise self.broken(f"relay {sent.node} sends a presence that it cannot have received")


class Newest(Invariant):
    """An answer has the newest record per relay, the freshest first, 8 at most, and all that the relay must know."""

    name = "newest"

    def __init__(self) -> None:
        self._honest: set[bytes] = set()
        self._sure: dict[int, dict[bytes, dict[bytes, WireRecord]]] = {}
        """By relay that knows, device, and relay that is named."""
        self._fresh: dict[int, deque[tuple[Instant, seen.RecordReceived]]] = {}
        """What a relay received just now."""
        self._buckets: dict[tuple[int, int], _Bucket] = {}
        self._seen: dict[int, dict[tuple[bytes, bytes], list[WireRecord]]] = {}
        """All that a relay ever received, by device and relay that is named, the last ones."""

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        if made.is_honest:
            self._honest.add(made.data)

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._sure[began.node] = {}
        self._fresh[began.node] = deque()
        self._seen[began.node] = {}
        self._buckets = {place: bucket for place, bucket in self._buckets.items() if place[0] != began.node}

    def _on_received(self, received: seen.RecordReceived, now: Instant) -> None:
        record = received.record
        is_timely = record.issued_at_s <= received.wall_s + TOLERANCE_S and record.expires_at_s > received.wall_s + 1
        if record.data not in self._honest or not is_timely:
            return
        seen_before = self._seen[received.node].setdefault((record.owner, record.relay), [])
        if received.is_sure and not (received.is_gossip and any(_is_renewed(old, received) for old in seen_before)):
            self._fresh[received.node].append((now, received))
        if record not in seen_before:
            seen_before.append(record)
            del seen_before[:-SEEN_MAX]

    def _on_parted(self, parted: seen.Parted, now: Instant) -> None:
        """Forget what came over a connection just before its end: the relay may not have looked at it."""
        self._settle(parted.node, now)
        fresh = self._fresh[parted.node]
        self._fresh[parted.node] = deque(each for each in fresh if each[1].peer != parted.peer)
        self._buckets.pop((parted.node, parted.peer), None)

    def _on_questioned(self, question: seen.QueryReceived, now: Instant) -> None:
        place = (question.node, question.peer)
        self._buckets.setdefault(place, _Bucket(now)).take(question.identity, now)

    def _on_answered(self, answered: seen.QueryAnswered, now: Instant) -> None:
        self._settle(answered.node, now)
        records = answered.records
        whom = f"relay {answered.node}, asked for {answered.identity.hex()[:16]},"
        if len(records) > HINTS_MAX:
            raise self.broken(f"{whom} gives {len(records)} hints, at most {HINTS_MAX}")
        if any(record.owner != answered.identity for record in records):
            raise self.broken(f"{whom} names another device")
        if len({record.relay for record in records}) < len(records):
            raise self.broken(f"{whom} names a relay twice")
        times = [record.issued_at_s for record in records]
        if times != sorted(times, reverse=True):
            raise self.broken(f"{whom} does not give the freshest first")
        self._compare(answered, whom)

    def _compare(self, answered: seen.QueryAnswered, whom: str) -> None:
        """Look for everything that the relay must know in its answer."""
        given = {record.relay: record.issued_at_s for record in answered.records}
        is_full = len(given) == HINTS_MAX
        bucket = self._buckets.get((answered.node, answered.peer))
        came_too_fast = bucket is not None and bucket.answer()
        is_excused = came_too_fast and not given
        for relay, record in self._sure[answered.node].get(answered.identity, {}).items():
            if relay in given and given[relay] < record.issued_at_s:
                raise self.broken(f"{whom} gives an old record about {relay.hex()[:16]}, and had a newer one")
            if relay in given or record.expires_at_s <= answered.wall_s + 1 or is_excused:
                continue
            if not (is_full and min(given.values()) >= record.issued_at_s):
                raise self.broken(f"{whom} does not give what it received about {relay.hex()[:16]}")

    def _settle(self, node: int, now: Instant) -> None:
        """Take over what was received long enough ago."""
        fresh, sure = self._fresh[node], self._sure[node]
        while fresh and fresh[0][0] + SURE_AFTER_US <= now:
            record = fresh.popleft()[1].record
            places = sure.setdefault(record.owner, {})
            if record.relay not in places or places[record.relay].issued_at_s < record.issued_at_s:
                places[record.relay] = record


def _is_renewed(old: WireRecord, received: seen.RecordReceived) -> bool:
    """Return whether gossip only repeats a record that is not half over: then it is no news (BHUMI-RENEWAL)."""
    return 2 * (old.expires_at_s - received.wall_s) > old.ttl_s


class _Bucket:
    """The questions of one connection that have no answer yet, and whether they came too fast for one."""

    def __init__(self, now: Instant) -> None:
        self._tokens = float(QUESTIONS_BURST)
        self._at = now
        self._waiting: deque[tuple[bytes, bool]] = deque()

    def take(self, identity: bytes, now: Instant) -> None:
        """Note a question."""
        gained = (now - self._at) * QUESTIONS_PER_SECOND / MICROSECONDS_PER_SECOND
        self._tokens = min(QUESTIONS_BURST, self._tokens + gained)
        self._at = now
        # Half a token is left for instants that the relay has rounded.
        is_too_fast = self._tokens < 1.5
        self._tokens = max(0.0, self._tokens - 1)
        self._waiting.append((identity, is_too_fast))

    def answer(self) -> bool:
        """Note an answer; return whether its question came too fast."""
        return self._waiting.popleft()[1] if self._waiting else False


class NoEcho(Invariant):
    """No record goes back over the only connection on which a relay ever received it; its own advert goes anywhere."""

    name = "no-echo"

    def __init__(self) -> None:
        self._keys: dict[int, bytes] = {}
        self._from: dict[int, dict[bytes, int | None]] = {}
        """Connection of each record by relay; None when there are several."""

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._keys[began.node] = began.key
        self._from[began.node] = {}

    def _on_received(self, received: seen.RecordReceived, _now: Instant) -> None:
        came = self._from[received.node]
        if came.setdefault(received.record.data, received.peer) != received.peer:
            came[received.record.data] = None

    def _on_sent(self, sent: seen.RecordSent, _now: Instant) -> None:
        is_own = sent.record.owner == self._keys[sent.node]
        if sent.is_news and not is_own and self._from[sent.node].get(sent.record.data) == sent.peer:
            raise self.broken(f"relay {sent.node} sends a record back where it came from")
