"""What Bhumi peers can say to each other.

Spec: Bhumi v2 section 5; BHUMI-M, BHUMI-X. Sizes are bytes on the wire without the 6-byte frame header.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from waystation.core.ids import PublicKey

__all__ = [
    "COMMIT_BYTES",
    "MESSAGE_ID_BYTES",
    "PREIMAGE_BYTES",
    "PROTOCOL_VERSION",
    "Ack",
    "Deliver",
    "Feature",
    "FrameType",
    "Hello",
    "IAm",
    "Keepalive",
    "Message",
    "Options",
    "RecentResponse",
    "Send",
    "SendResult",
    "Status",
    "Unknown",
    "UpdateCommits",
]

PROTOCOL_VERSION: Final = 1  # HELLO 5.1: "= 1", although the document is titled v2 (BHUMI-1)
PREIMAGE_BYTES: Final = 32
COMMIT_BYTES: Final = 32
MESSAGE_ID_BYTES: Final = 4


class FrameType(IntEnum):
    """The first two bytes of a frame."""

    HELLO = 0x01
    I_AM = 0x02
    SEND = 0x03
    DELIVER = 0x04
    ACK = 0x05
    KEEPALIVE = 0x06
    SEND_RESULT = 0x07
    UPDATE_COMMITS = 0x08
    OPTIONS = 0x40
    REVOKE_COMMITS = 0x41
    BIND = 0x42
    I_AM_OK = 0x43
    PRESENCE = 0x44
    WHERE = 0x45
    WHERE_RESULT = 0x46
    RELAY_AD = 0x47
    RELAYS_REQUEST = 0x48
    RELAYS = 0x49
    QA_REQUEST = 0x4A
    QA_REPORT = 0x4B
    GOSSIP = 0x4C


class Status(IntEnum):
    """Outcome of a SEND. Spec: Bhumi v2 5.7."""

    OK = 0
    NOT_CONNECTED = 1
    BAD_PREIMAGE = 2
    TIMEOUT = 3
    GONE = 4


class Feature(IntFlag):
    """Feature bits of OPTIONS. Spec: BHUMI-X."""

    DELIVER_WITH_PREIMAGE = 1 << 0
    RESULT_WITH_TAG = 1 << 1
    """Reserved: no document gives its layout, so nobody here accepts it."""
    PRESENCE = 1 << 2
    """PRESENCE, WHERE, RELAY_AD, RELAYS_REQ and GOSSIP are understood."""
    QA = 1 << 3
    """The relay may ask for probes."""
    BINDING = 1 << 4
    """The relay challenges, the client proves its identity to this very relay."""
    I_AM_OK = 1 << 5
    """The relay says that it took an I_AM."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Relay to client, at once on accept; 9 bytes."""

    relay_nonce: int
    """u32 that the client signs in I_AM."""
    max_payload_bytes: int
    """u32; limit of the opaque payload inside SEND and ACK."""
    protocol_version: int = PROTOCOL_VERSION
    """u8."""


@dataclass(frozen=True, slots=True)
class RecentResponse:
    """A response that a device carries to a new relay; 36 bytes and the response. Spec: 6.6."""

    preimage: bytes
    """32 bytes."""
    response: bytes
    """Opaque; encrypted for the sender."""


@dataclass(frozen=True, slots=True)
class IAm:
    """Client to relay: identity, commits and carried responses; at least 100 bytes."""

    identity: PublicKey
    """32-byte Ed25519 key: the id52."""
    signature: bytes
    """64 bytes over the relay's nonce (4 bytes, big-endian) and the identity."""
    commits: tuple[bytes, ...] = ()
    """32 bytes each; replaces the set of this identity (6.4)."""
    responses: tuple[RecentResponse, ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """Client to relay: deliver this and tell me the outcome; 68 bytes and the payload."""

    recipient: PublicKey
    """32 bytes: to_id52."""
    preimage: bytes
    """32 bytes; capability and idempotency key."""
    payload: bytes


@dataclass(frozen=True, slots=True)
class Deliver:
    """Relay to client; 8 bytes (seed) or 40 bytes (with preimage) and the payload. BHUMI-2."""

    message_id: int
    """u32, unique among the deliveries that wait for this recipient."""
    payload: bytes
    preimage: bytes | None = None
    """32 bytes in the layout of the upstream relay, None in the seed's."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Client to relay: the answer to a DELIVER; 8 bytes and the payload."""

    message_id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Both directions; empty. The relay echoes it."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """Relay to client: the outcome of the oldest SEND without one; 5 bytes and the payload."""

    status: int
    """u8; see ``Status``."""
    payload: bytes = b""
    """Empty unless the status is OK."""


@dataclass(frozen=True, slots=True)
class UpdateCommits:
    """Client to relay: add these to my set; 2 bytes and 32 a commit. Upstream's extension, BHUMI-M."""

    commits: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """Both directions: what the sender can do; 6 bytes. The relay answers with the accepted subset."""

    features: Feature
    """u32 bits."""
    extension_version: int = 1
    """u16."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A frame of type 0x40 or above that this side does not know: counted and ignored (BHUMI-24)."""

    frame_type: int


Message = Hello | IAm | Send | Deliver | Ack | Keepalive | SendResult | UpdateCommits | Options | Unknown
