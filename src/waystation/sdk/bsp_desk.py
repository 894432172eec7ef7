"""Where one carrier and one BSP peer meet: bundles in, bundles out, and when to try again.

A peer that the carrier reaches has a link of the carrier's terms on the device while the carrier can be used, and the
device speaks over the best link of a peer: connections before relays that pass on, those before what keeps, the newest
of equals (BSP-NEWEST). What is due over ours is sealed and carried, one bundle at a time. A relay that keeps what it
takes (``outlives``) is treated as a disk: what was not taken was not sent. One that passes on and forgets is treated as
a connection: when it fails, the link is down.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from waystation.core.errors import HostError, RemoteError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.bundle import bundle_room
from waystation.protocols.bsp.device import BspDevice, Draft
from waystation.protocols.bsp.refusals import MalformedError
from waystation.sdk.bsp_bundles import Bundles
from waystation.sdk.bsp_carrier import Carrier
from waystation.sdk.bsp_news import BundleRefused, CarrierTrouble
from waystation.sdk.link import now

__all__ = ["PAUSE_S", "PAUSE_S_MAX", "CarrierDesk"]

PAUSE_S: Final = 1.0
"""After the first failure; doubled by each further one."""
PAUSE_S_MAX: Final = 60.0


class _Way:
    """One peer as this carrier reaches it."""

    __slots__ = ("busy", "failures_count", "link", "pause")

    def __init__(self) -> None:
        self.link: int | None = None
        self.busy = False
        self.pause: asyncio.TimerHandle | None = None
        self.failures_count = 0


class CarrierDesk:
    """Implements ``Desk`` for one carrier."""

    def __init__(
        self,
        carrier: Carrier,
        device: BspDevice,
        bundles: Bundles,
        *,
        changed: Callable[[], None],
        tell: Callable[[Any], None],
        number: Callable[[], int],
        rng: random.Random,
    ) -> None:
        """Prepare; ``open`` begins.

        Args:
            carrier: Used by nobody else.
            device: Whose records are carried.
            bundles: Seals and opens.
            changed: Called behind what changed the device.
            tell: Gets ``BundleRefused`` and ``CarrierTrouble``.
            number: Gives the next bundle's number.
            rng: Spreads pauses.
        """
        self.carrier = carrier
        self.terms = carrier.terms
        self._device = device
        self._bundles = bundles
        self._changed = changed
        self._tell = tell
        self._number = number
        self._rng = rng
        self._ways: dict[PublicKey, _Way] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = False
        self.refused_count = 0
        """Bundles that were not for us or not what they should be."""

    async def open(self) -> None:
        """Begin to use the carrier; raises what its ``open`` raises."""
        self._is_open = True
        try:
            await self.carrier.open(self)
        except BaseException:
            await self.close()
            raise
        self.meet_all()

    async def close(self) -> None:
        """Stop using the carrier, and close it."""
        self._is_open = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in tuple(self._ways):
            self._forget(peer)
        await self.carrier.close()

    @property
    def is_carrying(self) -> bool:
        """Whether a bundle is with the carrier, who has not said yet whether the relay has taken it."""
        return any(way.busy for way in self._ways.values())

    # The device's side

    def meet_all(self) -> None:
        """Look at the table of peers: link those that are reached, forget those that are gone."""
        for peer in [peer for peer in self._ways if not self._device.knows(peer)]:
            self._forget(peer)
        for peer in self._device.peers():
            way = self._ways.get(peer)
            if way is None or (way.link is None and way.pause is None):
                self._link(peer)

    def pump(self) -> None:
        """Carry what is due over our links; called behind every turn."""
        at = now()
        for peer, way in self._ways.items():
            if way.busy or way.pause is not None or not self._is_spoken_over(peer, way):
                continue
            if self._device.is_due(peer, at):
                way.busy = True
                task = asyncio.get_running_loop().create_task(self._carry(peer, way))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _is_spoken_over(self, peer: PublicKey, way: _Way) -> bool:
        return way.link is not None and self._device.link_of(peer) == way.link

    # The carrier's side

    async def take(self, bundle: bytes) -> PublicKey | None:
        """Hear a bundle; see ``Desk.take``."""
        try:
            opened = self._bundles.open(bundle)
        except MalformedError as error:
            self.refused_count += 1
            self._tell(BundleRefused(self.terms.kind, error.refusal))
            return None
        way = self._ways.get(opened.sender)
        if way is not None and way.pause is not None:
            self._resume(opened.sender)
        await self._bundles.hear(opened, way.link if way is not None else None)
        return opened.sender

    async def make(self, peer: PublicKey, bytes_max: int, *, even_empty: bool = False) -> bytes | None:
        """Return a bundle of what is due; see ``Desk.make``."""
        try:
            return self._make(peer, bytes_max, even_empty=even_empty)
        except RemoteError as error:
            self._tell(CarrierTrouble(peer, self.terms.kind, str(error)))
            return None

    def _make(self, peer: PublicKey, bytes_max: int, *, even_empty: bool = False) -> bytes | None:
        if not self._device.knows(peer):
            return None
        draft = self._device.draft(peer, self.terms, now(), bundle_room(bytes_max))
        if not draft.records and not even_empty:
            self._device.abandon(draft, now())
            return None
        try:
            bundle = self._seal(draft, peer)
        except BaseException:
            self._device.abandon(draft, now())
            raise
        self._device.sent(draft, now())
        self._changed()
        return bundle

    def reached(self, peer: PublicKey) -> None:
        """Note that a peer can be reached; see ``Desk.reached``."""
        if self._is_open and self._device.knows(peer):
            way = self._ways.setdefault(peer, _Way())
            way.failures_count = 0
            self._resume(peer)

    def peers(self) -> Sequence[PublicKey]:
        """Return the known peers."""
        return self._device.peers()

    # Links

    def _link(self, peer: PublicKey) -> None:
        if self.carrier.reaches(peer):
            way = self._ways.setdefault(peer, _Way())
            way.link = self._device.link_up(peer, self.terms, now())
            self._changed()

    def _unlink(self, way: _Way) -> None:
        if way.link is not None:
            self._device.link_down(way.link, now())
            way.link = None
            self._changed()

    def _forget(self, peer: PublicKey) -> None:
        way = self._ways.pop(peer)
        if way.pause is not None:
            way.pause.cancel()
        self._unlink(way)

    def _resume(self, peer: PublicKey) -> None:
        """End a pause, and make what waits due at once."""
        way = self._ways[peer]
        if way.pause is not None:
            way.pause.cancel()
            way.pause = None
        if not self.terms.outlives or way.link is None:
            self._unlink(way)
            self._link(peer)
        self._changed()

    def _rest(self, peer: PublicKey, way: _Way, error: Exception) -> None:
        self._tell(CarrierTrouble(peer, self.terms.kind, str(error)))
        if not self.terms.outlives:
            self._unlink(way)
        pause_s = min(PAUSE_S_MAX, PAUSE_S * 2**way.failures_count) * self._rng.uniform(0.75, 1.25)
        way.failures_count = min(way.failures_count + 1, 10)
        way.pause = asyncio.get_running_loop().call_later(pause_s, self._try_again, peer)

    def _try_again(self, peer: PublicKey) -> None:
        way = self._ways.get(peer)
        if way is not None:
            way.pause = None
            if way.link is None:
                self._link(peer)
            self._changed()

    # Carrying

    async def _carry(self, peer: PublicKey, way: _Way) -> None:
        try:
            carry = self._carry_to_keep if self.terms.outlives else self._carry_through
            # When a better way has come up meanwhile, what is left is said over that one.
            while self._is_spoken_over(peer, way) and await carry(peer):
                way.failures_count = 0
        except (HostError, RemoteError) as error:
            if self._is_open and self._ways.get(peer) is way:
                self._rest(peer, way, error)
        finally:
            way.busy = False
            self._changed()

    async def _carry_through(self, peer: PublicKey) -> bool:
        """Carry one bundle by a relay that forgets; return whether there was one."""
        bundle = self._make(peer, self.carrier.bundle_bytes_max)
        if bundle is not None:
            await self.carrier.carry(peer, bundle)
        return bundle is not None

    async def _carry_to_keep(self, peer: PublicKey) -> bool:
        """Carry one bundle to a relay that keeps it: what it did not take was not sent."""
        if not self._device.knows(peer):
            return False
        draft = self._device.draft(peer, self.terms, now(), bundle_room(self.carrier.bundle_bytes_max))
        taken = False
        try:
            if draft.records:
                await self.carrier.carry(peer, self._seal(draft, peer))
                taken = True
        finally:
            (self._device.sent if taken else self._device.abandon)(draft, now())
        self._changed()
        return taken

    def _seal(self, draft: Draft, peer: PublicKey) -> bytes:
        return self._bundles.seal(draft, peer, self._number())
