"""The messages of Bhumi's extension frames, 0x41 to 0x4F (specs/bhumi.md 5, BHUMI-X).

A relay uses them only on a connection that has negotiated them by OPTIONS. ``Presence`` and ``RelayAd`` are signed by
their owner. Relays forward their bytes unchanged and can neither create nor extend one (spec section 7).
"""

from dataclasses import dataclass, field
from enum import IntEnum

from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.messages import FrameType

__all__ = [
    "Authority",
    "BindChallenge",
    "BindProof",
    "Gossip",
    "IAmOk",
    "Presence",
    "QaReport",
    "QaRequest",
    "QaVerdict",
    "RelayAd",
    "Relays",
    "RelaysRequest",
    "RevokeCommits",
    "SignedRecord",
    "Watch",
    "WatchState",
    "Watched",
    "Where",
    "WhereEntry",
    "WhereResult",
]


class QaVerdict(IntEnum):
    """What a device says of a probe; ours never says anything but REFUSED (BHUMI-QALOCAL)."""

    REFUSED = 0
    OK = 1
    WRONG = 2
    UNREACHABLE = 3
    SLOW = 4


class WatchState(IntEnum):
    """What a relay says of a device that is watched."""

    OFFLINE = 0
    ONLINE = 1
    REFUSED = 2
    """There are too many watches; nothing will be reported of this device."""


@dataclass(frozen=True, slots=True)
class RevokeCommits:
    """Client to relay: take these out of my set; 2 bytes and 32 a commit. Frame 0x41."""

    revoked: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class BindChallenge:
    """Relay to client: prove your identity to this very relay; 64 bytes. Frame 0x42."""

    relay_id: PublicKey
    """32-byte key of the relay."""
    nonce: bytes
    """32 bytes."""


@dataclass(frozen=True, slots=True)
class BindProof:
    """Client to relay: the answer; 64 bytes. Frame 0x42."""

    signature: bytes
    """64 bytes over ``signed_records.binding_bytes``."""


@dataclass(frozen=True, slots=True)
class IAmOk:
    """Relay to client: the I_AM was taken; 4 bytes. Frame 0x43."""

    commits_count: int
    """u16: commits in the set now."""
    responses_count: int
    """u16: carried responses of this I_AM that the relay keeps."""


@dataclass(frozen=True, slots=True)
class Presence:
    """A device's word that it is at a relay, signed; 140 bytes. Frame 0x44, and inside 0x46 and 0x4C."""

    identity: PublicKey
    """32-byte key of the device."""
    relay_id: PublicKey
    """32-byte key of the relay."""
    issued_at_s: int
    """u64 Unix seconds."""
    ttl_s: int
    """u32 seconds; the presence is worth nothing from ``issued_at_s + ttl_s`` on."""
    signature: bytes
    """64 bytes by ``identity`` over ``signed_records.presence_digest``."""

    @property
    def owner(self) -> PublicKey:
        """Whose key signs it."""
        return self.identity


@dataclass(frozen=True, slots=True)
class RelayAd:
    """A relay's word that it can be reached at an address, signed; 110 bytes and the address. Frame 0x47."""

    relay_id: PublicKey
    issued_at_s: int
    ttl_s: int
    address: str
    """``tls://host:port`` or ``tcp://host:port``; 1 to 255 ASCII characters."""
    signature: bytes
    """64 bytes by ``relay_id`` over ``signed_records.advert_digest``."""

    @property
    def owner(self) -> PublicKey:
        """Whose key signs it."""
        return self.relay_id


SignedRecord = Presence | RelayAd


@dataclass(frozen=True, slots=True)
class Where:
    """Client to relay: where is this device? 32 bytes. Frame 0x45."""

    identity: PublicKey


@dataclass(frozen=True, slots=True)
class WhereEntry:
    """One hint."""

    presence: Presence
    address: str
    """Of the relay it names, as far as the answering relay knows; may be empty."""


@dataclass(frozen=True, slots=True)
class WhereResult:
    """Relay to client: the freshest first; 33 bytes and 142 an entry with its address. Frame 0x46."""

    identity: PublicKey
    entries: tuple[WhereEntry, ...] = ()
    """At most 255; our relay gives at most 8."""


@dataclass(frozen=True, slots=True)
class RelaysRequest:
    """Client to relay: which relays do you know? Empty. Frame 0x48."""


@dataclass(frozen=True, slots=True)
class Relays:
    """Relay to client: adverts; 2 bytes, and 2 more each. Frame 0x49."""

    adverts: tuple[RelayAd, ...] = ()


@dataclass(frozen=True, slots=True)
class QaRequest:
    """Relay to client: would you try this relay? 8 bytes and the address. Frame 0x4A."""

    probe_id: int
    """u32."""
    address: str
    deadline_s: int
    """u16 seconds."""


@dataclass(frozen=True, slots=True)
class QaReport:
    """Client to relay: what came of it; 9 bytes. Frame 0x4B."""

    probe_id: int
    verdict: QaVerdict
    latency_us: int = 0
    """u32 microseconds."""


@dataclass(frozen=True, slots=True)
class Gossip:
    """Relay to relay: records of others; 2 bytes, and 3 more each. Frame 0x4C.

    Without records it asks the other side for some of its own (BHUMI-GOSSIP).
    """

    records: tuple[SignedRecord, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Watch:
    """Client to relay: report when this device connects or disconnects; 33 bytes. Frame 0x4D."""

    identity: PublicKey
    begins: bool = True
    """u8: 1 begins, 0 ends the watch."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Relay to client: the present state of a device; 33 bytes. Frame 0x4E."""

    identity: PublicKey
    state: WatchState
    """u8."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Relay to client: my certificate comes, or will come, from this authority; 2 bytes and the DER. Frame 0x4F."""

    der: bytes
    """An X.509 certificate, 1 to 4,096 bytes; the wire does not look into it."""


ExtensionMessage = (
    RevokeCommits
    | BindChallenge
    | BindProof
    | IAmOk
    | Presence
    | Where
    | WhereResult
    | RelayAd
    | RelaysRequest
    | Relays
    | QaRequest
    | QaReport
    | Gossip
    | Watch
    | Watched
    | Authority
)
"""Everything here."""

FRAME_TYPES = {
    RevokeCommits: FrameType.REVOKE_COMMITS,
    BindChallenge: FrameType.BIND,
    BindProof: FrameType.BIND,
    IAmOk: FrameType.I_AM_OK,
    Presence: FrameType.PRESENCE,
    Where: FrameType.WHERE,
    WhereResult: FrameType.WHERE_RESULT,
    RelayAd: FrameType.RELAY_AD,
    RelaysRequest: FrameType.RELAYS_REQUEST,
    Relays: FrameType.RELAYS,
    QaRequest: FrameType.QA_REQUEST,
    QaReport: FrameType.QA_REPORT,
    Gossip: FrameType.GOSSIP,
    Watch: FrameType.WATCH,
    Watched: FrameType.WATCHED,
    Authority: FrameType.AUTHORITY,
}
"""The frame that carries each."""
