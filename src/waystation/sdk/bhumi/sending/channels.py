"""Keeps the anonymous connections of one sender: each request under way has its own, so that none waits for another.

SEND_RESULT names no request, so results of one connection arrive in order, and a slow device would keep the answers of
all others back. A connection that is free is used again for the same peer only: no connection shows a relay that two
peers have one sender. Above ``PER_RELAY_MAX`` requests at once to one relay, further ones share connections; these do
show it, and a result there may wait for another.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from waystation.core.ids import PublicKey
from waystation.sdk.bhumi.sending.channel import Channel
from waystation.transport.dial import RelayUrl

__all__ = ["CHANNELS_MAX", "CONNECTING_MAX", "IDLE_S", "PER_RELAY_MAX", "Channels"]

CHANNELS_MAX: Final = 64
"""Connections in all; above it one that is free is closed."""
PER_RELAY_MAX: Final = 24
"""Connections to one relay, which takes 64 from one address: two programs and their devices have room (BHUMI-L)."""
CONNECTING_MAX: Final = 8
"""Handshakes with one relay at once; a relay takes 16 from one address."""
IDLE_S: Final = 30.0
"""A connection that is free for so long is closed, before the relay does it after 60 s (BHUMI-L)."""


class Channels:
    """The connections of one sender."""

    def __init__(self, make: Callable[[RelayUrl, asyncio.Semaphore], Channel], *, idle_s: float = IDLE_S) -> None:
        """Describe them.

        Args:
            make: Makes a channel to a relay; the semaphore is its ``gate``.
            idle_s: See ``IDLE_S``.
        """
        self._make = make
        self._idle_s = idle_s
        self._channels: dict[Channel, PublicKey] = {}
        """With the peer each is for; the one used longest ago comes first."""
        self._gates: defaultdict[RelayUrl, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(CONNECTING_MAX))
        self._timers: dict[Channel, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def lease(self, relay: RelayUrl, peer: PublicKey) -> Iterator[Channel]:
        """Give a channel to ``relay`` for one request to ``peer``."""
        channel = self._free(relay, peer) or self._new(relay, peer) or self._least_used(relay)
        self._channels[channel] = self._channels.pop(channel, peer)
        timer = self._timers.pop(channel, None)
        if timer is not None:
            timer.cancel()
        channel.users_count += 1
        try:
            yield channel
        finally:
            channel.users_count -= 1
            if channel in self._channels and channel.users_count == 0:
                self._timers[channel] = asyncio.get_running_loop().call_later(self._idle_s, self._look_at, channel)

    async def close(self) -> None:
        """End every connection."""
        for channel in tuple(self._channels):
            self._drop(channel)
        await asyncio.gather(*self._closing)

    def of(self, relay: RelayUrl) -> list[Channel]:
        """Return the channels to a relay."""
        return [channel for channel in self._channels if channel.relay == relay]

    def _free(self, relay: RelayUrl, peer: PublicKey) -> Channel | None:
        mine = (each for each, whose in self._channels.items() if whose == peer and each.relay == relay)
        return next((channel for channel in mine if channel.is_idle), None)

    def _new(self, relay: RelayUrl, peer: PublicKey) -> Channel | None:
        """Return a new channel, for which a free one of another peer may have to go; None when there is no room."""
        if len(self.of(relay)) >= PER_RELAY_MAX and not self._drop_idle(self.of(relay)):
            return None
        # With every connection in use a relay without one still gets one: a request has at most 16 places.
        if len(self._channels) >= CHANNELS_MAX and not self._drop_idle(list(self._channels)) and self.of(relay):
            return None
        channel = self._make(relay, self._gates[relay])
        self._channels[channel] = peer
        return channel

    def _least_used(self, relay: RelayUrl) -> Channel:
        return min(self.of(relay), key=lambda channel: channel.users_count)

    def _drop_idle(self, among: list[Channel]) -> bool:
        idle = next((channel for channel in among if channel.is_idle), None)
        if idle is not None:
            self._drop(idle)
        return idle is not None

    def _look_at(self, channel: Channel) -> None:
        del self._timers[channel]
        if channel.is_idle:
            self._drop(channel)
        else:  # a caller left before its result: it comes within the relay's ACK timeout
            self._timers[channel] = asyncio.get_running_loop().call_later(self._idle_s, self._look_at, channel)

    def _drop(self, channel: Channel) -> None:
        del self._channels[channel]
        timer = self._timers.pop(channel, None)
        if timer is not None:
            timer.cancel()
        if not self.of(channel.relay):
            self._gates.pop(channel.relay, None)
        closing = asyncio.get_running_loop().create_task(channel.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
