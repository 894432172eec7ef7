"""The events that a Strata client machine reports, and its reasons to close a connection: closed sets.

``StrataClient.take_events`` returns events in order. Times are whole Unix seconds.
Spec: RFC-0004 3, 6.1, 7; specs/strata.md 10 to 13, 18.
"""

from enum import Enum
from typing import NamedTuple

from waystation.protocols.strata.packet import Packet

__all__ = [
    "AuthFailed",
    "Authenticated",
    "ChallengeRefused",
    "ClientEnd",
    "CursorLost",
    "Event",
    "HistoryEnded",
    "Limited",
    "PacketArrived",
    "PacketDropped",
    "ProtocolFault",
    "PublishQueued",
    "PublishRefused",
    "PublishUnknown",
    "Published",
    "RelayError",
    "ServerNamed",
    "SubscriptionRefused",
    "Violation",
]


class ClientEnd(Enum):
    """The reason for which the client closes a connection, as a sentence for display and logs."""

    SERVER_ID_CHANGED = "the relay names itself differently"
    NOT_AUTHENTICATED = "the relay does not authenticate us"
    NOT_STRATA = "the relay does not speak Strata"
    KEYS_PENDING = "too much waits for key events of authors"
    MALFORMED_PACKET = "the relay passed on a bad packet: malformed_packet"
    PACKET_ID = "the relay passed on a bad packet: packet_id"
    SIGNATURE = "the relay passed on a bad packet: signature"
    EXPIRED = "the relay passed on a bad packet: expired"
    OUTSIDE_FILTER = "the relay passed on a bad packet: outside_filter"


class ServerNamed(NamedTuple):
    """The relay named itself for the first time: this is the identity to pin for its address."""

    server_id: str
    """A DID."""


class ChallengeRefused(NamedTuple):
    """A challenge was not answered; nothing has been signed."""

    reason: str
    """``challenge_form``, ``server_id_form`` or ``server_id_changed``."""


class Authenticated(NamedTuple):
    """AUTH_OK came."""

    capabilities: tuple[str, ...]
    """The capabilities of this connection."""
    latency_us: int
    """From AUTH to AUTH_OK, in microseconds."""


class AuthFailed(NamedTuple):
    """AUTH was refused or not answered: the connection is unauthenticated."""

    code: str
    """Wire code, or ``timeout``."""
    detail: str


class Published(NamedTuple):
    """The relay has stored the packet, or had it already."""

    msg_id: str
    packet_id: bytes
    duplicate: bool
    duplicate_of: bytes | None
    """Id of the earlier packet with the same attestation or metric."""
    downgrade: dict[str, str] | None
    """``claimed``, ``origin_type`` and ``reason`` when the claimed origin was not believed."""
    latency_us: int
    """From PUBLISH to OK, in microseconds."""


class PublishQueued(NamedTuple):
    """The relay queued the packet but does not promise it yet; another event follows."""

    msg_id: str


class PublishRefused(NamedTuple):
    """The relay refused the packet."""

    msg_id: str
    packet_id: bytes
    code: str
    """A wire code, maybe an unknown one."""
    detail: str
    reason: str
    """The relay's sentence, for display."""
    retry_after_s: int | None
    """Set with ``rate_limited``, after the machine has tried often enough."""
    max_bytes: int | None
    """Set with ``packet_too_large`` when the relay sends it."""


class PublishUnknown(NamedTuple):
    """No answer came: the packet may be stored or not. Publishing the same bytes again is safe."""

    msg_id: str
    packet_id: bytes


class PacketArrived(NamedTuple):
    """A packet that passed every check, for the first time on this subscription."""

    subscription_id: str | None
    """None for an unsolicited packet."""
    packet: Packet
    """As signed, whatever form it came in."""
    received_at: int
    """The relay's claim."""
    cursor: str | None
    """The cursor to resume after this packet, if the relay sent one."""
    origin_type: str
    """Origin to believe: UNKNOWN when downgraded or without a header."""
    downgrade: dict[str, str] | None
    """``claimed``, ``origin_type`` and ``reason``."""
    verified: bool
    """False when the author's keys are unknown, or when checking is left to the owner."""


class PacketDropped(NamedTuple):
    """A packet that could not be verified, for which the relay is not to blame."""

    subscription_id: str | None
    packet_id: bytes | None
    reason: str
    """``unknown_author``, or ``signature`` when the relay did not answer for the author's key events."""


class HistoryEnded(NamedTuple):
    """History is complete up to now (``has_more`` false), or its page is; again after each reconnect."""

    subscription_id: str
    cursor: str | None
    has_more: bool


class SubscriptionRefused(NamedTuple):
    """The relay refused; the machine has forgotten the subscription."""

    subscription_id: str
    code: str
    detail: str
    retry_after_s: int | None


class CursorLost(NamedTuple):
    """The relay does not know our cursor any more; the subscription goes on by time, with duplicates left out."""

    subscription_id: str


class Limited(NamedTuple):
    """A request was limited; the machine sends it again after the wait."""

    retry_after_s: int
    msg_id: str | None
    """Of a PUBLISH."""
    subscription_id: str | None
    """Of a SUBSCRIBE."""


class Violation(NamedTuple):
    """The relay passed on what it must not; the packet was dropped."""

    reason: str
    """``malformed_packet``, ``packet_id``, ``signature``, ``expired`` or ``outside_filter``."""
    detail: str
    packet_id: bytes | None
    """As the packet claims, if it could be read."""


class ProtocolFault(NamedTuple):
    """A frame that is no message; it was ignored."""

    detail: str


class RelayError(NamedTuple):
    """An ERROR that belongs to no request we know."""

    code: str
    detail: str


Event = (
    ServerNamed
    | ChallengeRefused
    | Authenticated
    | AuthFailed
    | Published
    | PublishQueued
    | PublishRefused
    | PublishUnknown
    | PacketArrived
    | PacketDropped
    | HistoryEnded
    | SubscriptionRefused
    | CursorLost
    | Limited
    | Violation
    | ProtocolFault
    | RelayError
)
