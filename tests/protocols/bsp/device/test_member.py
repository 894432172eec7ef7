"""Laws of protocols.bsp.member: places, weights and order of the messages of one group."""

from tests.protocols.bsp.build import GROUP
from waystation.protocols.bsp.device.member import Membership, Usage
from waystation.protocols.bsp.graph.formats import Opaque
from waystation.protocols.bsp.graph.order import MessageGraph, Vertex
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal


def membership():
    """Return a group whose messages are all valid."""
    graph = MessageGraph(GROUP.group_id, lambda _: True)
    return Membership(GROUP, graph, Opaque(), SEED.hasher(GROUP.group_id))


def vertex(name, timestamp=1, size_bytes=10, dependencies=()):
    return Vertex(bytes([name]) * 32, timestamp, size_bytes, tuple(bytes([each]) * 32 for each in dependencies))


def test_places_are_counted_from_zero():
    """Each vertex gets the next; flags are kept by it."""
    member = membership()
    vertices = [vertex(n) for n in range(3)]

    for each in vertices:
        member.number(each)

    assert [each.seq for each in vertices] == [0, 1, 2]


def test_usage_counts_bodies_and_what_is_left_of_others():
    """Bodies that are here by count and bytes; all else is a tombstone."""
    member = membership()
    for n in range(3):
        member.graph.place(vertex(n, size_bytes=n))
        member.weigh(member.graph.vertices[bytes([n]) * 32], 1)

    member.weigh(member.graph.vertices[bytes([2]) * 32], -1)

    assert member.usage() == Usage(live_count=2, live_bytes=1, tombstones=1)


def test_messages_are_ordered_by_delivery_then_by_age():
    """Delivered ones by their numbers, whatever their times; the others by time and identifier."""
    member = membership()
    for each in (vertex(9, 50), vertex(1, 40), vertex(8, 7, dependencies=[77]), vertex(7, 7, dependencies=[77])):
        member.graph.place(each)
    member.graph.place_invalid(vertex(6, 3), Refusal.UNPARSABLE)

    assert [each.message_id[0] for each in member.ordered()] == [9, 1, 6, 7, 8]


def test_hasher_makes_the_identifiers_of_the_group():
    """As the profile does."""
    assert membership().hasher(5, b"body") == SEED.message_id(GROUP.group_id, 5, b"body")
