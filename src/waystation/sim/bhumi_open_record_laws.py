"""What must hold of the records that relays of an open Bhumi world give away: whose they are, how old, to whom they go.

The books here are written from specs/bhumi.md 5 and 7 and from what a ``Tap`` saw, and know nothing of the relay's own
tables. How relays behave otherwise is for ``bhumi_open_laws``.
"""

from collections import deque
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open_records import Slip
from waystation.sim.invariants import Handler, Invariant

__all__ = ["QUESTIONS_BURST", "QUESTIONS_PER_SECOND", "Fresh", "Newest", "NoEcho", "OnlySigned", "OwnWord"]

TOLERANCE_S: Final = 120
"""Between two clocks."""
TTL_MAX_S: Final = {records.PRESENCE: 600, records.RELAY_AD: 3_600}
HINTS_MAX: Final = 8
SURE_AFTER_US: Final = MICROSECONDS_PER_SECOND
"""Until a relay has certainly done with what it was given."""
SEEN_MAX: Final = 8
QUESTIONS_BURST: Final = 20
QUESTIONS_PER_SECOND: Final = 5


class Fresh(Invariant):
    """A relay gives nothing away past its time, nor what no time allows, by its own clock."""

    name = "fresh"

    def handlers(self) -> dict[type, Handler]:
        """Look at what relays give away."""
        return {seen.Gave: self._on_gave}

    def _on_gave(self, gave: seen.Gave, _now: Instant) -> None:
        slip = gave.slip
        if slip.expires_at_s <= gave.wall_s:
            late_s = gave.wall_s - slip.expires_at_s
            raise self.broken(f"relay {gave.node} gives away a record {late_s} s after its end")
        if not 0 < slip.ttl_s <= TTL_MAX_S[slip.kind]:
            raise self.broken(f"relay {gave.node} gives away a record that lasts {slip.ttl_s} s")
        if slip.issued_at_s > gave.wall_s + TOLERANCE_S:
            raise self.broken(f"relay {gave.node} gives away a record of the future")


class OnlySigned(Invariant):
    """What a relay gives away was signed by its owner, to the byte; a relay's advert was first said by itself."""

    name = "only-signed"

    def __init__(self) -> None:
        self._made: set[bytes] = set()
        self._relays: set[bytes] = set()
        self._keys: dict[int, bytes] = {}
        self._checked: set[bytes] = set()

    def handlers(self) -> dict[type, Handler]:
        """Look at what is signed, and at what is given away."""
        return {
            seen.Made: self._on_made,
            seen.RelayBegan: self._on_relay,
            seen.Gave: self._on_gave,
        }

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        self._made.add(made.data)

    def _on_relay(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._relays.add(began.key)
        self._keys[began.node] = began.key

    def _on_gave(self, gave: seen.Gave, _now: Instant) -> None:
        slip = gave.slip
        if slip.kind == records.PRESENCE:
            if slip.data not in self._made:
                raise self.broken(f"relay {gave.node} gives away a presence that {slip.owner.hex()[:16]} never signed")
            return
        if slip.data in self._checked:
            return
        if not records.is_genuine(slip):
            raise self.broken(f"relay {gave.node} gives away an advert that {slip.owner.hex()[:16]} never signed")
        if slip.owner in self._relays and slip.owner != self._keys[gave.node]:
            raise self.broken(f"relay {gave.node} knows an advert that its relay has not said yet")
        self._checked.add(slip.data)


class OwnWord(Invariant):
    """A relay believes about a device what came by gossip or from the device itself, and forgets it with its memory."""

    name = "own-word"

    def __init__(self) -> None:
        self._heard: dict[int, set[bytes]] = {}

    def handlers(self) -> dict[type, Handler]:
        """Look at what relays are given and give away."""
        return {seen.RelayBegan: self._on_began, seen.Took: self._on_took, seen.Gave: self._on_gave}

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._heard[began.node] = set()

    def _on_took(self, took: seen.Took, _now: Instant) -> None:
        if took.is_gossip or took.is_owner:
            self._heard[took.node].add(took.slip.data)

    def _on_gave(self, gave: seen.Gave, _now: Instant) -> None:
        if gave.slip.kind == records.PRESENCE and gave.slip.data not in self._heard[gave.node]:
            raise self.broken(f"relay {gave.node} gives away a presence that nobody may have told it")


class Newest(Invariant):
    """An answer has the newest word per relay, the freshest first, 8 at most, and all that the relay must know."""

    name = "newest"

    def __init__(self) -> None:
        self._honest: set[bytes] = set()
        self._sure: dict[int, dict[bytes, dict[bytes, Slip]]] = {}
        """By relay that knows, device, and relay that is named."""
        self._fresh: dict[int, deque[tuple[Instant, seen.Took]]] = {}
        """What a relay was given just now."""
        self._buckets: dict[tuple[int, int], _Bucket] = {}
        self._seen: dict[int, dict[tuple[bytes, bytes], list[Slip]]] = {}
        """All that a relay was ever given, by device and relay that is named, the last ones."""

    def handlers(self) -> dict[type, Handler]:
        """Look at what relays are given, at ends of connections, and at answers."""
        return {
            seen.Made: self._on_made,
            seen.RelayBegan: self._on_began,
            seen.Took: self._on_took,
            seen.Parted: self._on_parted,
            seen.Questioned: self._on_questioned,
            seen.Answered: self._on_answered,
        }

    def _on_made(self, made: seen.Made, _now: Instant) -> None:
        if made.is_honest:
            self._honest.add(made.data)

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._sure[began.node] = {}
        self._fresh[began.node] = deque()
        self._seen[began.node] = {}
        self._buckets = {place: bucket for place, bucket in self._buckets.items() if place[0] != began.node}

    def _on_took(self, took: seen.Took, now: Instant) -> None:
        slip = took.slip
        is_timely = slip.issued_at_s <= took.wall_s + TOLERANCE_S and slip.expires_at_s > took.wall_s + 1
        if slip.data not in self._honest or not is_timely:
            return
        seen_before = self._seen[took.node].setdefault((slip.owner, slip.relay), [])
        if took.is_sure and not (took.is_gossip and any(_is_renewed(old, took) for old in seen_before)):
            self._fresh[took.node].append((now, took))
        if slip not in seen_before:
            seen_before.append(slip)
            del seen_before[:-SEEN_MAX]

    def _on_parted(self, parted: seen.Parted, now: Instant) -> None:
        """Forget what came over a connection just before its end: the relay may not have looked at it."""
        self._settle(parted.node, now)
        fresh = self._fresh[parted.node]
        self._fresh[parted.node] = deque(each for each in fresh if each[1].peer != parted.peer)
        self._buckets.pop((parted.node, parted.peer), None)

    def _on_questioned(self, question: seen.Questioned, now: Instant) -> None:
        place = (question.node, question.peer)
        self._buckets.setdefault(place, _Bucket(now)).take(question.identity, now)

    def _on_answered(self, answered: seen.Answered, now: Instant) -> None:
        self._settle(answered.node, now)
        slips = answered.slips
        whom = f"relay {answered.node}, asked for {answered.identity.hex()[:16]},"
        if len(slips) > HINTS_MAX:
            raise self.broken(f"{whom} gives {len(slips)} hints, at most {HINTS_MAX}")
        if any(slip.owner != answered.identity for slip in slips):
            raise self.broken(f"{whom} names somebody else")
        if len({slip.relay for slip in slips}) < len(slips):
            raise self.broken(f"{whom} names a relay twice")
        times = [slip.issued_at_s for slip in slips]
        if times != sorted(times, reverse=True):
            raise self.broken(f"{whom} does not give the freshest first")
        self._compare(answered, whom)

    def _compare(self, answered: seen.Answered, whom: str) -> None:
        """Look for everything that the relay must know in its answer."""
        given = {slip.relay: slip.issued_at_s for slip in answered.slips}
        is_full = len(given) == HINTS_MAX
        bucket = self._buckets.get((answered.node, answered.peer))
        came_too_fast = bucket is not None and bucket.answer()
        is_excused = came_too_fast and not given
        for relay, slip in self._sure[answered.node].get(answered.identity, {}).items():
            if relay in given and given[relay] < slip.issued_at_s:
                raise self.broken(f"{whom} gives an old word about {relay.hex()[:16]}, and had a newer one")
            if relay in given or slip.expires_at_s <= answered.wall_s + 1 or is_excused:
                continue
            if not (is_full and min(given.values()) >= slip.issued_at_s):
                raise self.broken(f"{whom} does not say what it was told about {relay.hex()[:16]}")

    def _settle(self, node: int, now: Instant) -> None:
        """Take over what was given long enough ago."""
        fresh, sure = self._fresh[node], self._sure[node]
        while fresh and fresh[0][0] + SURE_AFTER_US <= now:
            slip = fresh.popleft()[1].slip
            places = sure.setdefault(slip.owner, {})
            if slip.relay not in places or places[slip.relay].issued_at_s < slip.issued_at_s:
                places[slip.relay] = slip


def _is_renewed(old: Slip, took: seen.Took) -> bool:
    """Return whether what came by gossip only says again what is not half over: then it is no news (BHUMI-RENEWAL)."""
    return 2 * (old.expires_at_s - took.wall_s) > old.ttl_s


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
    """No record goes back over the only connection on which a relay was ever given it; its own advert goes anywhere."""

    name = "no-echo"

    def __init__(self) -> None:
        self._keys: dict[int, bytes] = {}
        self._from: dict[int, dict[bytes, int | None]] = {}
        """Connection of each record by relay; None when there are several."""

    def handlers(self) -> dict[type, Handler]:
        """Look at what relays are given, and at what they pass on."""
        return {seen.RelayBegan: self._on_began, seen.Took: self._on_took, seen.Gave: self._on_gave}

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._keys[began.node] = began.key
        self._from[began.node] = {}

    def _on_took(self, took: seen.Took, _now: Instant) -> None:
        came = self._from[took.node]
        if came.setdefault(took.slip.data, took.peer) != took.peer:
            came[took.slip.data] = None

    def _on_gave(self, gave: seen.Gave, _now: Instant) -> None:
        is_own = gave.slip.owner == self._keys[gave.node]
        if gave.is_news and not is_own and self._from[gave.node].get(gave.slip.data) == gave.peer:
            raise self.broken(f"relay {gave.node} sends a record back where it came from")
