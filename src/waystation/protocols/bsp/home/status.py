"""The status objects of a BSP device for programs: messages, groups, peers, and the device as a whole.

``BspPeer`` and the chat return them, ``waystation bsp`` prints them. They are copies: a later change of the device does
not show in them.
"""

from typing import NamedTuple

from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.order import State, Vertex
from waystation.protocols.bsp.home.alignment import GroupLeftOut
from waystation.protocols.bsp.home.tables import HomePeer
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["GroupMessage", "GroupStatus", "PeerStatus", "Status", "group_message", "group_status", "peer_status"]


class GroupMessage(NamedTuple):
    """One message with its status on this device."""

    group_id: bytes
    message_id: bytes
    """32 bytes."""
    timestamp: int
    """Its author's clock, Unix milliseconds."""
    order: int
    """1, 2, 3... as delivered here; 0 before that."""
    state: State
    body: bytes | None
    """None when it was deleted, or the message is invalid."""
    size_bytes: int
    """Of the body, also when it is gone."""
    dependencies: tuple[bytes, ...]
    shared: bool
    refusal: Refusal | None
    """Why it is invalid, else None."""


class GroupStatus(NamedTuple):
    """One group with its status on this device."""

    name: str
    group: Group
    delivered_count: int
    pending_count: int
    invalid_count: int
    bodies_count: int
    bodies_bytes: int
    audience: dict[PublicKey, Visibility]
    """With whom it is shared, and how far."""


class PeerStatus(NamedTuple):
    """One peer with its status on this device."""

    name: str
    key: PublicKey
    url: str
    link: str | None
    """Kind of the way that is spoken over: tls, wss, plain, merk, bhumi, lprp; None when none is up."""
    owed_count: int
    """Messages that we share with it and that it is not known to hold."""


class Status(NamedTuple):
    """The status of a device."""

    key: PublicKey
    urls: tuple[str, ...]
    """Where it listens."""
    groups: tuple[GroupStatus, ...]
    peers: tuple[PeerStatus, ...]
    refused_bundles_count: int
    """Bundles that came by carriers and were not for us, or not what they should be."""
    sizes: dict[str, int]
    """How much there is of each bounded thing."""
    left_out: tuple[GroupLeftOut, ...] = ()
    """Groups of the home that this program cannot read."""


def group_message(device: BspDevice, group_id: bytes, vertex: Vertex) -> GroupMessage:
    """Return a message of a device with its status and its body."""
    return GroupMessage(
        group_id,
        vertex.message_id,
        vertex.timestamp,
        vertex.order,
        vertex.state,
        device.body(group_id, vertex.message_id),
        vertex.size_bytes,
        vertex.dependencies,
        vertex.shared,
        vertex.refusal,
    )


def group_status(device: BspDevice, name: str, group: Group) -> GroupStatus:
    """Return a group of a device with its status; Cost: O(messages)."""
    states = [vertex.state for vertex in device.graph(group.group_id).vertices.values()]
    usage = device.usage(group.group_id)
    return GroupStatus(
        name,
        group,
        states.count(State.DELIVERED),
        states.count(State.PENDING),
        states.count(State.INVALID),
        usage.live_count,
        usage.live_bytes,
        dict(device.audience(group.group_id)),
    )


def peer_status(device: BspDevice, entry: HomePeer) -> PeerStatus:
    """Return a known peer of a device with its status."""
    link = device.link_of(entry.key)
    terms = device.link_terms(link) if link is not None else None
    return PeerStatus(*entry, terms.kind if terms is not None else None, device.owes(entry.key))
