"""What happens at a BSP peer, told to as many listeners as there are; who does not listen fast enough is told so."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.orders import Order
from waystation.protocols.bsp.refusals import Refusal

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


class GroupLeftOut(NamedTuple):
    """A group of the home cannot be joined by this program, and stays as it is: it is another application's."""

    group_id: bytes
    name: str
    """In the home; may be empty."""
    reason: str
    is_others: bool = False
    """Whether we are in it already for others, as their mailbox."""


class FormatFailed(NamedTuple):
    """A format raised what it must not; the message counts as invalid. Told once for each format."""

    format: str
    reason: str


class NewsMissed(NamedTuple):
    """Events were dropped because nobody took them; what counts is in ``BspPeer.messages`` all the same."""

    times: int


class News:
    """Hands every event to every listener."""

    def __init__(self) -> None:
        """Begin with no listener."""
        self._ears: list[_Ear] = []
        self._ended: HostError | None = None
        self._is_over = False

    @property
    def listeners_count(self) -> int:
        """How many listen."""
        return len(self._ears)

    def tell(self, event: Any) -> None:
        """Tell an event."""
        for ear in self._ears:
            ear.take(event)

    def end(self, error: HostError | None = None) -> None:
        """End every listening, now and to come; with ``error`` as its reason."""
        if not self._is_over:
            self._is_over, self._ended = True, error
            for ear in self._ears:
                ear.wake.set()

    def listen(self) -> AsyncGenerator[Any, None]:
        """Return an iterator over events from this moment on; it ends with the peer.

        Raises:
            HostError: The disk says no, so that nothing happens any more.
        """
        ear = _Ear()
        self._ears.append(ear)
        return self._follow(ear)

    async def _follow(self, ear: "_Ear") -> AsyncGenerator[Any, None]:
        try:
            while True:
                while ear.waiting:
                    yield ear.next()
                if self._is_over:
                    break
                ear.wake.clear()
                await ear.wake.wait()
            if self._ended is not None:
                raise self._ended
        finally:
            self._ears.remove(ear)


class _Ear:
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
