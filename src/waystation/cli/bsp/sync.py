"""Runs ``waystation bsp sync`` and ``listen``: connects, counts messages, and detects when the exchange is complete.

The commands in ``ways`` wait on a ``Syncing``, which watches the device's events. BSP has no end-of-data message. An
exchange is complete when each connected peer has all of our messages and has sent nothing new for a moment.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Self

from waystation.core.ids import PublicKey
from waystation.sdk.bsp import BspPeer, CarrierTrouble, Delivered, PeerDown, PeerHolds, PeerUnreachable, PeerUp, Stored

__all__ = ["QUIET_S", "Syncing"]

QUIET_S: Final = 1.0
"""Without anything new for so long, two settled devices are done: a round trip, a commit, and some timeouts."""
_LOOK_S: Final = 0.2
_WITHOUT_ANSWER: Final = (None, "lprp")
"""Kinds of ways on which nobody waits: what was handed over there is answered another day."""


class Syncing:
    """Counts what happens at a peer; use it in ``async with``."""

    def __init__(
        self,
        peer: BspPeer,
        wanted: set[PublicKey],
        *,
        on_event: Callable[[Any], None],
        quiet_s: float | None = None,
    ) -> None:
        """Begin to listen to a peer that is open.

        Args:
            peer: Whose news are counted.
            wanted: Peers that are dialled, each of which must have come or failed before the end.
            on_event: Gets every event.
            quiet_s: How long nothing new must have come before the end; None means ``QUIET_S``.
        """
        self._quiet_s = QUIET_S if quiet_s is None else quiet_s
        self._peer = peer
        self._wanted = wanted
        self._on_event = on_event
        self._news: AsyncGenerator[Any, None] = peer.news()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.came: set[PublicKey] = set()
        """Peers that were connected at least once."""
        self.failed: dict[PublicKey, str] = {}
        """Wanted peers that did not come, and why."""
        self.troubled: set[PublicKey] = set()
        """Peers for whom a carrier did not take something."""
        self.received_count = 0
        """Messages that we did not have."""
        self.delivered_count = 0
        self.confirmed_count = 0
        """Messages of ours that a peer now holds."""

    async def __aenter__(self) -> Self:
        self.came |= {peer.key for peer in self._peer.status().peers if peer.link is not None}
        self._task = asyncio.get_running_loop().create_task(self._listen())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def until_quiet(self) -> None:
        """Return once everybody who was wanted has come or failed, and nothing more is to be expected.

        Without anybody wanted, somebody must have come. Raises HostError when the disk says no.
        """
        while True:
            self._changed.clear()
            if self._peer.is_carrying:  # no event reports its end
                await self._wait(_LOOK_S)
            elif self._expects_more():
                await self._wait(None)
            elif not await self._wait(self._quiet_s) and not self._peer.is_carrying:
                return

    async def forever(self) -> None:
        """Return only when the peer is closed; a disk that refuses for a while does not end it.

        Raises HostError when the tables of the home cannot be read.
        """
        assert self._task is not None
        await asyncio.shield(self._task)

    def _expects_more(self) -> bool:
        peers = self._peer.status().peers
        self.came |= {peer.key for peer in peers if peer.link is not None}
        if self._wanted - self.came - self.failed.keys() or not (self.came or self.failed):
            return True
        return any(peer.link not in _WITHOUT_ANSWER and peer.owed_count for peer in peers)

    async def _wait(self, timeout_s: float | None) -> bool:
        """Return whether something happened; raises HostError when the disk says no."""
        assert self._task is not None
        self._check_store()
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            done, _ = await asyncio.wait({waiting, self._task}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task in done:
            await self._task  # our tables cannot be read
        self._check_store()
        return bool(done)

    def _check_store(self) -> None:
        if self._peer.failure is not None:
            raise self._peer.failure

    async def _listen(self) -> None:
        async for event in self._news:
            self._count(event)
            self._on_event(event)
            self._changed.set()

    def _count(self, event: object) -> None:
        if isinstance(event, PeerUp):
            self.came.add(event.key)
            self.failed.pop(event.key, None)
        elif isinstance(event, PeerUnreachable):
            self._fail(event.peer, event.reason)
        elif isinstance(event, PeerDown):
            self._fail(event.key, event.reason.replace("_", " "))
        elif isinstance(event, CarrierTrouble):
            self.troubled.add(event.peer)
        elif isinstance(event, Stored):
            self.received_count += event.peer is not None
        elif isinstance(event, Delivered):
            self.delivered_count += 1
        elif isinstance(event, PeerHolds):
            self.confirmed_count += 1

    def _fail(self, key: PublicKey, reason: str) -> None:
        if key in self._wanted and key not in self.came:
            self.failed.setdefault(key, reason)
