"""What a client machine tells its owner: a closed set of things that happened.

``LprpClient.take_events`` hands them out in order. Keys have 32 bytes, signatures 64; times named ``_ms`` are Unix
milliseconds.
"""

from enum import Enum
from typing import NamedTuple

from waystation.core.ids import PublicKey
from waystation.protocols.lprp.messages import SIGNATURE_BYTES, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal

__all__ = [
    "Event",
    "HostHeard",
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
    """How a request to the host ended."""

    ACCEPTED = "accepted"
    """The host did what was asked; a packet relayed is on its disk."""
    REFUSED = "refused"
    """The host said no: the recipient has no lease or no room, the table is full, the lists differ."""
    WORK_FAILED = "work_failed"
    """The work demanded was more than we do, took too long, or was given up."""
    UNANSWERED = "unanswered"
    """Nobody answered; it may have been done all the same."""
    NOT_SENT = "not_sent"
    """Too many wait already, or it waited too long for its turn; nobody has seen it."""


class WorkWanted(NamedTuple):
    """Search for the first counter from ``start`` with at least ``bits`` zero bits, and call ``work_found``.

    The same challenge comes again when the host refused what was found: the search goes on where it was.
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
    """Nobody needs the search any more: stop it."""

    challenge_signature: bytes


class LeaseGranted(NamedTuple):
    """We are a tenant, for the first time or for longer."""

    asked_ms: int
    """Time of the packet that asked."""
    until_ms: int
    """When the lease ends at the earliest; it is renewed long before."""


class LeaseRefused(NamedTuple):
    """No lease this time; unless let go, it is asked for again later."""

    outcome: RequestOutcome


class LeaseDoubted(NamedTuple):
    """Heartbeats go unanswered: the lease may be gone, and is asked for again."""


class HostHeard(NamedTuple):
    """The host answered a heartbeat, so the lease stands."""

    time_ms: int
    """The host's clock."""


class RelayFinished(NamedTuple):
    """What became of a packet that ``send`` was given; each gets exactly one."""

    signature: bytes
    outcome: RequestOutcome


class PacketArrived(NamedTuple):
    """A packet for us, its signature checked; call ``confirm`` once it is kept."""

    packet: Packet


class PacketDropped(NamedTuple):
    """A datagram was not taken."""

    refusal: Refusal
    sender: PublicKey | None
    """Who it says it is from, unproved; None when it does not say."""


class WhitelistAgreed(NamedTuple):
    """The host has just these keys on our whitelist."""

    keys: frozenset[PublicKey]


class WhitelistDiffers(NamedTuple):
    """Answer to ``compare_whitelist``: the host has another set than these keys."""

    keys: frozenset[PublicKey]


class WhitelistFailed(NamedTuple):
    """The whitelist could not be brought into step; nobody knows what the host has."""

    outcome: RequestOutcome


Event = (
    WorkWanted
    | WorkOver
    | LeaseGranted
    | LeaseRefused
    | LeaseDoubted
    | HostHeard
    | RelayFinished
    | PacketArrived
    | PacketDropped
    | WhitelistAgreed
    | WhitelistDiffers
    | WhitelistFailed
)
