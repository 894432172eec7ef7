"""Facts: what machines tell the node about what happened.

Facts live in memory only and hold raw identities, so that the node can count and decide. The engine's recorder is the
only reader that writes anything down, and it is where identities become keyed references. A fact about a delivery never
names the connection that sent it: Bhumi's sender must stay unknown even to our own journal.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, cast

__all__ = [
    "DeliveryAccepted",
    "DeliveryFinished",
    "Fact",
    "LeaseChanged",
    "LinkEnded",
    "LookupFinished",
    "MessageChanged",
    "MessageHeld",
    "MessageStored",
    "Outcome",
    "PacketJudged",
    "PacketStored",
    "PeerIdentified",
    "PeerLeft",
    "Refused",
    "RelayObserved",
    "SubscriptionEnded",
    "SubscriptionOpened",
    "WorkJudged",
    "make_finished",
    "make_held",
    "make_stored",
]


class Outcome(Enum):
    """How one delivery attempt ended, for every protocol."""

    OK = "ok"
    CACHED = "cached"
    OFFLINE = "offline"
    BAD_CAPABILITY = "bad_capability"
    TIMEOUT = "timeout"
    GONE = "gone"
    REFUSED = "refused"


class PeerIdentified(NamedTuple):
    """A connection proved who it is."""

    protocol: str
    peer: int
    identity: bytes
    """32-byte public key."""


class PeerLeft(NamedTuple):
    """A connection ended, from either side."""

    protocol: str
    peer: int
    identity: bytes | None
    """32-byte public key, or None for a connection that never identified itself."""
    reason: str


class DeliveryAccepted(NamedTuple):
    """A message was taken for a recipient, and its outcome may be long in coming.

    Protocols whose outcome follows within one exchange do not tell this: ``DeliveryFinished`` has it all.
    """

    protocol: str
    attempt: int
    """Number of the attempt, unique while the node runs."""
    recipient: bytes
    """32-byte public key."""
    payload_bytes: int


class DeliveryFinished(NamedTuple):
    """An attempt has its outcome."""

    protocol: str
    attempt: int
    recipient: bytes
    outcome: Outcome
    latency_us: int | None
    """Microseconds since the attempt was accepted, or None when its outcome was immediate."""
    carried_bytes: int
    """Payload and answer, less what a ``DeliveryAccepted`` told."""
    tries: int
    """How many senders' requests this outcome answered; without a latency, how many attempts it stands for."""


class PacketJudged(NamedTuple):
    """A packet whose author is known was accepted, found to be a duplicate, or refused."""

    protocol: str
    author: bytes
    """DID in UTF-8."""
    packet_id: bytes
    """32 bytes."""
    content_type: str
    size_bytes: int
    """Canonical bytes."""
    timestamp: int
    """The author's clock, Unix seconds."""
    received_at: int
    """Unix seconds."""
    seq: int | None
    """Place in the store, None when it was not stored."""
    verdict: str
    """``accepted``, ``duplicate``, or the wire code of the refusal."""
    detail: str
    downgrade_reason: str
    """Why a claim of origin counts as UNKNOWN, empty when it holds."""
    claimed_origin: str
    """``origin_type`` as claimed, empty without a header."""
    relay: bytes
    """DID of the relay that delivered it, empty for a client."""
    latency_us: int
    """From the frame's arrival to the verdict, commit included."""
    expires_at: int | None


class PacketStored(NamedTuple):
    """A packet is durable; the archive keeps it as it was signed."""

    protocol: str
    packet_id: bytes
    received_at: int
    author_id: str
    content_type: str
    timestamp: int
    expires_at: int | None
    signer: bytes
    """32-byte public key that verified it."""
    canonical: bytes


class SubscriptionOpened(NamedTuple):
    """A subscription began; what it asks for is nobody's business."""

    protocol: str
    peer: int
    replicates: bool
    """Opened by a relay with the capability to replicate."""


class SubscriptionEnded(NamedTuple):
    """A subscription is over."""

    protocol: str
    peer: int
    history_events: int
    live_events: int
    lags: int
    """How often its reader fell behind and was served from the store."""
    duration_us: int


class LookupFinished(NamedTuple):
    """A search for a client among the other nodes of a mesh is over, or ``times`` of them."""

    protocol: str
    target: bytes | None
    """32-byte public key; None where many searches are told as one."""
    asked_count: int
    """How many nodes were asked, all ``times`` together."""
    found_count: int
    """How many said that they have it."""
    first_found_us: int | None
    """Microseconds until the first of them said so."""
    result: str
    """``found``, ``absent`` or ``timeout``."""
    times: int = 1


class LinkEnded(NamedTuple):
    """A link to another node of a mesh is over."""

    protocol: str
    node: bytes
    """32-byte public key."""
    dialled: bool
    """Whether we opened it."""
    up_us: int
    frames_out: int
    """Frames of clients, forwarded to it."""
    frames_in: int
    bytes_out: int
    bytes_in: int


class RelayObserved(NamedTuple):
    """Another relay was seen to do something, well or badly; it is now the end of what was seen."""

    protocol: str
    relay: bytes | str
    """32-byte public key, or the name of a relay whose key is not known."""
    probe: str
    """Value of ``rules.relay_observation.Probe``."""
    outcome: str
    """``ok``, ``failed`` or ``missing``."""
    reason: str | None = None
    """Value of ``rules.relay_state.Incident`` for the probe ``validity``."""
    latency_us: int | None = None
    carried_bytes: int | None = None
    duration_us: int | None = None
    """How long a transfer or a span lasted; of a throttling, how long it is to last."""
    times: int = 1


class LeaseChanged(NamedTuple):
    """The lease of a tenant began, went on, or ended."""

    protocol: str
    tenant: bytes
    """32-byte public key."""
    change: str
    """``granted``, ``renewed``, ``expired`` (mail is kept), ``revived`` (in time to get it) or ``forgotten``."""
    waiting_count: int
    """Packets in the tenant's queue."""


class WorkJudged(NamedTuple):
    """Somebody answered a demand for work."""

    protocol: str
    kind: str
    """``relay``, ``lease`` or ``whitelist``."""
    worker: bytes
    """32-byte public key."""
    bits: int
    """What was demanded, 0 to 26."""
    verdict: str
    """``accepted``, ``too_few_bits`` or ``challenge_expired``."""
    waited_us: int
    """Since the demand was made."""


class MessageStored(NamedTuple):
    """A message of a group is durable for the first time."""

    protocol: str
    group: bytes
    """32-byte identifier."""
    message_id: bytes
    """32 bytes."""
    source: bytes | None
    """32-byte public key of the peer that it came from, None for one of our own."""
    state: str
    """``delivered``, ``waiting`` or ``invalid``; a ``MessageChanged`` follows when that is not its last state."""
    dependencies: tuple[bytes, ...]
    """Identifiers of messages, 32 bytes each."""
    created_ms: int
    """The author's clock, Unix milliseconds."""
    size_bytes: int
    """Of the body."""
    order: int
    """Place in the group's order of delivery, from 1; 0 when it is not delivered."""


class MessageChanged(NamedTuple):
    """A message that is stored became something else, or why it is invalid."""

    protocol: str
    group: bytes
    message_id: bytes
    state: str
    """``delivered``, ``invalid`` or ``deleted``."""
    reason: str
    """Value of the protocol's refusal enum for an invalid one, else empty."""
    order: int
    """As in ``MessageStored``."""


class MessageHeld(NamedTuple):
    """A peer has told us that it holds a message of ours."""

    protocol: str
    group: bytes
    message_id: bytes
    peer: bytes
    """32-byte public key."""
    copies: int
    """How often it was offered or sent to the peer."""
    offered_us: int | None
    """How long ago it was offered last, None for never; so are the others."""
    requested_us: int | None
    """How long ago the peer asked for it last."""
    sent_us: int | None
    """How long ago its body left last."""


class Refused(NamedTuple):
    """Something was turned down. ``identity`` is None for anonymous peers, and never a sender of a delivery."""

    protocol: str
    identity: bytes | None
    reason: str
    """Value of the protocol's refusal enum."""
    times: int = 1


make_finished: Final = cast(
    "Callable[[tuple[str, int, bytes, Outcome, int | None, int, int]], DeliveryFinished]",
    partial(tuple.__new__, DeliveryFinished),
)
"""Build a ``DeliveryFinished`` from one tuple, as ``effects.make_send`` does: one belongs to every exchange."""

make_stored: Final = cast(
    "Callable[[tuple[str, bytes, bytes, bytes | None, str, tuple[bytes, ...], int, int, int]], MessageStored]",
    partial(tuple.__new__, MessageStored),
)
"""As ``make_finished``: one belongs to every message of a group."""

make_held: Final = cast("Callable[[tuple[object, ...]], MessageHeld]", partial(tuple.__new__, MessageHeld))
"""As ``make_finished``: one belongs to every message of a group and every peer."""

Fact = (
    PeerIdentified
    | PeerLeft
    | DeliveryAccepted
    | DeliveryFinished
    | PacketJudged
    | PacketStored
    | SubscriptionOpened
    | SubscriptionEnded
    | LookupFinished
    | LinkEnded
    | RelayObserved
    | LeaseChanged
    | WorkJudged
    | MessageStored
    | MessageChanged
    | MessageHeld
    | Refused
)
