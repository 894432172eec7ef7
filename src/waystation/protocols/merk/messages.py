"""The frame of MERK-BREP, its message types, and the records that NODE_INFO frames carry.

``wire`` and ``infos`` encode and decode them; relay and client work with them. A frame is one binary WebSocket message:
a header of 120 bytes and a payload. Keys are 32-byte Ed25519 public keys; "agreement keys" are X25519. Signatures have
64 bytes.

Spec: seed "Protocol Details"; specs/merk.md 1, 4, 7, 10.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

__all__ = [
    "ADDRESS_BYTES_MAX",
    "CHALLENGE_BYTES",
    "CONFIRMATION",
    "DELIVERIES_MAX",
    "FORWARDS_MAX",
    "FRAME_BYTES_USUAL",
    "HASH_BYTES",
    "HEADER_BYTES",
    "KEY_BYTES",
    "LENGTH_AT",
    "LENGTH_BYTES",
    "MAGIC",
    "MAIL_TAKEN_MAX",
    "MESSAGE_ID_BYTES",
    "NONCE_BYTES",
    "SIGNATURE_BYTES",
    "VERSION",
    "ZERO_KEY",
    "ZERO_SIGNATURE",
    "AddServer",
    "Auth",
    "ClientAbsent",
    "ClientFound",
    "Deliveries",
    "Delivery",
    "DeliveryCode",
    "Feature",
    "Forward",
    "ForwardRun",
    "Frame",
    "Gone",
    "Hello",
    "Info",
    "InfoType",
    "KeyAdvert",
    "KeyQuery",
    "KeyUnknown",
    "Limits",
    "MailClose",
    "MailFetch",
    "MailOpen",
    "MailState",
    "MailTaken",
    "MailVerb",
    "MailboxState",
    "MessageType",
    "Presence",
    "PresenceKind",
    "QueryClient",
    "RequestServers",
    "Role",
    "ServerEntry",
    "Servers",
]

MAGIC: Final = 0x58  # spec 1
VERSION: Final = 0x01  # spec 1
HEADER_BYTES: Final = 120  # spec 1
LENGTH_AT: Final = 4  # spec 1
LENGTH_BYTES: Final = 4  # spec 1: u32
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
CHALLENGE_BYTES: Final = 32  # spec 2
NONCE_BYTES: Final = 32  # spec 7, HELLO
MESSAGE_ID_BYTES: Final = 16  # spec 7, FORWARD
HASH_BYTES: Final = 16  # spec 10.3
"""How much of a frame's SHA-256 names it in DELIVERY."""
MAIL_TAKEN_MAX: Final = 64  # spec 7, MAIL
"""How many frames one TAKEN names at most."""
DELIVERIES_MAX: Final = 240  # spec 7: with its header such a frame has less than 4 KiB, which is counted, not weighed
"""How many frames one DELIVERIES names at most."""
FORWARDS_MAX: Final = DELIVERIES_MAX  # spec 7
"""How many frames one FORWARDS carries at most."""
ADDRESS_BYTES_MAX: Final = 255  # spec 4: u8 length
FRAME_BYTES_USUAL: Final = 8_388_608  # spec 7: a node that has not said LIMITS
"""What a node takes that has not said so (specs/merk.md 10.11)."""
ZERO_KEY: Final = bytes(KEY_BYTES)  # spec 2: of a challenge
ZERO_SIGNATURE: Final = bytes(SIGNATURE_BYTES)  # spec 3: unsigned
CONFIRMATION: Final = b"\x01"  # spec 2
"""Payload of the frame that ends the handshake."""


class MessageType(IntEnum):
    """Byte 2 of the header."""

    HANDSHAKE = 1  # spec 2
    DATA = 2  # spec 3: in clear
    NODE_INFO = 3  # spec 4
    SIGNED_DATA = 4  # spec 3: in clear, signed
    ENCRYPTED_DATA = 5  # spec 3: for its target alone


class InfoType(IntEnum):
    """First byte of a NODE_INFO payload; from 0x80 on they are ours (specs/merk.md 7)."""

    REQUEST_SERVERS = 0x02  # to a relay
    RESPONSE_SERVERS = 0x03  # from a relay; believed from proven peers
    ADD_SERVER = 0x04  # from a relay
    QUERY_CLIENT = 0x05  # between relays
    QUERY_RESPONSE = 0x06  # between relays
    HELLO = 0x80  # both ways, ours from here on, spec 7
    AUTH = 0x81  # both ways
    DELIVERY = 0x82  # to the sender, spec 6
    FORWARD = 0x83  # between nodes of ours
    KEY_ADVERT = 0x84  # of a client; between nodes as an answer
    KEY_QUERY = 0x85  # to a relay
    GONE = 0x86  # between nodes of ours
    LIMITS = 0x87  # of a node of ours
    PRESENCE = 0x88  # of a client; between nodes as an answer
    MAIL = 0x89  # between a client and the node that keeps its mail
    DELIVERIES = 0x8A  # between nodes of ours
    FORWARDS = 0x8B  # between nodes of ours


class Role(IntEnum):
    """What a connection's other side is."""

    CLIENT = 0
    NODE = 1


class Feature(IntFlag):
    """What a side of a connection understands; 32 bits."""

    DELIVERY_NOTICES = 1
    KEY_DIRECTORY = 2
    HEADER_SIGNATURES = 4
    MESH = 8
    PRESENCE = 16
    MAILBOX = 32
    DELIVERIES = 64  # and FORWARDS


class DeliveryCode(IntEnum):
    """What became of a frame."""

    DELIVERED = 0
    UNKNOWN_TARGET = 1
    QUEUE_FULL = 2
    LOOKUP_TIMEOUT = 3
    TOO_LARGE = 4
    RATE = 5
    STORED = 6


class PresenceKind(IntEnum):
    """What a client says of a node."""

    CONNECTED = 0  # the client is connected there
    MAILBOX = 1  # that node keeps the client's mail


class MailVerb(IntEnum):
    """Second byte of a MAIL payload."""

    OPEN = 1  # to a node
    CLOSE = 2  # to a node
    STATE = 3  # to the client
    TAKEN = 4  # to a node
    FETCH = 5  # to a node


class MailboxState(IntEnum):
    """Whether a node keeps a client's mail."""

    CLOSED = 0
    OPEN = 1
    REFUSED = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame."""

    kind: int
    """Byte 2; a ``MessageType`` where it is a known one."""
    sender: bytes
    """32 bytes; zero in a challenge."""
    signature: bytes
    """64 bytes; zero where the header is not signed."""
    payload: bytes


@dataclass(frozen=True, slots=True)
class RequestServers:
    """Asks for the servers that the other side knows."""


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server."""

    key: bytes
    """32 bytes."""
    address: str
    """WebSocket URL, 1 to 255 bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers that the sender knows."""

    entries: tuple[ServerEntry, ...]
    """At most 65,535 on the wire; receivers keep a few."""


@dataclass(frozen=True, slots=True)
class AddServer:
    """A server's address, unproved."""

    address: str
    """WebSocket URL, 1 to 255 bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class QueryClient:
    """Asks whether the client with this key is connected here."""

    key: bytes


@dataclass(frozen=True, slots=True)
class ClientFound:
    """QUERY_RESPONSE: the client is connected to ``server``."""

    key: bytes
    server: bytes
    """Key of the server, 32 bytes."""


@dataclass(frozen=True, slots=True)
class ClientAbsent:
    """QUERY_RESPONSE: the client is not here."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Hello:
    """EXT_HELLO: who speaks, and what it understands."""

    features: int
    """u32 of ``Feature`` bits; unknown ones are kept."""
    role: Role
    key: bytes
    nonce: bytes
    """32 fresh bytes."""
    address: str
    """WebSocket URL under which others reach this node, at most 255 bytes of UTF-8; empty for none."""


@dataclass(frozen=True, slots=True)
class Auth:
    """EXT_AUTH: proves the key of one's own HELLO to the other side."""

    signature: bytes


class Delivery(NamedTuple):
    """What became of one frame."""

    code: int
    """A ``DeliveryCode`` where it is a known one."""
    target: bytes
    frame_hash: bytes
    """First 16 bytes of SHA-256 of the whole frame as its sender sent it."""


class Forward(NamedTuple):
    """A client's frame between two nodes; a tuple, as ``Delivery`` is, because every such frame needs one of each."""

    hop: int
    """1: a frame crosses one link."""
    message_id: bytes
    """16 bytes, never used twice by ``origin``."""
    origin: bytes
    """Key of the node whose client sent it."""
    frame: bytes
    """The whole frame, header and all, as its sender sent it."""


class ForwardRun(NamedTuple):
    """Several frames of clients that a node passes on at once, each of which counts as one ``Forward``."""

    hop: int
    """1 always: a frame crosses one link."""
    origin: bytes
    """Key of the node that sends it, 32 bytes."""
    frames: tuple[tuple[bytes, bytes], ...]
    """1 to 240 frames, each behind its id of 16 bytes."""


class Deliveries(NamedTuple):
    """What became of many frames that were forwarded, all of them the same."""

    code: int
    """A ``DeliveryCode`` where it is a known one."""
    message_ids: tuple[bytes, ...]
    """1 to 240 ids of 16 bytes, each that of a ``Forward``, in any order."""


@dataclass(frozen=True, slots=True)
class KeyAdvert:
    """Ties an agreement key to an identity."""

    key: bytes
    agreement_key: bytes
    """X25519, 32 bytes."""
    time_ms: int
    """When it was made, Unix milliseconds; the newest counts."""
    signature: bytes


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Asks for the newest ``KeyAdvert`` of a key."""

    key: bytes


@dataclass(frozen=True, slots=True)
class KeyUnknown:
    """Answer to ``KeyQuery``: none is known."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Gone:
    """The client is not here any more: forget its location."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """What the sender takes."""

    frame_bytes_max: int
    """u32: largest frame of a client, header included."""


@dataclass(frozen=True, slots=True)
class Presence:
    """A client's signed word on where it is, or on which node keeps its mail."""

    kind: PresenceKind
    client: bytes
    """The client's key; it signs."""
    node: bytes
    """The node's key."""
    issued_ms: int
    """u64, Unix milliseconds; the newest counts."""
    until_ms: int
    """u64, Unix milliseconds: from then on it proves nothing."""
    signature: bytes


@dataclass(frozen=True, slots=True)
class MailOpen:
    """Asks a node to keep the client's mail."""

    presence: Presence
    """Of kind MAILBOX, for other nodes."""


@dataclass(frozen=True, slots=True)
class MailClose:
    """Asks a node to keep no more mail."""


@dataclass(frozen=True, slots=True)
class MailState:
    """What a node keeps for the client."""

    state: MailboxState
    messages_count: int
    """u32."""
    kept_bytes: int
    """u32."""
    until_ms: int
    """u64, Unix milliseconds: until when it is kept; 0 where nothing is."""


@dataclass(frozen=True, slots=True)
class MailTaken:
    """Names frames that the client has, and that the node may delete."""

    hashes: tuple[bytes, ...]
    """1 to 64 frame hashes of 16 bytes, as in ``Delivery``."""


@dataclass(frozen=True, slots=True)
class MailFetch:
    """Asks for everything that the node keeps, oldest first."""


Info = (
    RequestServers
    | Servers
    | AddServer
    | QueryClient
    | ClientFound
    | ClientAbsent
    | Hello
    | Auth
    | Delivery
    | Forward
    | ForwardRun
    | KeyAdvert
    | KeyQuery
    | KeyUnknown
    | Gone
    | Limits
    | Presence
    | MailOpen
    | MailClose
    | MailState
    | MailTaken
    | MailFetch
    | Deliveries
)
"""What a NODE_INFO frame says."""
