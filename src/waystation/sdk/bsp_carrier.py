"""What stands between a BSP peer and a relay that carries its bundles: a MERK, Bhumi or LPRP client, or anything else.

A *bundle* is a sealed and signed container of records, the same as in a file (``protocols.bsp.bundle``): whoever
carries it can hold it back, and nothing more. A carrier knows no record and a peer knows no relay; they meet at a
``Desk``, where bundles are handed in and asked for. Copies, losses and disorder are all right: BSP's own timers repair
them.
"""

from collections.abc import Sequence
from typing import Protocol

from waystation.core.ids import PublicKey
from waystation.protocols.bsp.links import LinkTerms

__all__ = ["Carrier", "Desk"]


class Desk(Protocol):
    """Where a carrier hands bundles in and asks for bundles; ``BspPeer`` has one for each carrier."""

    async def take(self, bundle: bytes) -> PublicKey | None:
        """Read a bundle that arrived, and return once what it says is on disk.

        Nothing that a stranger sent raises: it is counted in ``BspPeer.status``.

        Args:
            bundle: As it came.

        Returns:
            Who sealed it, or None when it was refused.

        Raises:
            HostError: Our disk did not take it; leave it with the relay.
        """

    async def make(self, peer: PublicKey, bytes_max: int, *, even_empty: bool = False) -> bytes | None:
        """Return a bundle of what is due for a peer, which counts as sent from then on.

        Args:
            peer: Who shall read it.
            bytes_max: Most bytes of the whole bundle.
            even_empty: Make one without records when nothing is due, for carriers that must say something to be told
                something.

        Returns:
            The bundle, or None when nothing is due or the peer is not known.
        """

    def reached(self, peer: PublicKey) -> None:
        """Note that a peer can be reached this way, for the first time or again: what waits for it goes out at once."""

    def peers(self) -> Sequence[PublicKey]:
        """Return the peers that are known, whether they can be reached this way or not."""


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

    async def open(self, desk: Desk) -> None:
        """Begin to hand in at ``desk`` what arrives; called once, before the first ``carry``.

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
                while, or until ``Desk.reached`` or a bundle from the peer.
        """
