"""The messages of Bhumi v2's core frames, as immutable records.

Sizes in the docstrings are bytes on the wire without the 6-byte frame header. The extension frames are in
``extension_messages``. Spec: Bhumi v2 section 5; BHUMI-M, BHUMI-X.
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
PREIMAGE_BYTES: Final = 32  # Bhumi v2 6.1
COMMIT_BYTES: Final = 32  # SHA-256, BHUMI-3
MESSAGE_ID_BYTES: Final = 4  # Bhumi v2 5.4


class FrameType(IntEnum):
    """The first two bytes of a frame."""

    HELLO = 0x01
    I_AM = 0x02
    SEND = 0x03  # to the relay, spec 2
    DELIVER = 0x04  # from the relay
    ACK = 0x05  # to the relay
    KEEPALIVE = 0x06  # both ways
    SEND_RESULT = 0x07  # from the relay
    UPDATE_COMMITS = 0x08  # to the relay; the original's, BHUMI-M
    OPTIONS = 0x40  # both ways, spec 5
    REVOKE_COMMITS = 0x41  # to the relay, BHUMI-26
    BIND = 0x42  # challenge from the relay, proof to it, BHUMI-BINDING
    I_AM_OK = 0x43  # from the relay, BHUMI-IAMOK
    PRESENCE = 0x44  # to the relay, and inside 0x46 and 0x4C
    WHERE = 0x45  # to the relay
    WHERE_RESULT = 0x46  # from the relay
    RELAY_AD = 0x47  # both ways, and inside 0x49 and 0x4C
    RELAYS_REQUEST = 0x48  # to the relay
    RELAYS = 0x49  # from the relay
    QA_REQUEST = 0x4A  # from the relay
    QA_REPORT = 0x4B  # to the relay, BHUMI-QALOCAL
    GOSSIP = 0x4C  # between relays
    WATCH = 0x4D  # to the relay, BHUMI-WATCH
    WATCHED = 0x4E  # from the relay
    AUTHORITY = 0x4F  # from the relay, BHUMI-AUTHORITY


class Status(IntEnum):
    """Outcome of a SEND. Spec: Bhumi v2 5.7."""

    OK = 0
    NOT_CONNECTED = 1  # nothing was consumed, BHUMI-16
    BAD_PREIMAGE = 2  # unknown, used or wrong alike, BHUMI-14
    TIMEOUT = 3  # no ACK in time; it may still come, BHUMI-19
    GONE = 4  # the recipient disconnected, BHUMI-21


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
    WATCH = 1 << 6
    """The relay reports which devices connect and disconnect."""
    AUTHORITY = 1 << 7
    """The relay shows the authorities that its certificate comes from, and will come from."""


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
    """Client to relay: deliver this and return the outcome; 68 bytes and the payload."""

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
