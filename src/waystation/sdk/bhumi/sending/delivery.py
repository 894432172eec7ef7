"""Delivers one request of a Bhumi sender to its peer over one or more relays, and returns the result.

Every relay gets the same preimage (the 32-byte secret that permits one request) and the same bytes. So an answer that
any relay has cached is valid for all tries. Tries rotate over the relays at which the peer is known. Other relays are
asked for the peer's location only after each known relay reported it absent or was unreachable (BHUMI-PLACES). A relay
is believed in nothing but an answer that opens.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.sdk.bhumi.dialect import Dialect
from waystation.sdk.bhumi.finder import Finder
from waystation.sdk.bhumi.pairing.relay_authorities import Trust
from waystation.sdk.bhumi.sending.channel import Channel
from waystation.sdk.bhumi.sending.channels import Channels
from waystation.sdk.bhumi.sending.reading import Opened
from waystation.sdk.bhumi.sending.retry import DOUBTS, Retry, Timeouts, Verdict
from waystation.sdk.bhumi.sending.watching import Watching
from waystation.sdk.bhumi.state import BhumiState, Pending
from waystation.sdk.errors import AnswerError
from waystation.transport.dial import RelayUrl

__all__ = ["PLACES_MAX", "Deliveries", "Delivery", "Ended", "Route"]

PLACES_MAX: Final = 16
"""Relays that one request is tried at."""
_AWAY: Final = frozenset({Verdict.OFFLINE, Verdict.GONE})
_ABSENT: Final = _AWAY | {Verdict.UNREACHABLE}
_LOOK_AGAIN_S: Final = 2.0  # ours: a presence travels through the relays within a round of theirs


@dataclass(slots=True)
class Delivery:
    """One request while it is being delivered."""

    pending: Pending
    timeouts: Timeouts
    in_doubt: bool = False
    """Whether it may have been delivered, by what is known of its tries so far."""
    repeatable: bool = False
    """Whether its content may arrive twice."""
    is_out: bool = False
    """Whether a try has left and has no result yet."""
    was_out: bool = False
    """Whether a try has ever left."""
    last: Verdict | None = None
    """What the last try came to."""

    @property
    def may_have_arrived(self) -> bool:
        """Whether the peer may have it, or may get it yet."""
        return self.in_doubt or self.is_out

    def leave(self) -> None:
        """Note that a try leaves."""
        self.is_out = self.was_out = True


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended."""

    verdict: Verdict
    answer: Opened | None
    """The peer's; None unless the verdict is ANSWERED."""
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
        self.verdicts: set[Verdict] = set()
        """Of the tries of this round."""

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
        tls: Trust,
        connect_timeout_s: float,
        only_public: AbstractSet[RelayUrl] = frozenset(),
        note_peer: Callable[[PublicKey, bool], None] = lambda _peer, _is_online: None,
    ) -> None:
        """Describe what there is; the arguments are those of ``Sender``, and ``note`` is that of ``Channel``.

        ``only_public`` are those of ``relays`` that others named: they lead to the open internet or nowhere.
        ``note_peer`` gets peers with whether they are online, as requests find them.
        """
        self._state = state
        self._relays = list(dict.fromkeys(relays))
        self._finder = finder
        self._note = note
        self._rng = rng
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._only_public = only_public
        self._note_peer = note_peer
        self.channels = Channels(self._channel)
        self.watching = Watching(
            self._places_of, note_peer, self._tls, connect_timeout_s, rng, only_public=self._is_far
        )

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(self.channels.close(), self.watching.close())

    async def deliver(self, delivery: Delivery, read: Callable[[Pending, bytes], Opened]) -> Ended:
        """Try until the request has an outcome or time runs out.

        Args:
            delivery: What is sent and for how long; kept up to date.
            read: Opens an answer; raises AnswerError when it is none of the peer's to this request.

        Raises:
            LocalError: The payload is larger than a relay takes.
        """
        pending = delivery.pending
        route = self._route_to(pending.peer)
        known = list(route.places)
        first = known[0]
        retry = Retry(
            delivery.timeouts,
            self._rng,
            relays_count=len(known),
            in_doubt=delivery.in_doubt,
            repeatable=delivery.repeatable,
        )
        refused: list[str] = []
        unreachable: set[RelayUrl] = set()
        began = asyncio.get_running_loop().time()
        looked_s = -_LOOK_AGAIN_S
        while True:
            relay = route.take()
            verdict, answer, reason = await self._try(relay, delivery, read)
            self._note_absence(pending.peer, route, verdict)
            (unreachable.add if verdict is Verdict.UNREACHABLE else unreachable.discard)(relay)
            elapsed_s = asyncio.get_running_loop().time() - began
            fresh_count = 0
            if verdict is Verdict.ANSWERED:
                if relay != first:
                    with contextlib.suppress(HostError):  # an answer is handed over, whatever our disk says
                        self._state.remember_place(pending.peer, str(relay))
            elif (
                self._finder is not None
                and verdict in _ABSENT  # it may have moved, with the request or before it
                and route.is_round
                and elapsed_s - looked_s >= _LOOK_AGAIN_S
            ):
                looked_s = elapsed_s
                findings = await self._finder.find(pending.peer, known)
                refused = findings.refused
                fresh_count = route.add(findings.places)
                retry.widen(fresh_count)
            then = retry.after(verdict, asyncio.get_running_loop().time() - began)
            delivery.in_doubt = retry.in_doubt
            if isinstance(then, Verdict):
                places = _places(route, unreachable, refused)
                return Ended(then, answer, reason, elapsed_s, retry.tries_count, retry.in_doubt, places)
            await asyncio.sleep(0 if fresh_count else then)

    async def _try(
        self, relay: RelayUrl, delivery: Delivery, read: Callable[[Pending, bytes], Opened]
    ) -> tuple[Verdict, Opened | None, str]:
        """Try at one relay once, and return what came of it, the answer, and a reason for people."""
        pending = delivery.pending
        with self.channels.lease(relay, pending.peer) as channel:
            verdict, data, reason = await channel.ask(pending.peer, pending.preimage, pending.payload, delivery.leave)
        opened = None
        if verdict is Verdict.ANSWERED:
            try:
                opened = read(pending, data)
            except AnswerError as error:
                verdict, reason = Verdict.UNREADABLE, str(error)
        delivery.in_doubt = delivery.in_doubt or verdict in DOUBTS
        delivery.is_out = False
        delivery.last = verdict
        return verdict, opened, reason

    def _note_absence(self, peer: PublicKey, route: Route, verdict: Verdict) -> None:
        """Note that a peer is online, or that in a whole round one relay at least has not got it and none has."""
        route.verdicts.add(verdict)
        if verdict is Verdict.ANSWERED:
            self._note_peer(peer, True)
        elif route.is_round:
            if route.verdicts & _AWAY and route.verdicts <= _ABSENT:
                self._note_peer(peer, False)
            route.verdicts.clear()

    def _route_to(self, peer: PublicKey) -> Route:
        return Route(self._places_of(peer))

    def _places_of(self, peer: PublicKey) -> list[RelayUrl]:
        """Return where a peer may be: where it was last, then where the user sends it, then where it says it is."""
        record = self._state.peer(peer)
        places = list(self._relays)
        if self._finder is not None:
            last = self._finder.judge(self._state.place_of(peer))
            # An original node writes host:port and has no TLS.
            scheme = "tcp" if record is not None and record.dialect is Dialect.NONE else "tls"
            named = self._finder.judge(record.url, scheme) if record is not None else None
            places = [place for place in (last, *places, named) if place is not None]
        return places

    def _channel(self, relay: RelayUrl, gate: asyncio.Semaphore) -> Channel:
        only_public = self._is_far(relay)
        return Channel(relay, self._tls, self._connect_timeout_s, only_public=only_public, note=self._note, gate=gate)

    def _is_far(self, relay: RelayUrl) -> bool:
        """Return whether others have named a relay, so that it leads to the open internet or nowhere."""
        if relay in self._relays:
            return relay in self._only_public
        return self._finder is not None and not self._finder.dials_private


def _places(route: Route, unreachable: AbstractSet[RelayUrl], refused: Sequence[str]) -> str:
    tried = ", ".join(str(place) for place in route.places if place not in unreachable)
    if unreachable:
        tried += f", and {', '.join(str(place) for place in route.places if place in unreachable)} cannot be reached"
    if not refused:
        return tried
    return f"{tried}; it says that it is at {', '.join(refused)}, a private place, which only dials_private goes to"
