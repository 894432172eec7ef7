"""The queue of one tenant: accepted packets in their order, until the tenant confirms them.

Each ``Tenant`` has one; ``commands.relay`` adds and removes, ``delivery`` sends. An accepted packet is never evicted;
the limits are checked before acceptance. Spec: lprp 7; LPRP-C9.
"""

from collections.abc import Iterator
from itertools import islice

from waystation.core.instant import Instant
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import RECIPIENT, SENDER, WINDOW_PACKETS
from waystation.protocols.lprp.refusals import Refusal

__all__ = ["Mailbox", "QueuedPacket"]


class QueuedPacket:
    """One accepted packet, as it came."""

    __slots__ = (
        "accepted_ms",
        "attempt",
        "bundle",
        "data",
        "from_unlisted",
        "gone",
        "index",
        "sent_at",
        "signature",
        "vouches",
    )

    def __init__(self, data: bytes, signature: bytes, *, from_unlisted: bool, accepted_ms: int, attempt: int) -> None:
        """Describe a packet of 144 to 508 bytes, its first 64 too, that was accepted at ``accepted_ms`` (Unix ms)."""
        self.data = data
        self.signature = signature
        """The 64 bytes that name it."""
        self.from_unlisted = from_unlisted
        self.accepted_ms = accepted_ms
        self.attempt = attempt
        """Number of the delivery in the facts."""
        self.sent_at: Instant | None = None
        """When it was last sent, None for never."""
        self.gone = False
        """Whether it has left the queue."""
        self.bundle: int | None = None
        """Number of its bundle on disk, None until that is written."""
        self.vouches = 0
        """How many packets it has vouched for."""
        self.index = 0
        """Its place in the bundle."""

    @property
    def sender(self) -> bytes:
        """Key of 32 bytes."""
        return self.data[SENDER]

    @property
    def recipient(self) -> bytes:
        """Key of 32 bytes."""
        return self.data[RECIPIENT]


class Mailbox:
    """Queued packets by signature, oldest first."""

    __slots__ = ("_packets", "_per_unlisted", "unlisted_count")

    def __init__(self) -> None:
        """Start empty."""
        self._packets: dict[bytes, QueuedPacket] = {}
        self._per_unlisted: dict[bytes, int] = {}
        self.unlisted_count = 0
        """Queued packets of senders outside the whitelist."""

    def __len__(self) -> int:
        """Return how many packets are queued."""
        return len(self._packets)

    def __iter__(self) -> Iterator[QueuedPacket]:
        """Yield the packets, oldest first."""
        return iter(self._packets.values())

    def __contains__(self, signature: bytes) -> bool:
        """Return whether the packet with this signature is queued."""
        return signature in self._packets

    def find(self, signature: bytes) -> QueuedPacket | None:
        """Return the packet with this signature, if it is queued."""
        return self._packets.get(signature)

    def refuses(self, sender: bytes, limits: LprpLimits, *, from_unlisted: bool) -> Refusal | None:
        """Return why there is no room for one more packet of this sender, or None."""
        # Spec 7: 256 packets; of senders outside the whitelist 64 together and 16 each; beyond, 402 (LPRP-FULL).
        if len(self._packets) >= limits.queue_packets:
            return Refusal.QUEUE_FULL
        if from_unlisted and (
            self.unlisted_count >= limits.unlisted_packets
            or self._per_unlisted.get(sender, 0) >= limits.unlisted_packets_per_sender
        ):
            return Refusal.STRANGERS_FULL
        return None

    def unlisted_share(self, limits: LprpLimits) -> float:
        """Return which share of the room for unlisted senders is taken: 0 to 1, more after the limit was lowered."""
        return self.unlisted_count / limits.unlisted_packets

    def add(self, queued: QueuedPacket) -> None:
        """Append a packet to the queue."""
        assert queued.signature not in self._packets
        self._packets[queued.signature] = queued
        if queued.from_unlisted:
            self.unlisted_count += 1
            self._per_unlisted[queued.sender] = self._per_unlisted.get(queued.sender, 0) + 1

    def remove(self, signature: bytes) -> QueuedPacket | None:
        """Remove a packet and return it, or None when it is not queued."""
        queued = self._packets.pop(signature, None)
        if queued is not None and queued.from_unlisted:
            self.unlisted_count -= 1
            left = self._per_unlisted[queued.sender] - 1
            if left:
                self._per_unlisted[queued.sender] = left
            else:
                del self._per_unlisted[queued.sender]
        return queued

    def mark_unsent(self) -> None:
        """Mark the packets under way as never sent: their tenant has moved (LPRP-MOVED)."""
        # Spec 5: within c1 nothing is repeated to the same address; this is another one.
        for queued in self.window():
            queued.sent_at = None

    def window(self) -> Iterator[QueuedPacket]:
        """Yield the packets that may be under way together: the first 16 (LPRP-WINDOW)."""
        # Spec 5: the first 16 packets of its queue may be under way together.
        return islice(self._packets.values(), WINDOW_PACKETS)
