"""Carriers of bundles between BSP peers, such as clients of MERK, Bhumi or LPRP, and what connects one to a device.

``BspPeer`` makes a ``CarrierSession`` for each one that is attached. A *bundle* is a sealed and signed container of BSP
records, the same as in a file (``protocols.bsp.bundle``). A carrier can delay or drop a bundle, but cannot read or
forge it. Copies, losses and reordering are allowed, because BSP's own timers repair them.

While the carrier works, every peer that it reaches has a link on the device. The device uses the best link of a peer:
direct connections first, then relays that forward, then relays that store; the newest of equals (BSP-NEWEST). Each peer
gets one bundle at a time over this carrier. If a storing relay (``outlives``) rejects a bundle, its content counts as
unsent. If a forwarding relay fails, the link is down, as with a connection.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from waystation.core.errors import HostError, RemoteError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.links import LinkTerms
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.refusals import MalformedError
from waystation.sdk.backoff import Backoff
from waystation.sdk.bsp.bundles import Bundles
from waystation.sdk.bsp.news import BundleRefused, CarrierTrouble
from waystation.sdk.connection import now

__all__ = ["PAUSE_S", "PAUSE_S_MAX", "Carrier", "CarrierFailure", "CarrierSession"]

PAUSE_S: Final = 1.0
"""After the first failure; doubled by each further one."""
PAUSE_S_MAX: Final = 60.0


class Carrier(Protocol):
    """One way to peers, such as a client of one relay; ``BspPeer.attach`` takes it."""

    @property
    def terms(self) -> LinkTerms:
        """What the device must know of this way; ``outlives`` is true where the relay keeps what it has taken."""

    @property
    def bundle_bytes_max(self) -> int:
        """Largest bundle that ``carry`` takes; room for one whole message at least."""

    def reaches(self, peer: PublicKey) -> bool:
        """Return whether a peer may be written to this way."""

    async def open(self, session: "CarrierSession") -> None:
        """Begin to hand in at ``session`` what arrives; called once, before the first ``carry``.

        Raises:
            HostError: The relay cannot be reached, and waiting would not help.
            RemoteError: It does not want us.
        """

    async def close(self) -> None:
        """Hand in no more and let go of the relay; called once, also when ``open`` failed."""

    async def carry(self, peer: PublicKey, bundle: bytes) -> None:
        """Give a bundle to the relay, and return once it has taken it.

        Raises:
            HostError: The relay is out of reach.
            RemoteError: It did not take it. Either way nothing counts as sent, and this way to the peer rests for a
                while, or until ``CarrierSession.reached`` or a bundle from the peer.
        """


class CarrierFailure(NamedTuple):
    """Work in the background has failed; the carrier goes on."""

    kind: str
    """merk, bhumi or lprp."""
    peer: PublicKey | None
    """Whom it was about, if anybody."""
    reason: str
    """A sentence for people."""


@dataclass(slots=True)
class _Way:
    """One peer as this carrier reaches it."""

    backoff: Backoff
    link: int | None = None
    busy: bool = False
    pause: asyncio.TimerHandle | None = None


class CarrierSession:
    """Where one carrier hands bundles in and asks for bundles; ``BspPeer`` has one for each carrier."""

    def __init__(
        self,
        carrier: Carrier,
        device: BspDevice,
        bundles: Bundles,
        *,
        changed: Callable[[], None],
        report: Callable[[Any], None],
        rng: random.Random,
    ) -> None:
        """Prepare; ``open`` begins.

        Args:
            carrier: Used for nothing else.
            device: Whose records are carried.
            bundles: Seals and opens.
            changed: Called after what changed the device.
            report: Gets ``BundleRefused`` and ``CarrierTrouble``.
            rng: Spreads pauses.
        """
        self.carrier = carrier
        self.terms = carrier.terms
        self._device = device
        self._bundles = bundles
        self._changed = changed
        self._report = report
        self._ways: defaultdict[PublicKey, _Way] = defaultdict(
            lambda: _Way(Backoff(rng, first_s=PAUSE_S, cap_s=PAUSE_S_MAX))
        )
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

    def resume_all(self) -> None:
        """End the pause of every peer."""
        for peer in [peer for peer, way in self._ways.items() if way.pause is not None]:
            self.reached(peer)

    def pump(self) -> None:
        """Carry what is due over our links; called after every turn."""
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
        """Read a bundle that arrived, and return once what it says is on disk.

        Nothing that an unknown sender sent raises: it is counted in ``BspPeer.status``.

        Args:
            bundle: As it came.

        Returns:
            Who sealed it, or None when it was refused.

        Raises:
            HostError: Our disk did not take it; leave it with the relay.
        """
        try:
            opened = self._bundles.open(bundle)
        except MalformedError as error:
            self.refused_count += 1
            self._report(BundleRefused(self.terms.kind, error.refusal))
            return None
        way = self._ways.get(opened.sender)
        if way is not None and way.pause is not None:
            self._resume(opened.sender)
        await self._bundles.receive(opened, way.link if way is not None else None)
        return opened.sender

    async def make(self, peer: PublicKey, bytes_max: int) -> bytes | None:
        """Return a bundle of what is due for a peer, which counts as sent from then on.

        Args:
            peer: Who shall read it.
            bytes_max: Most bytes of the whole bundle.

        Returns:
            The bundle, or None when nothing is due or the peer is not known.
        """
        try:
            return self._make(peer, bytes_max)
        except RemoteError as error:
            self._report(CarrierTrouble(peer, self.terms.kind, str(error)))
            return None

    def _make(self, peer: PublicKey, bytes_max: int) -> bytes | None:
        if not self._device.knows(peer):
            return None
        with self._bundles.drafted(peer, self.terms, bytes_max) as draft:
            return self._bundles.seal(draft, peer) if draft.records else None

    def reached(self, peer: PublicKey) -> None:
        """Note that a peer can be reached this way, for the first time or again: what waits for it goes out at once."""
        if self._is_open and self._device.knows(peer):
            way = self._ways[peer]
            way.backoff.reset()
            self._resume(peer)

    def peers(self) -> Sequence[PublicKey]:
        """Return the peers that are known, whether they can be reached this way or not."""
        return self._device.peers()

    # Links

    def _link(self, peer: PublicKey) -> None:
        if self.carrier.reaches(peer):
            way = self._ways[peer]
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
        self._report(CarrierTrouble(peer, self.terms.kind, str(error)))
        if not self.terms.outlives:
            self._unlink(way)
        way.pause = asyncio.get_running_loop().call_later(way.backoff.next_s(), self._try_again, peer)

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
                way.backoff.reset()
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
        with self._bundles.drafted(peer, self.terms, self.carrier.bundle_bytes_max) as draft:
            if draft.records:
                await self.carrier.carry(peer, self._bundles.seal(draft, peer))
        return bool(draft.records)
