"""What must hold of the relays of an open Bhumi world, one checker for each law.

The books here are written from specs/bhumi.md 5 and 7 and from what a ``Tap`` saw, and know nothing of the relay's own
tables. Laws about requests and their outcomes are those of ``invariants``.
"""

from collections import deque
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bhumi.messages import Feature
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open_forgery import is_private
from waystation.sim.bhumi_open_records import Slip
from waystation.sim.invariants import (
    CommitFirst,
    DeliveredOnce,
    Faithful,
    Handler,
    Invariant,
    OneResult,
)

__all__ = [
    "AsksOnce",
    "Bounded",
    "Fresh",
    "GuardedDials",
    "Liveness",
    "Negotiated",
    "Newest",
    "NoEcho",
    "OnlySigned",
    "OwnWord",
    "Prompt",
    "open_invariants",
]

TOLERANCE_S: Final = 120
"""Between two clocks."""
TTL_MAX_S: Final = {records.PRESENCE: 600, records.RELAY_AD: 3_600}
HINTS_MAX: Final = 8
ADVERTS_MAX: Final = 64
SURE_AFTER_US: Final = MICROSECONDS_PER_SECOND
"""Until a relay has certainly done with what it was given."""
ANSWER_US: Final = 2 * MICROSECONDS_PER_SECOND
"""How long a relay may take for an answer."""
SEEN_MAX: Final = 8
QUESTIONS_BURST: Final = 20
QUESTIONS_PER_SECOND: Final = 5
PRESENCES_MAX: Final = 100_000
NEIGHBOURS_MAX: Final = 1_024
LINKS_MAX: Final = 8
CONTACTS_IN_MAX: Final = 64
COMMITS_MAX: Final = 4_096
PENDING_MAX: Final = 32
PROBED_MAX: Final = 16_384
"""Devices that a relay remembers to have asked for a probe, so as not to ask them again too soon."""
RIGHT_SHARE_MIN: Final = 0.95
DUE_MIN: Final = 40
"""Fewer look-ups than this say nothing about a share."""

_FEATURE_OF: Final = {
    0x42: Feature.BINDING,
    0x43: Feature.I_AM_OK,
    **dict.fromkeys(range(records.PRESENCE, records.RELAYS + 1), Feature.PRESENCE),
    0x4A: Feature.QA,
    records.GOSSIP: Feature.PRESENCE,
}
"""What must be agreed on before a relay sends a frame of this type; OPTIONS itself is missing."""


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


class Negotiated(Invariant):
    """An extension frame goes only where its feature was agreed on, and is laid out as the specification says."""

    name = "negotiated"

    def handlers(self) -> dict[type, Handler]:
        """Look at extension frames of relays."""
        return {seen.Said: self._on_said}

    def _on_said(self, said: seen.Said, _now: Instant) -> None:
        if said.features is None:
            raise self.broken(f"relay {said.node} sends {said.kind:#x} to a connection that never sent OPTIONS")
        feature = _FEATURE_OF.get(said.kind)
        if said.kind != records.OPTIONS and (feature is None or not said.features & feature):
            raise self.broken(f"relay {said.node} sends {said.kind:#x} where it was not agreed on")
        if not said.is_readable:
            raise self.broken(f"relay {said.node} sends a {said.kind:#x} that cannot be read")


class Prompt(Invariant):
    """Every question gets one answer, soon and in order; who asks too much gets no more than the named rate."""

    name = "prompt"

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], deque[tuple[Instant, bytes]]] = {}
        self._filled: dict[tuple[int, int], deque[Instant]] = {}
        """When answers that say something were given lately, by connection."""

    def handlers(self) -> dict[type, Handler]:
        """Look at questions and answers."""
        return {
            seen.RelayBegan: self._on_began,
            seen.Questioned: self._on_questioned,
            seen.Answered: self._on_answered,
            seen.Parted: self._on_parted,
            seen.Sized: self._on_sized,
        }

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._waiting = {place: waiting for place, waiting in self._waiting.items() if place[0] != began.node}
        self._filled = {place: times for place, times in self._filled.items() if place[0] != began.node}

    def _on_questioned(self, question: seen.Questioned, now: Instant) -> None:
        self._waiting.setdefault((question.node, question.peer), deque()).append((now, question.identity))

    def _on_answered(self, answered: seen.Answered, now: Instant) -> None:
        place = (answered.node, answered.peer)
        waiting = self._waiting.get(place)
        if not waiting or waiting.popleft()[1] != answered.identity:
            raise self.broken(f"relay {answered.node} gives an answer that is not the next one's")
        if not answered.slips:
            return
        times = self._filled.setdefault(place, deque())
        times.append(now)
        # Over any second there are at most a full bucket, what drips into it, and one for the rounding.
        while times[0] < now - MICROSECONDS_PER_SECOND:
            times.popleft()
        if len(times) > QUESTIONS_BURST + QUESTIONS_PER_SECOND + 1:
            raise self.broken(f"relay {answered.node} answers {len(times)} questions of one connection in a second")

    def _on_sized(self, sized: seen.Sized, now: Instant) -> None:
        """Look whether somebody has waited for too long; now is as good as any time."""
        for (node, peer), waiting in self._waiting.items():
            if node == sized.node and waiting and now - waiting[0][0] > ANSWER_US:
                raise self.broken(f"relay {node} does not answer the question of connection {peer}")

    def _on_parted(self, parted: seen.Parted, _now: Instant) -> None:
        self._waiting.pop((parted.node, parted.peer), None)
        self._filled.pop((parted.node, parted.peer), None)


class GuardedDials(Invariant):
    """No advert makes a relay dial a private address, or hand one on, unless its operator allows that."""

    name = "guarded-dials"

    def __init__(self) -> None:
        self._may: set[int] = set()
        """Relays whose operator allows it."""

    def handlers(self) -> dict[type, Handler]:
        """Look at dials and at adverts."""
        return {seen.RelayBegan: self._on_began, seen.Dialled: self._on_dialled, seen.Gave: self._on_gave}

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        if began.dials_private:
            self._may.add(began.node)

    def _on_dialled(self, dialled: seen.Dialled, _now: Instant) -> None:
        if dialled.is_configured or dialled.node in self._may:
            return
        if not dialled.only_public or is_private(dialled.url):
            raise self.broken(f"relay {dialled.node} would dial {dialled.url} wherever it leads")

    def _on_gave(self, gave: seen.Gave, _now: Instant) -> None:
        if gave.node not in self._may and is_private(gave.slip.address):
            raise self.broken(f"relay {gave.node} passes on an advert for {gave.slip.address}")


class AsksOnce(Invariant):
    """A device's application is asked once per preimage, however often and wherever the request arrives."""

    name = "asks-once"

    def __init__(self) -> None:
        self._handled: set[tuple[bytes, bytes]] = set()

    def handlers(self) -> dict[type, Handler]:
        """Look at applications."""
        return {seen.Handled: self._on_handled}

    def _on_handled(self, handled: seen.Handled, _now: Instant) -> None:
        if handled in self._handled:
            raise self.broken(f"{handled.identity.hex()[:16]} is asked again about {handled.preimage.hex()[:16]}")
        self._handled.add(handled)


class Bounded(Invariant):
    """Nothing grows beyond its limit, and nothing is left of who has left."""

    name = "bounded"

    def handlers(self) -> dict[type, Handler]:
        """Look at sizes."""
        return {seen.Sized: self._on_sized}

    def _on_sized(self, sized: seen.Sized, _now: Instant) -> None:
        for name, limit in _limits_of(sized).items():
            if sized.sizes[name] > limit:
                raise self.broken(f"relay {sized.node}: {name} is {sized.sizes[name]}, at most {limit}")
        kept = {"addresses": sized.peers_count, "probed_devices": PROBED_MAX}
        left = {name: size for name, size in sized.sizes.items() if size > kept.get(name, 0)}
        if sized.settled and left:
            raise self.broken(f"everybody has left relay {sized.node}, and there is still {left}")


class Liveness(Invariant):
    """Where nothing goes wrong look-ups are right, and after the faults everybody is found and answers."""

    name = "liveness"

    def handlers(self) -> dict[type, Handler]:
        """Look at complaints and at the share of right look-ups."""
        return {seen.LeftHanging: self._on_left_hanging, seen.Tallied: self._on_tallied}

    def _on_left_hanging(self, hanging: seen.LeftHanging, _now: Instant) -> None:
        raise self.broken(hanging.what)

    def _on_tallied(self, tallied: seen.Tallied, _now: Instant) -> None:
        if tallied.is_quiet and tallied.due >= DUE_MIN and tallied.right < RIGHT_SHARE_MIN * tallied.due:
            raise self.broken(f"{tallied.right} of {tallied.due} look-ups are right")


def _limits_of(sized: seen.Sized) -> dict[str, int]:
    """Return how much there may be of each thing at a relay."""
    sizes = sized.sizes
    links_max = LINKS_MAX + sized.peers_count
    return {
        "identities": sizes["connections"],
        "commits": sizes["identities"] * COMMITS_MAX,
        "exchanges": sizes["identities"] * PENDING_MAX,
        "alarms": sizes["connections"],
        "presences": PRESENCES_MAX,
        "neighbours": NEIGHBOURS_MAX,
        "links": links_max,
        "contacts": links_max + CONTACTS_IN_MAX,
        "addresses": sized.peers_count + sizes["neighbours"] + links_max,
        "probes_open": sizes["identities"],
        "probed_devices": PROBED_MAX,
    }


def open_invariants() -> list[Invariant]:
    """Return one checker of each law of an open world."""
    return [
        Fresh(),
        OnlySigned(),
        OwnWord(),
        Newest(),
        NoEcho(),
        Negotiated(),
        Prompt(),
        GuardedDials(),
        AsksOnce(),
        DeliveredOnce(),
        CommitFirst(),
        Faithful(),
        OneResult(),
        Bounded(),
        Liveness(),
    ]
