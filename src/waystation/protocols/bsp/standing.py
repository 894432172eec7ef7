"""Where one message stands with one peer, for people who ask why."""

from typing import NamedTuple

from waystation.core.instant import Instant
from waystation.protocols.bsp.flags import ACK, HOLD, Sharing
from waystation.protocols.bsp.graph import Vertex
from waystation.protocols.bsp.links import Visibility

__all__ = ["Standing", "standing_of"]


class Standing(NamedTuple):
    """What is known of one message and one peer (seed 4.1)."""

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
    """Kind of the way that the peer is spoken to over, None when none is up."""


def standing_of(sharing: Sharing, message_id: bytes, vertex: Vertex | None, now: Instant) -> Standing:
    """Return where a message, which may be unknown, stands with the peer of a sharing."""
    peer = sharing.peer
    row = peer.rows.get(message_id)
    return Standing(
        sharing.visibility,
        holds=vertex is not None and sharing.has(vertex.seq, HOLD),
        owes_ack=vertex is not None and sharing.has(vertex.seq, ACK),
        requested=row is not None and row.request,
        copies=row.count if row is not None else 0,
        next_in_us=max(0, row.next_at - now) if row is not None and row.count else 0,
        offered=message_id in peer.offered,
        link=peer.link.terms.kind if peer.link is not None else None,
    )
