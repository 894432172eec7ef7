"""The events a node records, as cheap tuples.

One event costs the hot path one tuple; encoding happens later on the segment writer's thread. ``ts_us`` is wall-clock
time in microseconds UTC since 1970. References are keyed hashes of identities, never identities: ``conn_ref`` has 8
bytes, all others have 16. ``attempt_ref`` only tells attempts of one protocol apart (NODE-REFS).
"""

from typing import NamedTuple

from waystation.core.facts import Outcome

__all__ = [
    "AnonymousCounted",
    "DeliveryAccepted",
    "DeliveryFinished",
    "Event",
    "LeaseChanged",
    "MeshLinkEnded",
    "MeshLookup",
    "MessageChanged",
    "MessageHeld",
    "MessageStored",
    "NodeSampled",
    "NodeStarted",
    "NodeStopped",
    "PacketJudged",
    "PeerIdentified",
    "PeerLeft",
    "Refused",
    "RelayObserved",
    "SegmentOpened",
    "SegmentSealed",
    "SubscriptionEnded",
    "SubscriptionOpened",
    "WorkJudged",
]


class NodeStarted(NamedTuple):
    """The node began to listen."""

    ts_us: int
    version: str
    """Version of waystation, such as ``0.1.0``."""


class NodeStopped(NamedTuple):
    """The node ended in good order; a killed node leaves none."""

    ts_us: int
    reason: str


class NodeSampled(NamedTuple):
    """What the node was and did in the minute that ends at ``ts_us``; the first one after a start may be shorter."""

    ts_us: int
    connections: int
    """Open when the sample was taken."""
    messages: int
    """Delivery attempts, packets and messages of groups that were judged in the minute."""
    bytes_in: int
    bytes_out: int
    cpu_us: int
    """Processor time that the process spent in the minute."""
    memory_bytes: int
    """Resident memory of the process."""
    store_bytes: int
    """Size of the store and what lies beside it."""
    journal_bytes: int
    """Size of the sealed segments of journal and archive."""


class PeerIdentified(NamedTuple):
    """A connection proved who it is."""

    ts_us: int
    protocol: str
    conn_ref: bytes
    peer_ref: bytes


class PeerLeft(NamedTuple):
    """An identified connection ended, from either side."""

    ts_us: int
    protocol: str
    conn_ref: bytes
    peer_ref: bytes
    reason: str
    bytes_in: int | None = None
    """Bytes received on this connection, or None when nobody counted."""
    bytes_out: int | None = None


class DeliveryAccepted(NamedTuple):
    """A message was handed on towards its recipient. Nothing here tells who sent it."""

    ts_us: int
    protocol: str
    attempt_ref: bytes
    peer_ref: bytes
    """Reference of the recipient."""
    payload_bytes: int


class DeliveryFinished(NamedTuple):
    """An attempt has its outcome. A protocol that knows it within one exchange records no ``DeliveryAccepted``."""

    ts_us: int
    protocol: str
    attempt_ref: bytes
    peer_ref: bytes
    outcome: Outcome
    latency_us: int | None
    """Microseconds since the attempt was accepted, or None for an immediate outcome."""
    carried_bytes: int
    """Payload and answer, less what a ``DeliveryAccepted`` told."""
    tries: int = 1
    """How many requests this outcome answered; without a latency, how many attempts it stands for."""


class PacketJudged(NamedTuple):
    """A packet was accepted, known already, or refused; or ``times`` of them, gathered over a second.

    Accepted packets have an event each. Of gathered ones only what they share is told, and what only one packet has is
    None: ``packet_ref``, ``content_type``, times, ``latency_us``.
    """

    ts_us: int
    protocol: str
    verdict: str
    """``accepted``, ``duplicate``, or the wire code of the refusal."""
    detail: str | None
    """Which rule of that code."""
    author_ref: bytes | None
    """None when too many authors were gathered in one second."""
    relay_ref: bytes | None
    """The relay that delivered it, None for a client."""
    source: str
    """``client`` or ``peer``."""
    size_bytes: int
    """Canonical bytes, of all ``times`` packets together."""
    times: int
    packet_ref: bytes | None = None
    content_type: str | None = None
    """One of the types the specifications know, or ``other``."""
    packet_ts: int | None = None
    """The author's clock, Unix seconds."""
    received_at: int | None = None
    """Unix seconds."""
    expires_at: int | None = None
    """Unix seconds."""
    store_seq: int | None = None
    """Place in the store, None when it was not stored."""
    origin: str | None = None
    """Origin as claimed, None without a provenance header."""
    downgrade: str | None = None
    """Why that claim counts as unknown, None when it holds."""
    latency_us: int | None = None
    """Microseconds from the frame's arrival to the verdict, commit included."""


class SubscriptionOpened(NamedTuple):
    """A subscription began, or ``times`` of a minute among connections that nobody knows. Never what it asks for."""

    ts_us: int
    protocol: str
    conn_ref: bytes | None
    """None for connections that did not identify themselves."""
    replicates: int
    """How many of them were opened by a relay that may replicate."""
    times: int = 1


class SubscriptionEnded(NamedTuple):
    """A subscription is over, or ``times`` of a minute among connections that nobody knows, all summed up."""

    ts_us: int
    protocol: str
    conn_ref: bytes | None
    history_events: int
    live_events: int
    lags: int
    """How often its reader fell behind and was served from the store."""
    duration_us: int
    times: int = 1


class MeshLookup(NamedTuple):
    """A client was looked for among the other nodes of a mesh, or ``times`` were with one result, summed up."""

    ts_us: int
    protocol: str
    peer_ref: bytes | None
    """Reference of the client; None when several were gathered."""
    asked_count: int
    """How many nodes were asked, for all ``times`` look-ups together."""
    found_count: int
    """How many of them said that they have it."""
    latency_us: int | None
    """Microseconds until the first of them said so; None when none did or several were gathered."""
    result: str
    """``found``, ``absent`` or ``timeout``."""
    times: int = 1


class MeshLinkEnded(NamedTuple):
    """A link to another node of a mesh is over; counts are of the whole link."""

    ts_us: int
    protocol: str
    peer_ref: bytes
    """Reference of the other node."""
    relay_id: str
    """The other node as its own segments name it, 16 hexadecimal digits."""
    dialled: int
    """1 when this node opened the link, 0 when the other did."""
    duration_us: int
    frames_out: int
    """Frames of clients handed to the other node."""
    frames_in: int
    bytes_out: int
    bytes_in: int


class RelayObserved(NamedTuple):
    """Another relay was seen to do something, well or badly. Never on whose behalf it was asked."""

    ts_us: int
    protocol: str
    relay_id: str
    """16 hexadecimal digits: how its public key begins, or the SHA-256 of its name when it is known by name only."""
    probe: str
    """What was looked at: a value of ``rules.relay_observation.Probe``."""
    outcome: str
    """``ok``, ``failed`` or ``missing``."""
    reason: str | None
    """What an honest relay could not have done, for the probe ``validity``; else None."""
    latency_us: int | None = None
    """How long the answer took."""
    carried_bytes: int | None = None
    """Size of what was transferred, for the probe ``blob``."""
    duration_us: int | None = None
    """How long a transfer or a span lasted; of a throttling, how long it is to last."""
    times: int = 1


class LeaseChanged(NamedTuple):
    """The lease of a tenant began, went on, or ended."""

    ts_us: int
    protocol: str
    peer_ref: bytes
    """Reference of the tenant."""
    change: str
    """``granted``, ``renewed``, ``expired``, ``revived`` or ``forgotten``."""
    waiting_count: int
    """Packets that wait for the tenant."""


class WorkJudged(NamedTuple):
    """Somebody answered a demand for work, or ``times`` were turned down with one verdict within a second.

    Accepted work has an event each. Work for a relay names no worker: the delivery beside it names the recipient.
    """

    ts_us: int
    protocol: str
    peer_ref: bytes | None
    """Reference of the worker; None for work for a relay, and when too many were turned down in one second."""
    work: str
    """What for: ``relay``, ``lease`` or ``whitelist``."""
    verdict: str
    """``accepted``, ``too_few_bits`` or ``challenge_expired``."""
    bits: int | None = None
    """What was demanded; None for work that was turned down."""
    latency_us: int | None = None
    """Microseconds since the demand; None for work that was turned down."""
    times: int = 1


class MessageStored(NamedTuple):
    """A message of a group is durable for the first time. Groups and messages have keyed references, like peers."""

    ts_us: int
    protocol: str
    peer_ref: bytes | None
    """Reference of the peer that it came from, None for one of the node's own."""
    state: str
    """``delivered``, ``waiting`` or ``invalid``, as it was when it became durable."""
    size_bytes: int
    group_ref: bytes
    message_ref: bytes
    dependency_refs: bytes
    """References of the messages that it depends on, 16 bytes each, one behind the other."""
    created_ms: int
    """The author's clock, Unix milliseconds."""
    order: int
    """Place in the group's order of delivery, from 1; 0 when it was not delivered."""


class MessageChanged(NamedTuple):
    """A message that is stored became something else; of an invalid one also why."""

    ts_us: int
    protocol: str
    state: str
    """``delivered``, ``invalid`` or ``deleted``."""
    reason: str | None
    """Value of the protocol's refusal enum; None for one that is not invalid."""
    group_ref: bytes
    message_ref: bytes
    order: int


class MessageHeld(NamedTuple):
    """A peer has told that it holds a message."""

    ts_us: int
    protocol: str
    peer_ref: bytes
    group_ref: bytes
    message_ref: bytes
    copies: int
    """How often the message was offered or sent to the peer."""
    offered_us: int | None
    """How long before ``ts_us`` it was offered last, None for never; so are the others."""
    requested_us: int | None
    """How long before ``ts_us`` the peer asked for it last."""
    sent_us: int | None
    """How long before ``ts_us`` its body left last."""


class AnonymousCounted(NamedTuple):
    """Connections of one minute that begins at ``ts_us``, counted and never named.

    ``opened`` counts every connection, since nobody has identified itself yet; ``closed`` those that ended without ever
    doing so.
    """

    ts_us: int
    protocol: str
    opened: int
    closed: int


class Refused(NamedTuple):
    """Something was turned down, once or ``times`` times. ``peer_ref`` is None for anonymous peers."""

    ts_us: int
    protocol: str
    peer_ref: bytes | None
    reason: str
    times: int = 1
    source_ref: bytes | None = None
    """Keyed hash of the network, IPv4 /24 or IPv6 /48, that was turned away at the door; else None."""


class SegmentOpened(NamedTuple):
    """First line of every segment."""

    ts_us: int
    format: str
    """Name or version of the line format."""
    node_id: str
    """16 hexadecimal digits."""
    segment: str
    """Name of the segment without folder and suffix."""


class SegmentSealed(NamedTuple):
    """Last line of a segment that its writer finished."""

    ts_us: int
    rows: int
    """Lines in the segment, the first and this one included."""


Event = (
    NodeStarted
    | NodeSampled
    | NodeStopped
    | PeerIdentified
    | PeerLeft
    | DeliveryAccepted
    | DeliveryFinished
    | PacketJudged
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
    | AnonymousCounted
    | Refused
    | SegmentOpened
    | SegmentSealed
)
