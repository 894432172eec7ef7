"""Facts: the events that protocol machines report, each declared once as a class.

Machines append them to their effects. ``engine.node`` takes them out and ``engine.recorder`` turns each into an event
of the journal. A fact exists in memory only and contains raw identities, which the node needs for its counters and
rules. The field markers (``core.fields``) give the journal column of each field. The journal event has a time and keyed
references in place of identities. A fact about a delivery never names the sending connection: Bhumi hides the sender
from the journal too.

To add an event, declare it here, add it to ``Fact``, and emit it in a machine. ``core.node_facts`` has the node's own.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Annotated, Final, NamedTuple, cast

from waystation.core.fields import (
    ATTEMPT,
    BYTES_IN,
    BYTES_OUT,
    CONNECTION,
    DURATION,
    GROUP,
    MESSAGE,
    ORDER,
    PEER,
    RELAY,
    TIMES,
    Attribute,
    Column,
    Privacy,
    Protection,
    keyed,
    operational,
)

__all__ = [
    "DeliveryAccepted",
    "DeliveryFinished",
    "Fact",
    "LeaseChanged",
    "MeshLinkEnded",
    "MeshLookup",
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
    peer: Annotated[int, CONNECTION]
    identity: Annotated[bytes, PEER]
    """32-byte public key."""


class PeerLeft(NamedTuple):
    """An identified connection ended."""

    protocol: str
    peer: Annotated[int, CONNECTION]
    identity: Annotated[bytes | None, PEER]
    """32-byte public key, or None for a connection that never identified itself: it is only counted."""
    reason: str
    bytes_in: Annotated[int | None, BYTES_IN] = None
    """The recorder fills in what the node counted."""
    bytes_out: Annotated[int | None, BYTES_OUT] = None


class DeliveryAccepted(NamedTuple):
    """A message was handed on towards its recipient.

    The outcome may be long in coming. A protocol whose outcome follows within one exchange reports
    ``DeliveryFinished`` alone.
    """

    protocol: str
    attempt: Annotated[int, ATTEMPT]
    """Number of the attempt, unique while the node runs."""
    recipient: Annotated[bytes, PEER]
    """32-byte public key."""
    payload_bytes: Annotated[int, Column("bytes")]


class DeliveryFinished(NamedTuple):
    """A delivery attempt has its outcome."""

    protocol: str
    attempt: Annotated[int, ATTEMPT]
    recipient: Annotated[bytes, PEER]
    outcome: Outcome
    latency_us: int | None
    """Microseconds since the attempt was accepted, or None when its outcome was immediate."""
    carried_bytes: Annotated[int, Column("bytes")]
    """Payload and answer, less what a ``DeliveryAccepted`` reported."""
    tries: Annotated[
        int, operational("tries", "How many requests one outcome answered, or attempts it stands for.")
    ] = 1
    """How many senders' requests this outcome answered; without a latency, how many attempts it stands for."""


CONTENT_TYPE: Final = Attribute(
    "content_type",
    Privacy.OPERATIONAL,
    "Type of a packet's content out of the known ones, or `other`.",
    Protection.CONTENT_TYPE,
)


class PacketJudged(NamedTuple):
    """A packet was accepted, known or refused; the last two gathered by the second.

    A packet without a known author is not reported. From ``packet_id`` on, the fields describe one packet: they are
    None when ``times`` packets were gathered.
    """

    protocol: str
    verdict: Annotated[str, Column("outcome")]
    """``accepted``, ``duplicate``, or the wire code of the refusal."""
    detail: Annotated[str | None, Column("reason")]
    """Which rule of that code."""
    author: Annotated[
        bytes | None,
        keyed("author_ref", "Keyed hash of a packet's author, 32 hexadecimal digits.", Protection.IDENTITY),
    ]
    """DID in UTF-8; None when too many authors were gathered in one second."""
    relay: Annotated[
        bytes | None,
        keyed(
            "relay_ref", "Keyed hash of the relay that delivered a packet, 32 hexadecimal digits.", Protection.IDENTITY
        ),
    ]
    """DID of the relay that delivered it, None for a client."""
    source: Annotated[str, operational("source", "Who delivered a packet: `client` or `peer`.")]
    size_bytes: Annotated[int, Column("bytes")]
    """Canonical bytes, of all ``times`` packets together."""
    times: Annotated[int, TIMES] = 1
    packet_id: Annotated[
        bytes | None,
        keyed("packet_ref", "Keyed hash of a packet's id, 32 hexadecimal digits.", Protection.ONE_OFF),
    ] = None
    """32 bytes."""
    content_type: Annotated[str | None, CONTENT_TYPE] = None
    packet_ts: Annotated[
        int | None, operational("packet_ts", "Time of a packet by its author's clock, Unix seconds.")
    ] = None
    received_at: Annotated[
        int | None, operational("received_at", "Earliest time at which a packet was seen, Unix seconds.")
    ] = None
    expires_at: Annotated[
        int | None, operational("expires_at", "When a packet is served for the last time, Unix seconds.")
    ] = None
    store_seq: Annotated[int | None, operational("store_seq", "Place of a packet in the node's store.")] = None
    """None when it was not stored."""
    origin: Annotated[str | None, operational("origin", "Origin that a packet claims, out of a closed set.")] = None
    """None without a provenance header."""
    downgrade: Annotated[str | None, operational("downgrade", "Why a claimed origin counts as unknown.")] = None
    """None when the claim holds."""
    latency_us: int | None = None
    """From the frame's arrival to the verdict, commit included."""


class PacketStored(NamedTuple):
    """A packet is durable; the archive keeps it as it was signed, the journal has nothing of it."""

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
    """A subscription began; of unidentified connections they are counted by the minute.

    Its filter is never reported.
    """

    protocol: str
    peer: Annotated[int | None, CONNECTION]
    replicates: Annotated[int, operational("replicates", "Subscriptions that were opened by relays.")]
    """1 when it was opened by a relay with the capability to replicate."""
    times: Annotated[int, TIMES] = 1


class SubscriptionEnded(NamedTuple):
    """A subscription is over; of unidentified connections they are summed up by the minute."""

    protocol: str
    peer: Annotated[int | None, CONNECTION]
    history_events: Annotated[int, operational("history_events", "Stored packets that a subscription was sent.")]
    live_events: Annotated[int, operational("live_events", "New packets that a subscription was sent.")]
    lags: Annotated[int, operational("lags", "How often a subscription's reader fell behind.")]
    """How often its reader lagged and was served from the store."""
    duration_us: Annotated[int, DURATION]
    times: Annotated[int, TIMES] = 1


class MeshLookup(NamedTuple):
    """A client was looked for among other nodes; in a flood of look-ups they are summed up."""

    protocol: str
    target: Annotated[bytes | None, PEER]
    """32-byte public key; None when several look-ups are reported as one."""
    asked_count: Annotated[int, operational("asked", "How many nodes were asked for a client.")]
    """All ``times`` together; so is ``found_count``."""
    found_count: Annotated[int, operational("found", "How many nodes answered that they have a client.")]
    latency_us: int | None
    """Microseconds until the first of them answered that it has the client."""
    result: Annotated[str, Column("outcome")]
    """``found``, ``absent`` or ``timeout``."""
    times: Annotated[int, TIMES] = 1


class MeshLinkEnded(NamedTuple):
    """A link to another node is over."""

    protocol: str
    node: Annotated[bytes, PEER]
    """32-byte public key."""
    relay: Annotated[bytes, RELAY]
    """The same key: the other node's own journal has it as this relay."""
    dialled: Annotated[int, operational("dialled", "1 when this node opened a link, 0 when the other did.")]
    duration_us: Annotated[int, DURATION]
    frames_out: Annotated[int, operational("frames_out", "Frames of clients that were handed to another node.")]
    frames_in: Annotated[int, operational("frames_in", "Frames of clients that another node handed over.")]
    bytes_out: Annotated[int, BYTES_OUT]
    bytes_in: Annotated[int, BYTES_IN]


class RelayObserved(NamedTuple):
    """Another relay was seen to do something, well or badly.

    The fact's time is the end of what was seen. It never names the peer on whose behalf the relay was asked.
    """

    protocol: str
    relay: Annotated[bytes | str, RELAY]
    """32-byte public key, or the name of a relay whose key is not known."""
    probe: Annotated[str, operational("probe", "What was looked at of another relay.")]
    """Value of ``rules.relay_observation.Probe``."""
    outcome: str
    """``ok``, ``failed`` or ``missing``."""
    reason: str | None = None
    """Value of ``rules.relay_state.Incident`` for the probe ``validity``."""
    latency_us: int | None = None
    carried_bytes: Annotated[int | None, Column("bytes")] = None
    duration_us: Annotated[int | None, DURATION] = None
    """How long a transfer or a span lasted; of a throttling, how long it is to last."""
    times: Annotated[int, TIMES] = 1


class LeaseChanged(NamedTuple):
    """The lease of a tenant began, went on or ended."""

    protocol: str
    tenant: Annotated[bytes, PEER]
    """32-byte public key."""
    change: Annotated[str, Column("outcome")]
    """``granted``, ``renewed``, ``expired`` (mail is kept), ``revived`` (in time to get it) or ``forgotten``."""
    waiting_count: Annotated[int, operational("waiting", "Packets that wait for a tenant.")]


class WorkJudged(NamedTuple):
    """A peer answered a demand for work; rejected work is gathered by the second."""

    protocol: str
    worker: Annotated[bytes | None, PEER]
    """32-byte public key; the recorder leaves out the worker of work for a relay, and all workers beyond a limit."""
    work: Annotated[str, operational("work", "What work was demanded for: `relay`, `lease` or `whitelist`.")]
    verdict: Annotated[str, Column("outcome")]
    """``accepted``, ``too_few_bits`` or ``challenge_expired``."""
    bits: Annotated[int | None, operational("bits", "Leading zero bits that were demanded as work.")] = None
    """0 to 26; the recorder leaves it out of rejected work."""
    latency_us: int | None = None
    """Since the demand was made; left out likewise."""
    times: Annotated[int, TIMES] = 1


class MessageStored(NamedTuple):
    """A message of a group is on disk, and what it is as it comes there."""

    protocol: str
    source: Annotated[bytes | None, PEER]
    """32-byte public key of the peer that it came from, None for one of the node's own."""
    state: Annotated[str, Column("outcome")]
    """``delivered``, ``waiting`` or ``invalid``; a ``MessageChanged`` follows when that is not its last state."""
    size_bytes: Annotated[int, Column("bytes")]
    """Of the body."""
    group: Annotated[bytes, GROUP]
    """32-byte identifier."""
    message_id: Annotated[bytes, MESSAGE]
    """32 bytes."""
    dependencies: Annotated[
        tuple[bytes, ...],
        keyed(
            "dependency_refs",
            "Keyed hashes of the messages that one depends on, 32 hexadecimal digits each.",
            Protection.IDENTITIES,
        ),
    ]
    """Identifiers of messages, 32 bytes each."""
    created_ms: Annotated[
        int, operational("created_ms", "Time of a message of a group by its author's clock, Unix milliseconds.")
    ]
    order: Annotated[int, ORDER]
    """Place in the group's order of delivery, from 1; 0 when it is not delivered."""


class MessageChanged(NamedTuple):
    """A stored message of a group was delivered, found invalid, or deleted."""

    protocol: str
    state: Annotated[str, Column("outcome")]
    """``delivered``, ``invalid`` or ``deleted``."""
    reason: str | None
    """Value of the protocol's refusal enum for an invalid one, else None."""
    group: Annotated[bytes, GROUP]
    message_id: Annotated[bytes, MESSAGE]
    order: Annotated[int, ORDER]
    """As in ``MessageStored``."""


class MessageHeld(NamedTuple):
    """A peer has reported that it holds a message of a group."""

    protocol: str
    peer: Annotated[bytes, PEER]
    """32-byte public key."""
    group: Annotated[bytes, GROUP]
    message_id: Annotated[bytes, MESSAGE]
    copies: Annotated[int, operational("copies", "How often a message of a group was offered or sent to a peer.")]
    offered_us: Annotated[
        int | None, operational("offered_us", "How long ago a message was last offered to a peer, microseconds.")
    ]
    """None for never; so are the others."""
    requested_us: Annotated[
        int | None, operational("requested_us", "How long ago a peer last asked for a message, microseconds.")
    ]
    sent_us: Annotated[int | None, operational("sent_us", "How long ago a message last left for a peer, microseconds.")]


class Refused(NamedTuple):
    """A peer's request was refused.

    ``identity`` is None for anonymous peers, and never a sender of a delivery.
    """

    protocol: str
    identity: Annotated[bytes | None, PEER]
    reason: str
    """Value of the protocol's refusal enum."""
    times: Annotated[int, TIMES] = 1
    network: Annotated[
        bytes | None,
        keyed(
            "source_ref", "Keyed hash of a network, IPv4 /24 or IPv6 /48, 32 hexadecimal digits.", Protection.ONE_OFF
        ),
    ] = None
    """Network of a connection that admission rejected, else None."""


make_finished: Final = cast(
    "Callable[[tuple[str, int, bytes, Outcome, int | None, int, int]], DeliveryFinished]",
    partial(tuple.__new__, DeliveryFinished),
)
"""Build a ``DeliveryFinished`` from one tuple, as ``effects.make_send`` does: one belongs to every exchange."""

make_stored: Final = cast(
    "Callable[[tuple[str, bytes | None, str, int, bytes, bytes, tuple[bytes, ...], int, int]], MessageStored]",
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
    | MeshLookup
    | MeshLinkEnded
    | RelayObserved
    | LeaseChanged
    | WorkJudged
    | MessageStored
    | MessageChanged
    | MessageHeld
    | Refused
)
"""What a machine reports."""
