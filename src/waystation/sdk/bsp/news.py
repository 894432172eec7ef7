"""Reports the events of a BSP peer to any number of listeners; a slow listener gets the number of events it missed.

``BspPeer.news`` and the parts of the SDK subscribe. A queue of fixed size for each listener means that a slow one
neither stops the device nor uses more memory.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.orders import Order
from waystation.protocols.bsp.home.alignment import GroupLeftOut
from waystation.protocols.bsp.home.guarded_formats import FormatFailed
from waystation.protocols.bsp.refusals import Refusal
from waystation.sdk.store_news import StoreFailed, StoreRecovered

__all__ = [
    "NEWS_MAX",
    "BundleRefused",
    "CarrierTrouble",
    "FormatFailed",
    "GroupLeftOut",
    "News",
    "NewsMissed",
    "OrderRefused",
    "PeerUnreachable",
    "StoreFailed",
    "StoreRecovered",
]

NEWS_MAX: Final = 10_000
"""Events that wait for one listener; beyond that the oldest are dropped."""


class PeerUnreachable(NamedTuple):
    """A peer could not be dialled; it is tried again."""

    peer: PublicKey
    url: str
    reason: str


class BundleRefused(NamedTuple):
    """Something came by a carrier that is not for us, or not what it should be; nothing of it was taken."""

    kind: str
    """Of the carrier."""
    refusal: Refusal


class CarrierTrouble(NamedTuple):
    """A carrier did not take a bundle; it is tried again."""

    peer: PublicKey
    kind: str
    reason: str


class OrderRefused(NamedTuple):
    """What another program asked for in this home was impossible, and is forgotten."""

    order: Order | None
    """None when it could not even be read."""
    reason: str


class NewsMissed(NamedTuple):
    """Events were dropped because the program did not take them; what counts is in ``BspPeer.history`` all the same."""

    times: int


class News:
    """Hands every event to every listener."""

    def __init__(self, on_event: Callable[[Any], None] | None = None) -> None:
        """Begin with no listener besides ``on_event``."""
        self._on_event = on_event
        self._listeners: list[_Listener] = []
        self._ended: HostError | None = None
        self._is_over = False

    @property
    def listeners_count(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def report(self, event: Any) -> None:
        """Report an event to every listener."""
        if self._on_event is not None:
            self._on_event(event)
        for listener in self._listeners:
            listener.take(event)

    def end(self, error: HostError | None = None) -> None:
        """End every listening, now and to come; with ``error`` as its reason."""
        if not self._is_over:
            self._is_over, self._ended = True, error
            for listener in self._listeners:
                listener.wake.set()

    def listen(self) -> AsyncGenerator[Any, None]:
        """Return an iterator over events from this moment on; it ends with the peer.

        Raises:
            HostError: The disk says no, so that nothing happens any more.
        """
        listener = _Listener()
        self._listeners.append(listener)
        return self._follow(listener)

    async def _follow(self, listener: "_Listener") -> AsyncGenerator[Any, None]:
        try:
            while True:
                while listener.waiting:
                    yield listener.next()
                if self._is_over:
                    break
                listener.wake.clear()
                await listener.wake.wait()
            if self._ended is not None:
                raise self._ended
        finally:
            self._listeners.remove(listener)


class _Listener:
    """What waits for one listener."""

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self.wake = asyncio.Event()
        self._missed_count = 0

    def take(self, event: Any) -> None:
        if len(self.waiting) >= NEWS_MAX:
            self.waiting.popleft()
            self._missed_count += 1
        self.waiting.append(event)
        self.wake.set()

    def next(self) -> Any:
        if self._missed_count:
            missed, self._missed_count = NewsMissed(self._missed_count), 0
            return missed
        return self.waiting.popleft()
