"""The events a node records, as cheap tuples.

One event costs the hot path one tuple; encoding happens later on the segment writer's thread. ``ts_us`` is wall-clock
time in microseconds UTC since 1970. References are keyed hashes of identities, never identities: ``conn_ref`` has 8
bytes, ``peer_ref`` and ``attempt_ref`` have 16. ``attempt_ref`` only tells attempts apart (NODE-REFS).
"""

from typing import NamedTuple

from waystation.core.facts import Outcome

__all__ = [
    "AnonymousCounted",
    "DeliveryAccepted",
    "DeliveryFinished",
    "Event",
    "NodeStarted",
    "NodeStopped",
    "PeerIdentified",
    "PeerLeft",
    "Refused",
    "SegmentOpened",
    "SegmentSealed",
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
    """How many requests this outcome answered."""


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


class SegmentOpened(NamedTuple):
    """First line of every segment."""

    ts_us: int
    format: int
    """Version of the line format."""
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
    | NodeStopped
    | PeerIdentified
    | PeerLeft
    | DeliveryAccepted
    | DeliveryFinished
    | AnonymousCounted
    | Refused
    | SegmentOpened
    | SegmentSealed
)
