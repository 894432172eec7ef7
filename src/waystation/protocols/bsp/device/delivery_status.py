"""Computes the delivery status of one message towards one peer; ``why`` adds the reason in words.

``BspDevice`` (``sync``) and ``why`` call it with the group's sharing with that peer, the message's place in the graph,
and the time. The status is computed and not stored, so it cannot be out of date.
"""

from typing import NamedTuple

from waystation.core.instant import Instant
from waystation.protocols.bsp.device.flags import ACK, HOLD, Sharing
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.graph.order import Vertex

__all__ = ["DeliveryStatus", "delivery_status_of"]


class DeliveryStatus(NamedTuple):
    """State of one message towards one peer (seed 4.1)."""

    visibility: Visibility
    """Of the message's group."""
    holds: bool
    owes_ack: bool
    """Whether we owe the peer an acknowledgement."""
    requested: bool
    copies: int
    """How often the message was offered or sent, since the last request."""
    next_in_us: int
    """Until it may go out again, microseconds; 0 when it may now."""
    offered: bool
    """Whether the peer offered it, and we have not answered yet."""
    link: str | None
    """Kind of the link on which we send to the peer, None when no link is up."""


def delivery_status_of(sharing: Sharing, message_id: bytes, vertex: Vertex | None, now: Instant) -> DeliveryStatus:
    """Return the status of a message, which may be unknown, towards the peer of a sharing."""
    peer = sharing.peer
    row = peer.rows.get(message_id)
    # Seed 4.1: hold flag, ack flag, request flag, send count and send time of this message and peer.
    return DeliveryStatus(
        sharing.visibility,
        holds=vertex is not None and sharing.has(vertex.seq, HOLD),
        owes_ack=vertex is not None and sharing.has(vertex.seq, ACK),
        requested=row is not None and row.request,
        copies=row.count if row is not None else 0,
        # The send time means nothing before the first copy: such a message is due at once.
        next_in_us=max(0, row.next_at - now) if row is not None and row.count else 0,
        offered=message_id in peer.offered,
        link=peer.link.terms.kind if peer.link is not None else None,
    )
