"""The events that a BSP device reports to its owner: an application, the node, or a test.

``BspDevice`` adds them, the stream machine's ``take_events`` returns them, and the SDK passes them on as news. An event
about a stored message comes after the commit that stored it.
"""

from typing import NamedTuple

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["Deleted", "Delivered", "DeviceEvent", "Dropped", "Invalidated", "PeerHolds", "Settled", "Stored"]


class Stored(NamedTuple):
    """A message is on disk for the first time; reported before it is delivered."""

    group_id: bytes
    message_id: bytes
    peer: PublicKey | None
    """The peer that sent it, None for a message of our own."""


class Delivered(NamedTuple):
    """All dependencies of a valid message were delivered before it; on disk when reported."""

    group_id: bytes
    message_id: bytes
    timestamp: int
    order: int
    """1, 2, 3... within the group; an application that restarts goes on from it."""


class Invalidated(NamedTuple):
    """A message is invalid for ever, and its body gone."""

    group_id: bytes
    message_id: bytes
    refusal: Refusal


class Deleted(NamedTuple):
    """The body of a message that was not invalid was removed by its owner."""

    group_id: bytes
    message_id: bytes


class Dropped(NamedTuple):
    """A message was refused: its author keeps it, and sends it again."""

    group_id: bytes
    peer: PublicKey
    refusal: Refusal


class PeerHolds(NamedTuple):
    """A peer has acknowledged, offered or sent a message that we share with it."""

    group_id: bytes
    message_id: bytes
    peer: PublicKey
    copies: int
    """How often we offered or sent it."""
    offered_at: Instant | None = None
    """When we offered it last, None for never; so are the others."""
    requested_at: Instant | None = None
    """When the peer asked for it last."""
    sent_at: Instant | None = None
    """When its body left last; also None when the way that it took was lost."""


class Settled(NamedTuple):
    """A peer holds every message that we share with it."""

    peer: PublicKey


DeviceEvent = Stored | Delivered | Invalidated | Deleted | Dropped | PeerHolds | Settled
