"""Links: the addresses of other relays that this relay dials, and the time of each next attempt.

Addresses come from the operator, from adverts, and from the local network. The operator's are dialled for ever. Only
the operator's and local ones may be private. At most ``links`` (a limit) are connected or being dialled, with a slot
reserved for each of the operator's. A failed address is retried after 1 s, doubled each time up to 5 min; one of the
operator's that cannot be reached within 6 s (NODE-REDIAL).

Two relays need one link: the relay with the smaller key keeps the link that it dialled. The other side closes its own
only after the first has proved its key, so a false claim closes nothing (BHUMI-DOUBLE).

The identity that a dialled relay claims is unproven. At an advertised address it must match the advert, so challenges
cannot be relayed through us. A link never blocks one whose address has a better source: operator, adverts, then local
network.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from waystation.core.effects import Dial
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.limits import TokenBucket
from waystation.core.redial import UNREACHED_MS_MAX, redial_wait_ms
from waystation.core.settings import InForce
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.adverts import KnownAdvert

__all__ = ["RETRY_FIRST_MS", "RETRY_MAX_MS", "Kind", "Links"]

RETRY_FIRST_MS: Final = 1_000  # ours: doubles after each failure
RETRY_MAX_MS: Final = 300_000  # ours: five minutes
STOOD_MS: Final = 30_000  # a link that lasted so long starts the waits from the beginning
LAN_FAILURES_MAX: Final = 8  # ours: mDNS names it again when it is back


class Kind(IntEnum):
    """Who named an address, in the order in which they are dialled."""

    CONFIGURED = 0
    ADVERTISED = 1
    LOCAL = 2


@dataclass(slots=True, eq=False)
class _Place:
    """One address that we dial."""

    address: str
    kind: Kind
    relay_id: PublicKey | None
    """Who is there, as far as itself or the local network has said."""
    due: Instant
    advertised: set[PublicKey] = field(default_factory=set)
    """Whose live adverts name it."""
    failures: int = 0
    is_busy: bool = False
    """Whether a dial or a link is under way."""
    stood_since: Instant | None = None


class Links:
    """Addresses and what became of them. Cost: O(addresses and neighbours) for each look."""

    def __init__(
        self,
        own_key: PublicKey,
        rng: random.Random,
        configured: Collection[str],
        limits: InForce[BhumiLimits],
        own_address: str = "",
        *,
        dials_private: bool = False,
    ) -> None:
        """Remember the operator's addresses; they are due at once.

        Args:
            own_key: Ours.
            rng: Draws neighbours and jitter.
            configured: Addresses of the operator, in the order in which they are dialled.
            limits: How many links there are, and how many addresses of others.
            own_address: Never dialled.
            dials_private: Whether advertised names may lead to private addresses.
        """
        self._own_key = own_key
        self._rng = rng
        self._limits = limits
        self._dials_private = dials_private
        self._own_addresses = dict.fromkeys([own_address] if own_address else [])
        start = Instant(0)  # whatever the clock says first, these are due
        self._places = {
            address: _Place(address, Kind.CONFIGURED, None, start)
            for address in configured
            if address not in self._own_addresses
        }
        self._look_at: Instant | None = start if self._places else None
        # Addresses that the operator did not name: adverts cost nothing, and lead anywhere.
        self._allowance = TokenBucket(limits.now.dials_per_minute, limits.now.dials_burst, start, period_s=60)

    def __len__(self) -> int:
        """Return how many addresses are remembered."""
        return len(self._places)

    @property
    def busy_count(self) -> int:
        """How many links stand or are being dialled."""
        return sum(place.is_busy for place in self._places.values())

    def configured(self) -> list[str]:
        """Return the operator's addresses that are not our own."""
        return [place.address for place in self._places.values() if place.kind is Kind.CONFIGURED]

    def add_local(self, address: str, relay_id: PublicKey | None, now: Instant) -> None:
        """Note a relay of the local network; those that fail longest make room."""
        if address in self._places or address in self._own_addresses or relay_id == self._own_key:
            return
        local = [place for place in self._places.values() if place.kind is Kind.LOCAL]
        # Spec 5: local addresses are claimed by anybody on the network, so their table is small and failures leave
        # first.
        if len(local) >= self._limits.now.local_relays:
            worst = max((place for place in local if not place.is_busy), key=lambda each: each.failures, default=None)
            if worst is None:
                return
            del self._places[worst.address]
        self._places[address] = _Place(address, Kind.LOCAL, relay_id, now)
        self.stir(now)

    def use_limits(self) -> None:
        """Give the allowance for dials its size anew, and look whom there is room for: the limits have changed."""
        self._allowance.change(self._limits.now.dials_per_minute, self._limits.now.dials_burst)
        self.stir(Instant(0))

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        local = sum(place.kind is Kind.LOCAL for place in self._places.values())
        return {
            "addresses": len(self._places),
            "local_relays": local,
            "own_addresses": len(self._own_addresses),
        }

    def stir(self, now: Instant) -> None:
        """Look for somebody to dial at the next occasion: something has changed."""
        self._look_at = now

    def deadline(self) -> Instant | None:
        """Return when ``dials`` may have something to say."""
        return self._look_at

    def dials(self, neighbours: Collection[KnownAdvert], linked: Collection[bytes], now: Instant) -> list[Dial]:
        """Return whom to dial now, each marked as being dialled.

        Args:
            neighbours: Live adverts.
            linked: Proven keys of relays that have dialled us.
            now: Monotonic time.
        """
        if self._look_at is None or self._look_at > now:
            return []
        self._add_advertised(neighbours, now)
        reached = self._reached()
        wanted = [
            place
            for place in self._places.values()
            if not place.is_busy and not self._is_linked(place, linked, reached)
        ]
        ours = [place for place in wanted if place.kind is Kind.CONFIGURED]
        # The operator's addresses always have room; others share what is left.
        room = self._limits.now.links - self.busy_count - len(ours)
        others = [place for place in wanted if place.kind is not Kind.CONFIGURED]
        self._rng.shuffle(others)
        others.sort(key=lambda place: place.kind)
        chosen = [place for place in ours if place.due <= now]
        for place in [place for place in others if place.due <= now][: max(0, room)]:
            # BHUMI-DIALS: adverts are free and could send all relays to one victim.
            if self._allowance.take(now):
                chosen.append(place)
            else:
                place.due = self._allowance.ready_at()
        for place in chosen:
            place.is_busy = True
        rest = [place.due for place in wanted if not place.is_busy and (room > 0 or place.kind is Kind.CONFIGURED)]
        self._look_at = min((due for due in rest if due > now), default=None)
        return [self._dial(place) for place in chosen]

    def unreachable(self, address: str, now: Instant) -> None:
        """A dial came to nothing."""
        place = self._places.get(address)
        is_ours = place is not None and place.kind is Kind.CONFIGURED
        self.failed(address, now, longest_ms=UNREACHED_MS_MAX if is_ours else RETRY_MAX_MS)

    def failed(self, address: str, now: Instant, *, longest_ms: int = RETRY_MAX_MS) -> None:
        """A connection that was dialled is over; wait at most ``longest_ms``."""
        place = self._places.get(address)
        if place is None:
            return
        stood_ms = (now - place.stood_since) // 1_000 if place.stood_since is not None else 0
        place.is_busy, place.stood_since = False, None
        # A link that was up long enough starts the waits anew; one that flaps doubles them.
        place.failures = 0 if stood_ms >= STOOD_MS else place.failures + 1
        if place.kind is Kind.LOCAL and place.failures >= LAN_FAILURES_MAX:
            del self._places[address]  # mDNS names it again when it is back
        steps = max(0, place.failures - 1)
        place.due = after_ms(now, redial_wait_ms(steps, self._rng, first_ms=RETRY_FIRST_MS, longest_ms=longest_ms))
        self.stir(now)

    def stands(self, address: str, now: Instant) -> None:
        """A link to this address stands."""
        place = self._places.get(address)
        if place is not None:
            place.stood_since = now

    def judge(self, address: str, relay_id: PublicKey, standing: Collection[str], dialled_us: bool) -> Refusal | None:
        """Return why a connection that we dialled must not become a link; None when it may.

        Args:
            address: What was dialled.
            relay_id: Who the other side says it is.
            standing: Addresses of the links of ours that stand.
            dialled_us: Whether a relay that has proved this key is linked with us by a connection of its own.
        """
        place = self._places.get(address)
        if relay_id == self._own_key:
            if len(self._own_addresses) < self._limits.now.own_addresses:
                self._own_addresses[address] = None
            self._places.pop(address, None)
            return Refusal.OWN_KEY
        if place is not None:
            # BHUMI-LINK: at an advertised address only a relay whose live advert names it, so that no challenge is
            # passed on.
            if place.kind is Kind.ADVERTISED and relay_id not in place.advertised:
                return Refusal.OTHER_IDENTITY
            place.relay_id = relay_id
        kind = place.kind if place is not None else Kind.LOCAL
        others = (self._places.get(other) for other in standing if other != address)
        # BHUMI-DOUBLE: the address that was named by somebody better keeps its link.
        if any(other is not None and other.relay_id == relay_id and other.kind <= kind for other in others):
            return Refusal.DOUBLE_LINK
        return Refusal.DOUBLE_LINK if dialled_us and relay_id < self._own_key else None

    def _reached(self) -> dict[PublicKey, Kind]:
        """Return which relays the links that stand lead to, as these say, and who named the best of their addresses."""
        reached: dict[PublicKey, Kind] = {}
        for place in self._places.values():
            if place.stood_since is not None and place.relay_id is not None:
                reached[place.relay_id] = min(place.kind, reached.get(place.relay_id, place.kind))
        return reached

    @staticmethod
    def _is_linked(place: _Place, proven: Collection[bytes], reached: dict[PublicKey, Kind]) -> bool:
        """Return whether each relay that may be at a place has a link already that a claim cannot stand for."""
        keys = place.advertised or ({place.relay_id} if place.relay_id is not None else set())
        return bool(keys) and all(key in proven or (key in reached and reached[key] <= place.kind) for key in keys)

    def _add_advertised(self, neighbours: Collection[KnownAdvert], now: Instant) -> None:
        """Know the addresses of live adverts, and forget those whose adverts have ended."""
        advertised: dict[str, set[PublicKey]] = {}
        for neighbour in neighbours:
            advertised.setdefault(neighbour.advert.address, set()).add(neighbour.advert.relay_id)
        for place in list(self._places.values()):
            if place.kind is Kind.ADVERTISED:
                place.advertised = advertised.get(place.address, set())
                if not place.is_busy and not place.advertised:
                    del self._places[place.address]
        for address, keys in advertised.items():
            if address not in self._places and address not in self._own_addresses:
                self._places[address] = _Place(address, Kind.ADVERTISED, None, now, keys)

    def _dial(self, place: _Place) -> Dial:
        # BHUMI-PRIVATE: names in adverts are judged where they lead, when they are dialled.
        only_public = place.kind is Kind.ADVERTISED and not self._dials_private
        return Dial(place.address, place.address, only_public)
