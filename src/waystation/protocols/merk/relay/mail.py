"""What ``mailboxes`` has in memory: a mailbox, a kept frame, shares, the promises of one commit, and answers to them.

Times are Unix milliseconds.
"""

from collections.abc import Iterator
from typing import NamedTuple

from waystation.protocols.merk.messages import KeyAdvert, Presence
from waystation.protocols.merk.session import Sending

__all__ = [
    "Answer",
    "Arrival",
    "Batch",
    "Closed",
    "Kept",
    "Mailbox",
    "NotKept",
    "NotOpened",
    "Opened",
    "Opening",
    "Shares",
    "Stored",
]


class Shares:
    """Frames and bytes by name, so that none takes more than its share; names without any are forgotten.

    ``mailboxes`` keeps one per limit: of the senders and sources in one mailbox, and of networks over all of them.
    Cost: O(1) each.
    """

    __slots__ = ("_of", "count", "size")

    def __init__(self) -> None:
        """Start with nothing."""
        self._of: dict[str | bytes, tuple[int, int]] = {}
        self.count = 0
        """How many frames there are."""
        self.size = 0
        """Their bytes."""

    def __len__(self) -> int:
        """Return how many names have something."""
        return len(self._of)

    def of(self, name: str | bytes) -> tuple[int, int]:
        """Return how many frames and bytes a name has."""
        return self._of.get(name, (0, 0))

    def items(self) -> Iterator[tuple[str | bytes, int, int]]:
        """Yield every name that has something, its frames and its bytes."""
        for name, (count, total) in self._of.items():
            yield name, count, total

    def add(self, name: str | bytes, size: int, times: int = 1) -> None:
        """Count a frame in, or out with ``times`` = -1."""
        count, total = self.of(name)
        count, total = count + times, total + times * size
        assert count >= 0
        assert total >= 0
        if count:
            self._of[name] = (count, total)
        else:
            self._of.pop(name, None)
        self.count += times
        self.size += times * size

    def has_room(self, size: int, count_max: int, bytes_max: int) -> bool:
        """Return whether one frame more fits among all."""
        return self.count < count_max and self.size + size <= bytes_max

    def has_room_for(self, name: str | bytes, size: int, count_max: int, bytes_max: int) -> bool:
        """Return whether a name's share has room for one frame more; "" is nobody, and has no share to fill."""
        count, total = self.of(name)
        return not name or (count < count_max and total + size <= bytes_max)


class Stored:
    """One kept frame, without its bytes."""

    __slots__ = ("frame_hash", "number", "sender", "size", "source", "until_ms")

    def __init__(self, number: int, sender: bytes, source: str, size: int, until_ms: int, frame_hash: bytes) -> None:
        """Describe a frame."""
        self.number = number
        """Grows with each frame of this node."""
        self.sender = sender
        self.source = source
        """The network that it came from, or the node that brought it."""
        self.size = size
        self.until_ms = until_ms
        self.frame_hash = frame_hash


class Mailbox:
    """One client's mailbox."""

    __slots__ = ("advert", "came_ms", "mail", "mail_bytes", "network", "owner", "presence", "senders", "sources")

    def __init__(self, owner: bytes, presence: Presence | None, came_ms: int, network: str) -> None:
        """Start empty."""
        self.owner = owner
        self.presence = presence
        """The owner's word that this node keeps its mail; None after its row was damaged: nothing more is taken."""
        self.came_ms = came_ms
        self.network = network
        self.advert: KeyAdvert | None = None
        """The owner's agreement key as it is on disk, None where none is."""
        self.mail: dict[bytes, Stored] = {}
        """Frames on disk by their hash, the oldest first."""
        self.mail_bytes = 0
        """Their bytes."""
        self.senders, self.sources = Shares(), Shares()
        """What each sender, and each network and node, has in here, frames that wait for the disk included."""

    def takes_at(self, wall_ms: int) -> bool:
        """Return whether the owner's word still holds."""
        return self.presence is not None and self.presence.until_ms > wall_ms


class Opened(NamedTuple):
    """The mailbox is on disk."""

    owner: bytes


class NotOpened(NamedTuple):
    """It is not: the store refused."""

    owner: bytes


class Closed(NamedTuple):
    """The mailbox and its mail are off the disk."""

    owner: bytes


class Kept(NamedTuple):
    """A frame is on disk."""

    sending: Sending


class NotKept(NamedTuple):
    """It is not: the store refused, or the mailbox was closed meanwhile."""

    sending: Sending


Answer = Opened | NotOpened | Closed | Kept | NotKept


class Opening(NamedTuple):
    """A mailbox that is being opened or renewed."""

    presence: Presence
    network: str
    came_ms: int
    is_asked: bool
    """Whether the owner waits for an answer."""


class Arrival:
    """A frame that waits for the disk, and everybody who wants to know."""

    __slots__ = ("kept_ms", "sendings", "stored")

    def __init__(self, stored: Stored, sending: Sending, kept_ms: int) -> None:
        """Note the first who brings it."""
        self.stored = stored
        self.sendings = [sending]
        self.kept_ms = kept_ms


class Batch:
    """The promises of one commit."""

    __slots__ = ("adverts", "arrivals", "closings", "openings")

    def __init__(self) -> None:
        """Start with none."""
        self.openings: dict[bytes, Opening] = {}
        """By owner."""
        self.adverts: dict[bytes, KeyAdvert] = {}
        """By owner: what is in the rows of the openings; filled when the commit begins."""
        self.arrivals: dict[tuple[bytes, bytes], Arrival] = {}
        """By owner and hash."""
        self.closings: dict[bytes, None] = {}
        """Owners that wait for the end of their mailbox."""
