"""Delivers one request of a Bhumi sender to its peer over one or more relays, and returns the result.

Every relay gets the same preimage (the 32-byte secret that permits one request) and the same bytes. So an answer that
any relay has cached is valid for all tries. Tries rotate over the relays at which the peer is known. Other relays are
asked for the peer's location only after each known relay reported it absent or was unreachable (BHUMI-PLACES).
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.sdk.bhumi.channel import Channel
from waystation.sdk.bhumi.finder import Finder
from waystation.sdk.bhumi.retry import Retry, Timeouts, Verdict
from waystation.sdk.bhumi.state import BhumiState, Pending
from waystation.transport.dial import RelayUrl
from waystation.transport.tls import TlsContext

__all__ = ["CHANNELS_MAX", "PLACES_MAX", "Deliveries", "Ended", "Route"]

CHANNELS_MAX: Final = 64
"""Connections kept to relays that were found; above it the one used longest ago is closed."""
PLACES_MAX: Final = 16
"""Relays that one request is tried at."""
_LOOK_AGAIN_S: Final = 2.0  # ours: a presence travels through the relays within a round of theirs


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended."""

    verdict: Verdict
    answer: bytes
    reason: str
    latency_s: float
    tries_count: int
    in_doubt: bool
    """Whether the request may have been delivered, whatever the verdict."""
    places: str
    """Where it was tried, for people, with what was not reached or not tried and why."""


class Route:
    """The relays to try, round and round; new ones come next."""

    def __init__(self, places: Sequence[RelayUrl]) -> None:
        """Begin at the first of ``places``, of which there is at least one."""
        self.places = list(dict.fromkeys(places))
        self._next = 0

    def take(self) -> RelayUrl:
        """Return the next relay to try."""
        place = self.places[self._next]
        self._next = (self._next + 1) % len(self.places)
        return place

    @property
    def is_round(self) -> bool:
        """Whether every relay has had its turn equally often."""
        return self._next == 0

    def add(self, found: Sequence[RelayUrl]) -> int:
        """Put relays that are not known yet before all others, to be taken next; return how many they are."""
        room = PLACES_MAX - len(self.places)
        fresh = [place for place in dict.fromkeys(found) if place not in self.places][:room]
        self.places[self._next : self._next] = fresh
        return len(fresh)


class Deliveries:
    """The connections of one sender, and where it finds whom."""

    def __init__(
        self,
        state: BhumiState,
        relays: Sequence[RelayUrl],
        finder: Finder | None,
        note: Callable[[RelayUrl, float | None], None] | None,
        rng: random.Random,
        tls: TlsContext | None,
        connect_timeout_s: float,
        only_public: AbstractSet[RelayUrl] = frozenset(),
    ) -> None:
        """Describe what there is; the arguments are those of ``Sender``, and ``note`` is that of ``Channel``.

        ``only_public`` are those of ``relays`` that others named: they lead to the open internet or nowhere.
        """
        self._state = state
        self._relays = list(dict.fromkeys(relays))
        self._finder = finder
        self._note = note
        self._rng = rng
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._named = {
            relay: Channel(relay, tls, connect_timeout_s, only_public=relay in only_public, note=self._note)
            for relay in self._relays
        }
        self._found: dict[RelayUrl, Channel] = {}

    async def close(self) -> None:
        """End all connections."""
        channels = [*self._named.values(), *self._found.values()]
        await asyncio.gather(*(channel.close() for channel in channels))

    async def deliver(self, pending: Pending, timeouts: Timeouts, *, in_doubt: bool) -> Ended:
        """Try until the request has an outcome or time runs out.

        Args:
            pending: What is sent.
            timeouts: How long to go on.
            in_doubt: It may have been delivered before.

        Raises:
            LocalError: The payload is larger than a relay takes.
        """
        route = self._route_to(pending.peer)
        known = list(route.places)
        first = known[0]
        retry = Retry(timeouts, self._rng, relays_count=len(known), in_doubt=in_doubt)
        refused: list[str] = []
        unreachable: set[RelayUrl] = set()
        began = time.monotonic()
        looked_s = -_LOOK_AGAIN_S
        while True:
            relay = route.take()
            channel = await self._channel_to(relay)
            verdict, answer, reason = await channel.ask(pending.peer, pending.preimage, pending.payload)
            (unreachable.add if verdict is Verdict.UNREACHABLE else unreachable.discard)(relay)
            elapsed_s = time.monotonic() - began
            fresh_count = 0
            if verdict is Verdict.ANSWERED:
                if relay != first:
                    with contextlib.suppress(HostError):  # an answer is handed over, whatever our disk says
                        self._state.remember_place(pending.peer, str(relay))
            elif (
                self._finder is not None
                and verdict in {Verdict.OFFLINE, Verdict.UNREACHABLE}
                and route.is_round
                and elapsed_s - looked_s >= _LOOK_AGAIN_S
            ):
                looked_s = elapsed_s
                findings = await self._finder.find(pending.peer, known)
                refused = findings.refused
                fresh_count = route.add(findings.places)
                retry.widen(fresh_count)
            then = retry.after(verdict, time.monotonic() - began)
            if isinstance(then, Verdict):
                places = _places(route, unreachable, refused)
                return Ended(then, answer, reason, elapsed_s, retry.tries_count, retry.in_doubt, places)
            await asyncio.sleep(0 if fresh_count else then)

    def _route_to(self, peer: PublicKey) -> Route:
        """Return where a peer may be: where it was last, then where the user sends it, then where it says it is."""
        record = self._state.peer(peer)
        places = list(self._relays)
        if self._finder is not None:
            last = self._finder.judge(self._state.place_of(peer))
            named = self._finder.judge(record.url) if record is not None else None
            places = [place for place in (last, *places, named) if place is not None]
        return Route(places)

    async def _channel_to(self, relay: RelayUrl) -> Channel:
        """Return the connection to a relay; one that others have named leads to the open internet or nowhere."""
        if relay in self._named:
            return self._named[relay]
        channel = self._found.pop(relay, None)
        if channel is None:
            if len(self._found) >= CHANNELS_MAX:
                idle = next((each for each in self._found if self._found[each].is_idle), next(iter(self._found)))
                await self._found.pop(idle).close()
            only_public = self._finder is not None and not self._finder.dials_private
            channel = Channel(relay, self._tls, self._connect_timeout_s, only_public=only_public, note=self._note)
        self._found[relay] = channel
        return channel


def _places(route: Route, unreachable: AbstractSet[RelayUrl], refused: Sequence[str]) -> str:
    tried = ", ".join(str(place) for place in route.places if place not in unreachable)
    if unreachable:
        tried += f", and {', '.join(str(place) for place in route.places if place in unreachable)} cannot be reached"
    if not refused:
        return tried
    return f"{tried}; it says that it is at {', '.join(refused)}, a private place, which only dials_private goes to"
