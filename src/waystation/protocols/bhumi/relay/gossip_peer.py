"""The gossip state of one other relay, over a connection that either side has dialled."""

from dataclasses import dataclass
from typing import Protocol

from waystation.core.effects import Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket

__all__ = ["Carrier", "Contact"]


class Carrier(Protocol):
    """The connection below a contact."""

    @property
    def peer(self) -> Peer:
        """Its number."""

    @property
    def waiting_since(self) -> Instant | None:
        """Since when bytes wait for the other side, None when none do."""


@dataclass(slots=True, eq=False)
class Contact:
    """What gossip keeps of another relay."""

    carrier: Carrier
    key: PublicKey | None
    """Proven when it dialled us; what it claims when we dialled it, None when it does not say."""
    address: str
    """What we dialled, empty when it dialled us."""
    since: Instant
    records: TokenBucket | None
    """Allowance for checks of signatures; None for no limit."""
    frames: TokenBucket | None
    """Allowance for frames, so that records that cost no check are bounded too."""
    strikes: int = 0
    """Records that no honest relay passes on."""
    sampled_in: int = 0
    """Number of the round in which it was given a sample last."""
    records_in: int = 0
    """New ones that came from it."""
    records_out: int = 0

    @property
    def is_stalled(self) -> bool:
        """Whether it has not taken what was sent before; it gets no more until it has."""
        return self.carrier.waiting_since is not None
