"""Observations of a Bhumi scenario: one named tuple per kind of event, and the only input of the invariants.

A list of observations is enough to test a checker. Devices and senders emit theirs at the moment when a fact becomes
certain. For example, ``AskArrived`` is emitted when the relay has read the last byte. A ``Tap`` at each relay emits
the observations about frames, in frame order.
"""

from typing import NamedTuple

from waystation.journal.events import Event
from waystation.sim.bhumi.codec import WireRecord

__all__ = [
    "AnswerArrived",
    "AskArrived",
    "Asked",
    "Concluded",
    "Connected",
    "ConnectionEnded",
    "Delivered",
    "Dialled",
    "FrameSent",
    "Handled",
    "Journalled",
    "LifeBegan",
    "LookedUp",
    "Made",
    "NodeSized",
    "Offered",
    "Parted",
    "Participants",
    "QueryAnswered",
    "QueryReceived",
    "RecordReceived",
    "RecordSent",
    "RelayBegan",
    "Tallied",
]


class LifeBegan(NamedTuple):
    """A node started; everything soft is gone."""

    life: int


class Participants(NamedTuple):
    """Every identity and address in the scenario, for the checker of the journal."""

    references: frozenset[bytes]
    """16-byte references, at every relay, of each identity that may log in."""
    secrets: tuple[bytes, ...]
    """Must appear in no event, cut or whole, at least 16 bytes each: identities, and references of senders."""
    hosts: tuple[str, ...]
    """Addresses of senders; must appear in no event either."""


class Journalled(NamedTuple):
    """A node recorded an event."""

    event: Event


# Requests and answers


class Offered(NamedTuple):
    """A device put commits on their way to a relay; one for every I_AM and update."""

    connection: int
    """Number of the device's connection; numbers are never used twice."""
    recipient: bytes
    preimages: tuple[bytes, ...]
    """What the commits stand for."""


class Connected(NamedTuple):
    """A sender dialled a relay."""

    connection: int
    """Number of the sender's connection; numbers are never used twice."""
    node: int


class Asked(NamedTuple):
    """A sender put a request on its way."""

    connection: int
    token: int
    """Number of the request on this connection, ascending."""
    recipient: bytes
    preimage: bytes
    payload: bytes
    """As on the wire."""


class AskArrived(NamedTuple):
    """The relay has read the request of this connection and token."""

    connection: int
    token: int
    taken: bool
    """False when the relay closed the connection at about the same time and may not have looked at it."""


class Delivered(NamedTuple):
    """A device received a request."""

    connection: int
    recipient: bytes
    preimage: bytes | None
    """None when the device never issued what the payload names."""
    payload: bytes


class Handled(NamedTuple):
    """A device's application was asked."""

    identity: bytes
    preimage: bytes


class AnswerArrived(NamedTuple):
    """A relay has read an answer on the connection that got the request."""

    node: int
    recipient: bytes
    preimage: bytes


class Concluded(NamedTuple):
    """A sender got a result."""

    connection: int
    token: int
    status: int
    answer: bytes
    """As the sender reads it, after opening the envelope."""
    expected: bytes
    """What the recipient answers to this preimage."""


class ConnectionEnded(NamedTuple):
    """A sender's connection ended; what it still waited for has no result."""

    connection: int
    reason: str
    """What ended it: self, peer, or the refusal with which the sender's machine closed."""
    faulted: bool
    """Whether its link misbehaved or is slow, or the relay restarted, while it was open."""


# Relays and the records that they pass on


class RelayBegan(NamedTuple):
    """A relay started with empty memory."""

    node: int
    key: bytes
    """Its own key, the same in every life."""
    dials_private: bool
    """Whether its operator lets it dial private addresses that it has learnt."""


class Made(NamedTuple):
    """A presence was signed by its owner."""

    data: bytes
    """All 140 bytes."""
    is_honest: bool
    """Whether its owner keeps to the protocol."""


class RecordReceived(NamedTuple):
    """A relay was given a record."""

    node: int
    peer: int
    """Number of the connection at this relay; never used twice in one life."""
    record: WireRecord
    wall_s: int
    """Unix seconds by this relay's clock."""
    is_gossip: bool
    """Whether it came in a GOSSIP, else in a frame of its own."""
    is_owner: bool
    """Whether this connection has proved to be the owner of the record."""
    is_sure: bool
    """Whether an honest peer gave it, over a connection on which it may: the relay has no reason to drop it."""


class RecordSent(NamedTuple):
    """A relay sent a record."""

    node: int
    peer: int
    record: WireRecord
    wall_s: int
    """Unix seconds by this relay's clock, when this turn of it began."""
    is_news: bool
    """Whether to another relay that has not asked for a sample in this turn, else as an answer."""


class QueryReceived(NamedTuple):
    """A relay received WHERE on a connection that may ask."""

    node: int
    peer: int
    identity: bytes


class QueryAnswered(NamedTuple):
    """A relay sent WHERE_RESULT."""

    node: int
    peer: int
    identity: bytes
    records: tuple[WireRecord, ...]
    """In the order of the answer."""
    wall_s: int


class FrameSent(NamedTuple):
    """A relay sent an extension frame."""

    node: int
    peer: int
    kind: int
    """Type of the frame."""
    features: int | None
    """Feature bits that this connection has agreed on; None when the side that dialled never sent OPTIONS."""
    is_readable: bool
    """Whether the frame is laid out as the specification says."""


class Parted(NamedTuple):
    """A connection of a relay is over."""

    node: int
    peer: int


class Dialled(NamedTuple):
    """A relay wants a connection."""

    node: int
    url: str
    only_public: bool
    is_configured: bool


# Sizes and ends


class LookedUp(NamedTuple):
    """A relay answered where a device is."""

    node: int
    identity: bytes
    is_due: bool
    """Whether the device has been where it is for longer than a round of gossip."""
    is_right: bool
    """Whether the first hint names the relay where it is."""


class NodeSized(NamedTuple):
    """How much of each bounded thing the node around a relay holds."""

    node: int
    sizes: dict[str, int]
    relay_connections: int
    """Connections of the relay at the same instant."""
    settled: bool


class Tallied(NamedTuple):
    """At the end: how many look-ups were due, and right."""

    due: int
    right: int
    is_faultless: bool
    """Whether the plan has no faults and no adversaries."""
