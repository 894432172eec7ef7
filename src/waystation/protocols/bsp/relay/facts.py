"""Converts a BSP device's events into journal facts: one for each message stored, changed, or held by a peer.

The relay calls it with the device's events. A message that is stored and delivered in the same commit gets one fact for
both. Refused messages are counted together, so that a flood of them costs few facts.
"""

from collections.abc import Sequence
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.facts import Fact, MessageChanged, Refused, make_held, make_stored
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.events import (
    Deleted,
    Delivered,
    DeviceEvent,
    Dropped,
    Invalidated,
    PeerHolds,
    Stored,
)
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.order import MessageGraph
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.stream.sessions import PROTOCOL

__all__ = ["DELETED", "DELIVERED", "INVALID", "WAITING", "facts_of"]

DELETED: Final = "deleted"
DELIVERED: Final = "delivered"
INVALID: Final = "invalid"
WAITING: Final = "waiting"


def facts_of(events: Sequence[DeviceEvent], device: BspDevice, now: Instant) -> list[Fact]:
    """Return the facts of a device's events; those of groups that it has left since are left out."""
    facts: list[Fact] = []
    refused: dict[tuple[PublicKey, Refusal], int] = {}
    graphs: dict[bytes, MessageGraph | None] = {}
    stored: Stored | None = None
    for event in (*events, None):
        if stored is not None:
            _add_stored(facts, stored, event, _graph_of(device, stored.group_id, graphs))
            # One fact covers a message that was stored and delivered in the same commit.
            is_covered = type(event) is Delivered and event.message_id == stored.message_id
            stored = None
            if is_covered:
                continue
        if type(event) is Stored:
            stored = event
        elif type(event) is PeerHolds:
            facts.append(_held(event, now))
        elif type(event) is Delivered:
            facts.append(MessageChanged(PROTOCOL, DELIVERED, None, event.group_id, event.message_id, event.order))
        elif type(event) is Invalidated:
            facts.append(MessageChanged(PROTOCOL, INVALID, event.refusal.value, event.group_id, event.message_id, 0))
        elif type(event) is Deleted:
            facts.append(MessageChanged(PROTOCOL, DELETED, None, event.group_id, event.message_id, 0))
        elif type(event) is Dropped:
            key = event.peer, event.refusal
            # A peer that floods us with refused messages costs one fact for each reason.
            refused[key] = refused.get(key, 0) + 1
    facts += [Refused(PROTOCOL, peer, refusal.value, times) for (peer, refusal), times in refused.items()]
    return facts


def _held(event: PeerHolds, now: Instant) -> Fact:
    """Return the fact of a peer that holds a message, with how long ago it was offered, asked for, and sent."""
    group_id, message_id, peer, copies, offered_at, requested_at, sent_at = event
    ago = [now - at if at is not None else None for at in (offered_at, requested_at, sent_at)]
    return make_held((PROTOCOL, peer, group_id, message_id, copies, *ago))


def _add_stored(facts: list[Fact], stored: Stored, following: DeviceEvent | None, graph: MessageGraph | None) -> None:
    """Add the fact of a stored message, with the state that the following event reports."""
    group_id, message_id, source = stored
    vertex = graph.vertices.get(message_id) if graph is not None else None
    # The group was left between the event and now.
    if vertex is None:
        return
    state, order = WAITING, 0
    if isinstance(following, Delivered | Invalidated) and following.message_id == message_id:
        state, order = (DELIVERED, following.order) if isinstance(following, Delivered) else (INVALID, 0)
    about = (group_id, message_id, vertex.dependencies, vertex.timestamp, order)
    facts.append(make_stored((PROTOCOL, source, state, vertex.size_bytes, *about)))


def _graph_of(device: BspDevice, group_id: bytes, graphs: dict[bytes, MessageGraph | None]) -> MessageGraph | None:
    """Return the graph of a group, None when we are no member any more; each is looked for once."""
    if group_id not in graphs:
        try:
            graphs[group_id] = device.graph(group_id)
        except LocalError:
            graphs[group_id] = None
    return graphs[group_id]
