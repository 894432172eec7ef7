"""A subscription as programs see it: packets in order, one ``async for``, and the place to go on from.

``cursor`` and ``received_at`` move with what the program has taken, not with what has arrived: whoever saves them
behind each packet loses nothing in a crash.
"""

import asyncio
from typing import Final, NamedTuple, Protocol, Self

from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet

__all__ = ["BUFFER_MAX", "Delivery", "Subscription", "SubscriptionOwner"]

BUFFER_MAX: Final = 10_000
"""Packets that wait for the program before the connection is not read any more, ours."""


class Delivery(NamedTuple):
    """One packet that passed every check."""

    packet: Packet
    """As signed."""
    received_at: int
    """When the relay first saw it, Unix seconds; with several relays the earliest."""
    origin_type: str
    """Origin to believe: UNKNOWN when the relay did not believe the claim."""
    downgrade: dict[str, str] | None
    """``claimed``, ``origin_type`` and ``reason``."""
    verified: bool
    """False when the author's keys are not known here; only for those who asked for such packets."""
    cursor: str | None
    """Where to go on behind this packet, if the relay said so."""
    relay: str
    """WebSocket address of the relay."""
    live: bool
    """Whether it came after the end of history."""


class SubscriptionOwner(Protocol):
    """What a subscription needs of its relay."""

    async def begin(self, subscription: "Subscription") -> None:
        """Ask the relay, once the keys of the authors are known."""

    def end(self, subscription: "Subscription") -> None:
        """Stop it at the relay; safe to call twice."""

    def has_room(self) -> None:
        """The program has taken packets."""


class Subscription:
    """Iterate over it; ``aclose`` or the end of the ``async with`` block ends it.

    The relay is asked when the block is entered, or else when the iteration begins.
    """

    def __init__(
        self,
        owner: SubscriptionOwner,
        subscription_id: str,
        filters: Filters,
        *,
        cursor: str | None,
        received_at: int | None,
        limit: int | None,
        follow: bool,
        profile: str | None,
    ) -> None:
        """Describe it; see ``RelayClient.subscribe``."""
        self._owner = owner
        self._items: asyncio.Queue[Delivery | BaseException | None] = asyncio.Queue()
        self._begun = False
        self._over = False
        self.id = subscription_id
        self.filters = filters
        self.cursor = cursor
        self.received_at = received_at
        self.limit = limit
        self.follow = follow
        self.profile = profile
        self.history_ended = asyncio.Event()
        """Set once everything that was stored, or the one page asked for, has arrived."""

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Delivery:
        await self._begin()
        if self._over and self._items.empty():
            raise StopAsyncIteration
        item = await self._items.get()
        self._owner.has_room()
        if item is None:
            self._over = True
            raise StopAsyncIteration
        if isinstance(item, BaseException):
            self._over = True
            raise item
        if item.cursor is not None:
            self.cursor, self.received_at = item.cursor, item.received_at
        return item

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the subscription; what has not been taken is gone."""
        self._over = True
        self._owner.end(self)
        while not self._items.empty():
            self._items.get_nowait()
        self._items.put_nowait(None)
        self._owner.has_room()

    @property
    def waiting(self) -> int:
        """How many packets wait for the program."""
        return self._items.qsize()

    async def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            await self._owner.begin(self)

    # For the owner

    def deliver(self, delivery: Delivery) -> None:
        """Hand a packet to the program."""
        if not self._over:
            self._items.put_nowait(delivery)

    def on_history_ended(self) -> None:
        """Note the end of what was stored, or of the one page asked for."""
        self.history_ended.set()
        if not self.follow:
            self._items.put_nowait(None)
            self._owner.end(self)

    def fail(self, error: BaseException) -> None:
        """End the iteration with an error, behind what has arrived."""
        if not self._over:
            self._items.put_nowait(error)
