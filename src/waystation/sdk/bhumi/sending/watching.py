"""Watches peers: keeps a connection for each, over which relays report when the peer connects or leaves.

``Sender.watch`` begins a watch. Each watched peer has anonymous connections of its own, one to each of the first relays
where it may be, so that no relay learns who watches, or that two peers have one watcher. A peer is online while one of
these relays says so. What relays report goes to ``Liveness``, which reports changes. A relay that knows no watches is
left out; when none is left, the peer's state stays unknown. Spec: BHUMI-WATCH.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.client.base import Greeted
from waystation.protocols.bhumi.client.watcher import NoWatches, WatchClient
from waystation.protocols.bhumi.extension_messages import Watched, WatchState
from waystation.sdk.backoff import STABLE_S, Backoff
from waystation.sdk.bhumi.connection import RelayConnection
from waystation.sdk.bhumi.pairing.relay_authorities import Trust
from waystation.transport.dial import RelayUrl

__all__ = ["PLACES_MAX", "WATCHES_MAX", "Watching"]

WATCHES_MAX: Final = 16
"""Peers that one sender watches; with their connections they stay below what a relay takes from one address."""
PLACES_MAX: Final = 2
"""Relays at which one peer is watched."""


class Watching:
    """The watches of one sender."""

    def __init__(
        self,
        places: Callable[[PublicKey], Sequence[RelayUrl]],
        note: Callable[[PublicKey, bool], None],
        tls: Trust,
        connect_timeout_s: float,
        rng: random.Random,
        *,
        only_public: Callable[[RelayUrl], bool] = lambda _: False,
    ) -> None:
        """Describe how to watch.

        Args:
            places: Returns where a peer may be, the likeliest first.
            note: Called with a peer and whether it is online, after each report.
            tls: Context for ``tls`` addresses; None means the system's authorities.
            connect_timeout_s: For one connection.
            rng: Spreads the tries.
            only_public: Whether a relay was named by others, and so leads to the open internet or nowhere.
        """
        self._places = places
        self._note = note
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._rng = rng
        self._only_public = only_public
        self._watches: dict[PublicKey, _Watch] = {}

    def begin(self, peer: PublicKey) -> None:
        """Watch a peer until ``end`` or ``close``; raises LocalError when too many are watched."""
        if peer in self._watches:
            return
        if len(self._watches) >= WATCHES_MAX:
            raise LocalError(f"{WATCHES_MAX} peers are watched already; end a watch first")
        watch = self._watches[peer] = _Watch()
        for relay in list(dict.fromkeys(self._places(peer)))[:PLACES_MAX]:
            task = asyncio.get_running_loop().create_task(self._stand(peer, relay, watch))
            watch.tasks.append(task)

    async def end(self, peer: PublicKey) -> None:
        """Watch a peer no more; one that is not watched is no news."""
        watch = self._watches.pop(peer, None)
        if watch is not None:
            await watch.cancel()

    async def close(self) -> None:
        """End every watch."""
        for peer in list(self._watches):
            await self.end(peer)

    async def _stand(self, peer: PublicKey, relay: RelayUrl, watch: "_Watch") -> None:
        """Keep a connection to one relay for as long as the watch lasts, unless the relay knows no watches."""
        loop, backoff = asyncio.get_running_loop(), Backoff(self._rng)
        while True:
            began_s = loop.time()
            machine, refused = WatchClient(), loop.create_future()
            connection = RelayConnection(machine, relay, partial(self._on_event, peer, relay, watch, machine, refused))
            try:
                with contextlib.suppress(HostError):  # a relay that is away reports nothing, and the next try comes
                    await connection.dial(self._tls, self._connect_timeout_s, only_public=self._only_public(relay))
                    if await connection.first(refused):
                        return
            finally:
                await connection.aclose()
            # A relay that is away reports nothing: another one may, and else the last report stands.
            if len(watch.states) > 1:
                watch.states.pop(relay, None)
            if loop.time() - began_s >= STABLE_S:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    def _on_event(
        self,
        peer: PublicKey,
        relay: RelayUrl,
        watch: "_Watch",
        machine: WatchClient,
        refused: asyncio.Future[None],
        event: object,
    ) -> None:
        """Take what one connection's machine reports; ``refused`` is done when the relay will report nothing."""
        if isinstance(event, Greeted):
            machine.watch(peer)
        elif isinstance(event, Watched) and event.state is not WatchState.REFUSED:
            if event.identity == peer:
                watch.states[relay] = event.state is WatchState.ONLINE
                self._note(peer, any(watch.states.values()))
        elif isinstance(event, Watched | NoWatches) and not refused.done():
            refused.set_result(None)


class _Watch:
    """One watched peer."""

    def __init__(self) -> None:
        self.states: dict[RelayUrl, bool] = {}
        """What each relay reported last."""
        self.tasks: list[asyncio.Task[None]] = []

    async def cancel(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
