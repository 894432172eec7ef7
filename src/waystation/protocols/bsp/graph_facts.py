"""What a node tells its recorder of messages of groups: one fact for each that is stored, changed, or held by a peer.

Most messages are stored and delivered in the same commit, and their events stand side by side, so that one fact tells
both. Refused messages are counted together, so that a flood of them costs a few facts.
"""

from collections.abc import Sequence
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.facts import Fact, MessageChanged, Refused, make_held, make_stored
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.events import Deleted, Delivered, DeviceEvent, Dropped, Invalidated, PeerHolds, Stored
from waystation.protocols.bsp.graph import MessageGraph
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.sessions import PROTOCOL

__all__ = ["DELETED", "DELIVERED", "INVALID", "WAITING", "facts_of"]

DELETED: Final = "deleted"
DELIVERED: Final = "delivered"
INVALID: Final = "invalid"
WAITING: Final = "waiting"


def facts_of(events: Sequence[DeviceEvent], device: BspDevice, now: Instant) -> list[Fact]:
    """Return the facts that a device's events amount to; those of groups that it has left since are left out."""
    told: list[Fact] = []
    refused: dict[tuple[PublicKey, Refusal], int] = {}
    graphs: dict[bytes, MessageGraph | None] = {}
    stored: Stored | None = None
    for event in (*events, None):
        if stored is not None:
            _tell_stored(told, stored, event, _graph_of(device, stored.group_id, graphs))
            is_told = type(event) is Delivered and event.message_id == stored.message_id
            stored = None
            if is_told:
                continue
        if type(event) is Stored:
            stored = event
        elif type(event) is PeerHolds:
            told.append(_held(event, now))
        elif type(event) is Delivered:
            told.append(MessageChanged(PROTOCOL, event.group_id, event.message_id, DELIVERED, "", event.order))
        elif type(event) is Invalidated:
            told.append(MessageChanged(PROTOCOL, event.group_id, event.message_id, INVALID, event.refusal.value, 0))
        elif type(event) is Deleted:
            told.append(MessageChanged(PROTOCOL, event.group_id, event.message_id, DELETED, "", 0))
        elif type(event) is Dropped:
            key = event.peer, event.refusal
            refused[key] = refused.get(key, 0) + 1
    told += [Refused(PROTOCOL, peer, refusal.value, times) for (peer, refusal), times in refused.items()]
    return told


def _held(event: PeerHolds, now: Instant) -> Fact:
    """Return the fact of a peer that holds a message, with how long ago it was offered, asked for, and sent."""
    *named, offered_at, requested_at, sent_at = event
    ago = [now - at if at is not None else None for at in (offered_at, requested_at, sent_at)]
    return make_held((PROTOCOL, *named, *ago))


def _tell_stored(told: list[Fact], stored: Stored, behind: DeviceEvent | None, graph: MessageGraph | None) -> None:
    """Tell that a message is stored, with what the event behind says of it."""
    group_id, message_id, source = stored
    vertex = graph.vertices.get(message_id) if graph is not None else None
    if vertex is None:
        return
    state, order = WAITING, 0
    if isinstance(behind, Delivered | Invalidated) and behind.message_id == message_id:
        state, order = (DELIVERED, behind.order) if isinstance(behind, Delivered) else (INVALID, 0)
    about = (state, vertex.dependencies, vertex.timestamp, vertex.size_bytes, order)
    told.append(make_stored((PROTOCOL, group_id, message_id, source, *about)))


def _graph_of(device: BspDevice, group_id: bytes, graphs: dict[bytes, MessageGraph | None]) -> MessageGraph | None:
    """Return the graph of a group, None when we are no member any more; each is looked for once."""
    if group_id not in graphs:
        try:
            graphs[group_id] = device.graph(group_id)
        except LocalError:
            graphs[group_id] = None
    return graphs[group_id]
