"""Laws of how a group's standing is counted."""

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.links import stream_terms
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.order import State
from waystation.protocols.bsp.home.status import GroupMessage, PeerStatus, group_message, group_status, peer_status
from waystation.protocols.bsp.profile import SEED
from waystation.sdk.bsp.home import HomePeer
from waystation.store.memory import MemoryStore


def test_group_is_counted_by_state_and_weight():
    """Delivered and deleted messages are told apart, and bodies are weighed."""
    device, at = BspDevice(SEED, MemoryStore()), Instant(0)
    group = SEED.group(bytes(32), b"", "opaque")
    device.join(group, at)
    kept = [device.add(group.group_id, number, b"x" * 10, at) for number in range(3)]
    device.delete(group.group_id, kept[0])
    status = group_status(device, "talk", group)

    assert (status.delivered_count, status.pending_count, status.invalid_count) == (3, 0, 0)
    assert (status.bodies_count, status.bodies_bytes, status.audience) == (2, 20, {})


def test_peer_is_told_with_the_way_it_is_spoken_to_and_what_it_lacks():
    """The kind is that of the way that is spoken over; owed is what is shared and not known to be held."""
    device, at = BspDevice(SEED, MemoryStore()), Instant(0)
    group, peer = SEED.group(bytes(32), b"", "opaque"), PublicKey(bytes([7]) * 32)
    device.join(group, at)
    device.meet(peer)
    device.share(group.group_id, peer, at)
    device.add(group.group_id, 1, b"x", at)
    apart = peer_status(device, HomePeer("bob", peer, ""))
    device.link_up(peer, stream_terms("tls"), at)
    together = peer_status(device, HomePeer("bob", peer, ""))

    assert apart == PeerStatus("bob", peer, "", None, 1)
    assert together == PeerStatus("bob", peer, "", "tls", 1)


def test_message_is_told_with_its_body_and_without():
    """A deleted message keeps its place, time and size, and has no body."""
    device, at = BspDevice(SEED, MemoryStore()), Instant(0)
    group = SEED.group(bytes(32), b"", "opaque")
    device.join(group, at)
    message_id = device.add(group.group_id, 7, b"x" * 10, at)
    vertex = device.vertex(group.group_id, message_id)
    before = group_message(device, group.group_id, vertex)
    device.delete(group.group_id, message_id)
    after = group_message(device, group.group_id, vertex)

    rest = (10, (), True, None)
    assert before == GroupMessage(group.group_id, message_id, 7, 1, State.DELIVERED, b"x" * 10, *rest)
    assert after == before._replace(body=None)
