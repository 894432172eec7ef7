"""What all carriers over a relay share: checks of bundles, background tasks, reports of failures.

A carrier takes sealed BSP records (bundles) to a peer over another protocol; ``bridges.merk``, ``bridges.lprp`` and
``bridges.bhumi`` subclass it. ``BspPeer.attach`` takes the result.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Final

from waystation.core.errors import HostError, LocalError, WaystationError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.links import LinkTerms
from waystation.sdk.backoff import Backoff
from waystation.sdk.bsp.carrier import CarrierFailure, CarrierSession
from waystation.sdk.bsp.identities import Identities
from waystation.sdk.errors import NotCarriedError

__all__ = ["BUNDLE_BEGINS", "RelayCarrier", "ignore"]

BUNDLE_BEGINS: Final = b"BSPF"  # specs/bsp.md 5


class RelayCarrier(ABC):
    """A carrier over one kind of relay; a subclass sends bundles and hands in those that arrive."""

    def __init__(
        self,
        name: str,
        terms: LinkTerms,
        bundle_bytes_max: int,
        identities: Identities | None,
        on_event: Callable[[object], None] | None,
    ) -> None:
        """Begin closed.

        Args:
            name: Of the protocol, as sentences have it.
            terms: The same for every relay.
            bundle_bytes_max: Longest bundle.
            identities: Who the peers are at the relays; None means by the same keys.
            on_event: Gets ``CarrierFailure``.
        """
        self.terms: Final = terms
        self.bundle_bytes_max: Final = bundle_bytes_max
        self._name = name
        self._identities = identities or Identities()
        self._report = on_event if on_event is not None else ignore
        self._session: CarrierSession  # since ``open``
        self._tasks: set[asyncio.Task[None]] = set()
        self._stack = contextlib.AsyncExitStack()

    def reaches(self, peer: PublicKey) -> bool:  # noqa: ARG002 - most relays take bundles for anybody
        """Return True: whether the relay knows the peer, only a bundle shows."""
        return True

    @abstractmethod
    async def open(self, session: CarrierSession) -> None:
        """Begin to hand in at ``session`` what arrives; see ``Carrier.open``."""

    async def close(self) -> None:
        """Let go of the relay; safe to call twice."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stack.aclose()

    async def carry(self, peer: PublicKey, bundle: bytes) -> None:
        """Send a bundle, and return once the relay or the peer has taken it.

        Raises:
            LocalError: The bundle is too long.
            RelayUnreachableError: No relay is reached.
            RemoteError: It was not taken, or that is unknown.
        """
        most = self.bundle_bytes_max
        if len(bundle) > most:
            raise LocalError(f"a bundle over {self._name} has at most {most} bytes, this has {len(bundle)}")
        try:
            await self._send(peer, bundle)
        except LocalError as error:
            raise self._not_carried(peer, str(error)) from error

    @abstractmethod
    async def _send(self, peer: PublicKey, bundle: bytes) -> None:
        """Send a bundle that is not too long; raises as ``carry``."""

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` until ``close``."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _take(self, bundle: bytes, peer: PublicKey | None = None) -> bool:
        """Hand in a bundle that no relay gives again, and return whether our disk could take what it says."""
        try:
            await self._session.take(bundle)
        except HostError as error:
            self._failed(error, peer)
            return False
        return True

    def _failed(self, error: WaystationError, peer: PublicKey | None = None) -> None:
        self._report(CarrierFailure(self.terms.kind, peer, str(error)))

    async def _pause(self, backoff: Backoff, error: WaystationError) -> None:
        """Report a failure, and return when it is time to try again."""
        self._failed(error)
        await asyncio.sleep(backoff.next_s())

    def _not_carried(self, peer: bytes, reason: str) -> NotCarriedError:
        return NotCarriedError(self._name, peer, reason)


def ignore(_event: object) -> None:
    """Do nothing; for a bridge without a callback."""
