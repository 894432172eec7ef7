"""Laws of protocols.bsp.unsaved: what gathers between two commits, and what is dropped from it."""

import pytest

from tests.protocols.bsp.device.test_member import membership, vertex
from waystation.core.ids import PublicKey
from waystation.core.records import Record
from waystation.protocols.bsp.device.events import Settled
from waystation.protocols.bsp.device.flags import PeerState, Row, Sharing
from waystation.protocols.bsp.device.ledger import CHUNK_MESSAGES
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.uncommitted import MESSAGE_BYTES, Unsaved

KEY = PublicKey(bytes(32))


def sharing():
    return Sharing(b"g" * 32, PeerState(KEY, 1, drops_oldest=True), Visibility.SHARED, {})


def test_fresh_start_is_empty():
    """Nothing is gathered, and nobody waits."""
    unsaved = Unsaved()

    assert unsaved.is_empty and not unsaved.must


@pytest.mark.parametrize("what", ["vertices", "chunks", "removals", "records", "acks", "rows", "events"])
def test_anything_gathered_is_something(what):
    """Whatever waits for the disk keeps it from being empty."""
    unsaved, one, shared = Unsaved(), vertex(1), sharing()
    {
        "vertices": lambda: unsaved.note_message(membership(), one),
        "chunks": lambda: unsaved.note_flag(shared, 5),
        "removals": lambda: unsaved.removals.update({Record("t", b"k", None): None}),
        "records": lambda: unsaved.records.append(Record("t", b"k", b"v")),
        "acks": lambda: unsaved.acks.append((shared, one)),
        "rows": lambda: unsaved.rows.update({Row(shared, one): None}),
        "events": lambda: unsaved.events.append(Settled(KEY)),
    }[what]()

    assert not unsaved.is_empty


def test_messages_are_waited_for_and_flags_are_not():
    """A flag alone may wait for company."""
    unsaved = Unsaved()
    unsaved.note_flag(sharing(), 5)
    lazy = unsaved.must

    unsaved.note_message(membership(), vertex(1))

    assert (lazy, unsaved.must) == (False, True)


def test_flags_of_one_chunk_are_one_entry():
    """256 messages of one peer share a row of the store."""
    unsaved, one, other = Unsaved(), sharing(), sharing()
    for seq in (0, CHUNK_MESSAGES - 1, CHUNK_MESSAGES):
        unsaved.note_flag(one, seq)
        unsaved.note_flag(other, seq)

    assert list(unsaved.chunks) == [(one, 0), (other, 0), (one, 1), (other, 1)]


def test_bodies_are_counted():
    """Their bytes together, until they are written."""
    unsaved = Unsaved()
    unsaved.note_body(b"a" * 32, bytes(10))
    unsaved.note_body(b"b" * 32, bytes(5))

    assert unsaved.body_bytes == 15 + 2 * MESSAGE_BYTES


def test_group_that_is_left_is_dropped_and_others_stay():
    """Messages, bodies and their freshness, of that group only."""
    unsaved, left, stays = Unsaved(), membership(), membership()
    for member, one in ((left, vertex(1)), (stays, vertex(2))):
        unsaved.note_message(member, one)
        unsaved.note_body(one.message_id, b"body")
        unsaved.fresh.add(one.message_id)

    unsaved.forget(left)

    assert list(unsaved.vertices) == list(unsaved.bodies) == list(unsaved.fresh) == [bytes([2]) * 32]


def test_sharing_that_ends_is_dropped_and_others_stay():
    """Flags and acknowledgements, of that peer and group only."""
    unsaved, ends, stays = Unsaved(), sharing(), sharing()
    for each in (ends, stays):
        unsaved.note_flag(each, 1)
        unsaved.acks.append((each, vertex(1)))

    unsaved.forget_sharing(ends)

    assert [each for each, _ in unsaved.chunks] == [each for each, _ in unsaved.acks] == [stays]
