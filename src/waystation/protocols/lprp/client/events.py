"""The events that an LPRP client machine reports to its owner: a closed set.

``LprpClient.take_events`` returns them in order. Keys have 32 bytes, signatures 64; times named ``_ms`` are Unix
milliseconds.
"""

from enum import Enum
from typing import NamedTuple

from waystation.core.ids import PublicKey
from waystation.protocols.lprp.messages import SIGNATURE_BYTES, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal

__all__ = [
    "Event",
    "HostAnswered",
    "LeaseDoubted",
    "LeaseGranted",
    "LeaseRefused",
    "PacketArrived",
    "PacketDropped",
    "RelayFinished",
    "RequestOutcome",
    "WhitelistAgreed",
    "WhitelistDiffers",
    "WhitelistFailed",
    "WorkOver",
    "WorkWanted",
]


class RequestOutcome(Enum):
    """The outcome of a request to the host."""

    ACCEPTED = "accepted"
    """The host accepted; a relayed packet is on its disk."""
    REFUSED = "refused"
    """The host refused: the recipient has no lease or no room, the table is full, the lists differ."""
    WORK_FAILED = "work_failed"
    """The demanded work was more than we do, took too long, or was given up."""
    UNANSWERED = "unanswered"
    """The host did not answer; it may have accepted all the same."""
    NOT_SENT = "not_sent"
    """Too many requests wait already, or it waited too long for its turn; it never left."""


class WorkWanted(NamedTuple):
    """Search for the first counter from ``start`` with at least ``bits`` zero bits, and call ``work_found``.

    The same challenge comes again when the host refused the solution: the search goes on where it was.
    """

    challenge: bytes
    """208 bytes, the whole packet."""
    kind: Kind
    start: int
    """First counter to try; ``work.solution_of`` makes bytes of it."""
    bits: int
    """0 to 26."""

    @property
    def challenge_signature(self) -> bytes:
        """Name of the search: 64 bytes."""
        return self.challenge[:SIGNATURE_BYTES]


class WorkOver(NamedTuple):
    """The search is needed no more: stop it."""

    challenge_signature: bytes


class LeaseGranted(NamedTuple):
    """The host granted or renewed our lease."""

    asked_ms: int
    """Time of the packet that asked."""
    until_ms: int
    """When the lease ends at the earliest; it is renewed long before."""


class LeaseRefused(NamedTuple):
    """The host refused a lease; unless let go, the client asks again later."""

    outcome: RequestOutcome


class LeaseDoubted(NamedTuple):
    """Heartbeats go unanswered: the lease may be gone, and the client asks again."""


class HostAnswered(NamedTuple):
    """The host answered a heartbeat, so the lease holds."""

    time_ms: int
    """The host's clock."""


class RelayFinished(NamedTuple):
    """The outcome of a packet of ``send``; each gets exactly one."""

    signature: bytes
    outcome: RequestOutcome


class PacketArrived(NamedTuple):
    """A packet for us, its signature checked; call ``confirm`` once it is kept."""

    packet: Packet


class PacketDropped(NamedTuple):
    """A datagram was dropped."""

    refusal: Refusal
    sender: PublicKey | None
    """The claimed sender, unverified; None when it has none."""


class WhitelistAgreed(NamedTuple):
    """The host has just these keys on our whitelist."""

    keys: frozenset[PublicKey]


class WhitelistDiffers(NamedTuple):
    """Answer to ``compare_whitelist``: the host has another set than these keys."""

    keys: frozenset[PublicKey]


class WhitelistFailed(NamedTuple):
    """The whitelist could not be synchronised; the host's list is unknown."""

    outcome: RequestOutcome


Event = (
    WorkWanted
    | WorkOver
    | LeaseGranted
    | LeaseRefused
    | LeaseDoubted
    | HostAnswered
    | RelayFinished
    | PacketArrived
    | PacketDropped
    | WhitelistAgreed
    | WhitelistDiffers
    | WhitelistFailed
)
