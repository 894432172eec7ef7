"""A subscription as programs see it: an ``async for`` over packets in order, with the position at which to resume.

``RelayClient.subscribe`` returns one. ``cursor`` and ``received_at`` describe the last packet that the program has
taken, not the last that has arrived. A program that stores them after each packet loses nothing in a crash.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Self

from waystation.core.errors import LocalError
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet

__all__ = ["BUFFER_MAX", "Delivery", "Subscription", "check_filters"]

BUFFER_MAX: Final = 10_000
"""Packets that wait for the program before the connection is not read any more, ours."""


def check_filters(filters: Filters) -> None:
    """Check what a program asks for, before a relay refuses it or gives something else.

    Raises:
        LocalError: That are no ``Filters``, or one of them has the wrong type.
    """
    if not isinstance(filters, Filters):
        raise LocalError('filters are Filters, such as Filters(types=("POST",))')
    for name, kind in (("authors", str), ("types", str), ("ids", bytes)):
        given = getattr(filters, name)
        if not isinstance(given, tuple) or not all(isinstance(each, kind) for each in given):
            raise LocalError(f"{name} of Filters is a tuple of {kind.__name__}, not {given!r:.80}")
    for name in ("since", "until"):
        given = getattr(filters, name)
        if given is not None and type(given) is not int:
            raise LocalError(f"{name} of Filters is whole Unix seconds, such as int(time.time()), not {given!r:.80}")


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
    """Where to resume after this packet, if the relay said so."""
    relay: str
    """WebSocket address of the relay."""
    live: bool
    """Whether it came after the end of history."""


class Subscription:
    """Iterate over it; ``aclose`` or the end of the ``async with`` block ends it.

    The relay is asked when the block is entered, or else when the iteration begins.
    """

    def __init__(
        self,
        subscription_id: str,
        filters: Filters,
        *,
        begin: "Callable[[Subscription], Awaitable[None]]",
        end: "Callable[[Subscription], None]",
        has_room: Callable[[], None],
        cursor: str | None,
        received_at: int | None,
        limit: int | None,
        follow: bool,
        profile: str | None,
    ) -> None:
        """Describe it; see ``RelayClient.subscribe``.

        ``begin`` asks the relay once the keys of the authors are known. ``end`` stops it there and may be called twice.
        ``has_room`` is called when the program has taken packets.
        """
        self._ask, self._end, self._has_room = begin, end, has_room
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
        self.was_asked = False
        """Whether the relay has been asked on some connection."""
        self.history_ended = asyncio.Event()
        """Set once everything that was stored, or the one page asked for, has arrived."""

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Delivery:
        await self._begin()
        if self._over and self._items.empty():
            raise StopAsyncIteration
        item = await self._items.get()
        self._has_room()
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
        try:
            await self._begin()
        except BaseException:  # a caller that is cancelled gets no __aexit__
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the subscription; what has not been taken is gone."""
        self._over = True
        self._end(self)
        while not self._items.empty():
            self._items.get_nowait()
        self._items.put_nowait(None)
        self._has_room()

    @property
    def waiting(self) -> int:
        """How many packets wait for the program."""
        return self._items.qsize()

    async def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            try:
                await self._ask(self)
            except BaseException:  # nothing was asked: the next wait begins again
                self._begun = False
                raise

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
            self._end(self)

    def fail(self, error: BaseException) -> None:
        """End the iteration with an error, after what has arrived."""
        if not self._over:
            self._items.put_nowait(error)
