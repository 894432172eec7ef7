"""Getting one request of a Bhumi sender to its peer, wherever that is, and its outcome back.

The same preimage and the same bytes go to every relay, so that an answer that one of them keeps counts whatever way
the request took before. Tries go round the relays at which the peer is known; only once each of them has said that the
peer is not there, or could not be reached, others are asked where it is (BHUMI-PLACES).
"""

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.sdk.bhumi_channel import Channel
from waystation.sdk.bhumi_finder import Finder
from waystation.sdk.bhumi_quality import RelayQuality
from waystation.sdk.bhumi_retry import Outcome, Patience, Retry, Verdict
from waystation.sdk.bhumi_state import BhumiState, Pending
from waystation.transport.dial import RelayUrl

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
    """Where it was tried, for people, with what was not tried and why."""


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
        quality: RelayQuality | None,
        rng: random.Random,
        tls: ssl.SSLContext | None,
        connect_timeout_s: float,
        only_public: AbstractSet[RelayUrl] = frozenset(),
    ) -> None:
        """Describe what there is; the arguments are those of ``Sender``.

        ``only_public`` are those of ``relays`` that others named: they lead to the open internet or nowhere.
        """
        self._state = state
        self._relays = list(dict.fromkeys(relays))
        self._finder = finder
        self._quality = quality
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

    async def deliver(self, pending: Pending, patience: Patience, *, in_doubt: bool) -> Ended:
        """Try until the request has an outcome or patience ends.

        Args:
            pending: What is sent.
            patience: How long to go on.
            in_doubt: It may have been delivered before.

        Raises:
            LocalError: The payload is larger than a relay takes.
        """
        route = self._route_to(pending.peer)
        known = list(route.places)
        first = known[0]
        retry = Retry(patience, self._rng, relays_count=len(known), in_doubt=in_doubt)
        refused: list[str] = []
        began = time.monotonic()
        looked_s = -_LOOK_AGAIN_S
        while True:
            relay = route.take()
            channel = await self._channel_to(relay)
            outcome, answer, reason = await channel.ask(pending.peer, pending.preimage, pending.payload)
            elapsed_s = time.monotonic() - began
            fresh_count = 0
            if outcome is Outcome.ANSWERED:
                if relay != first:
                    self._state.remember_place(pending.peer, str(relay))
            elif self._is_to_look(outcome, route) and elapsed_s - looked_s >= _LOOK_AGAIN_S:
                looked_s = elapsed_s
                fresh_count = await self._look_up(pending.peer, known, route, refused)
                retry.widen(fresh_count)
            then = retry.after(outcome, time.monotonic() - began)
            if isinstance(then, Verdict):
                return Ended(
                    then, answer, reason, elapsed_s, retry.tries_count, retry.in_doubt, _places(route, refused)
                )
            await asyncio.sleep(0 if fresh_count else then)

    def _route_to(self, peer: PublicKey) -> Route:
        """Return where a peer may be: where it was last, then where we were told to send, then where it says it is."""
        record = self._state.peer(peer)
        places = list(self._relays)
        if self._finder is not None:
            last = self._finder.judge(self._state.place_of(peer))
            told = self._finder.judge(record.url) if record is not None else None
            places = [place for place in (last, *places, told) if place is not None]
        return Route(places)

    def _is_to_look(self, outcome: Outcome, route: Route) -> bool:
        return self._finder is not None and route.is_round and outcome in {Outcome.OFFLINE, Outcome.NOT_SENT}

    async def _look_up(self, peer: PublicKey, known: Sequence[RelayUrl], route: Route, refused: list[str]) -> int:
        """Ask where a peer is, add new places to the route, and return how many they are."""
        assert self._finder is not None
        findings = await self._finder.find(peer, known)
        refused[:] = findings.refused
        return route.add(findings.places)

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

    def _note(self, relay: RelayUrl, greeting_s: float | None) -> None:
        if self._quality is None:
            return
        with contextlib.suppress(HostError):  # only a preference is lost; the request goes on
            if greeting_s is None:
                self._quality.failed(str(relay))
            else:
                self._quality.connected(str(relay), greeting_s)


def _places(route: Route, refused: Sequence[str]) -> str:
    tried = ", ".join(str(place) for place in route.places)
    if not refused:
        return tried
    return f"{tried}; it says that it is at {', '.join(refused)}, a private place, which only dials_private goes to"
