"""Laws of protocols.bsp.books: the disk comes first, a restart loses nothing, and the books agree."""

import copy

import pytest

from tests.protocols.bsp.build import ids
from tests.protocols.bsp.build_device import (
    KEPT,
    Bench,
    Flags,
    P,
    Q,
    audit,
    only,
    state_of,
    told,
)
from waystation.core.instant import after_ms
from waystation.protocols.bsp.device.events import Delivered, Dropped, Stored
from waystation.protocols.bsp.device.ledger import CHUNK_MESSAGES
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.device.repository import LAZY_MS
from waystation.protocols.bsp.device.uncommitted import MESSAGE_BYTES
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.messages import Ack, Message, Offer
from waystation.protocols.bsp.refusals import Refusal

# Acknowledgements wait for the disk


def copies_of(message, message_id):
    """Return the ways in which a peer can show that it holds a message."""
    return {"message": message, "offer": Offer((message_id,))}


@pytest.mark.parametrize("first", ["valid", "invalid", "pending"])
@pytest.mark.parametrize("again", ["message", "offer"])
@pytest.mark.parametrize("moment", ["gathered", "under way", "at once and later"])
@pytest.mark.parametrize("peer", [P, Q])
def test_acknowledgement_leaves_behind_the_commit(first, again, moment, peer):
    """In every order of arrivals and commits: first on disk, then acknowledged, once, to each who showed it."""
    bench = Bench(format="deps_v1")
    body = {"valid": deps_v1_body((), b""), "invalid": b"?", "pending": deps_v1_body(ids(1), b"")}[first]
    message = bench.message(body)
    message_id = bench.id_of(message)
    bench.up(P), bench.up(Q)
    shows = copies_of(message, message_id)[again]

    bench.hear(message)
    if moment != "under way":
        bench.hear(shows, peer=peer)
    assert bench.say(P) == bench.say(Q) == []
    bench.begin()
    if moment != "gathered":
        bench.hear(shows, peer=peer)
    assert bench.say(P) == bench.say(Q) == []
    audit(bench.device)
    bench.finish()
    bench.commit()

    assert told(bench.say(P)) == only("Ack", message_id)
    if peer is Q:
        assert told(bench.say(Q)) == only("Ack", message_id)
    audit(bench.device)


def test_acknowledgement_is_not_lost_between_two_commits():
    """What arrives while a commit is under way waits for the next, and is due behind it."""
    bench = Bench()
    first, second = bench.message(b"1"), bench.message(b"2")
    bench.up()
    bench.hear(first)
    bench.begin()
    bench.hear(second)
    assert bench.device.must_commit

    bench.finish()
    one = told(bench.say())
    bench.begin()
    bench.finish()

    assert one == only("Ack", bench.id_of(first))
    assert bench.device.take_dirty() != []
    assert told(bench.say()) == only("Ack", bench.id_of(second))


def test_offer_of_what_is_under_way_is_no_request():
    """A message that is not on disk yet is known all the same: nothing is asked for."""
    bench = Bench()
    message = bench.message()
    bench.up(Q)
    bench.hear(message)
    bench.begin()

    bench.hear(Offer((bench.id_of(message),)), peer=Q)

    assert bench.say(Q) == []
    assert not bench.offered(bench.id_of(message), Q)
    bench.finish()
    assert told(bench.say(Q)) == only("Ack", bench.id_of(message))


def test_one_commit_at_a_time():
    """``changes`` and ``committed`` take turns."""
    bench = Bench()
    bench.add()
    bench.begin()

    with pytest.raises(AssertionError, match="one commit at a time"):
        bench.device.changes()
    bench.finish()
    with pytest.raises(AssertionError, match="nothing was to be committed"):
        bench.device.committed(bench.now)


def test_bodies_are_read_wherever_they_are():
    """Gathered, under way, just written, or on disk only."""
    bench = Bench()
    name = bench.add(b"body")
    found = [bench.device.body(bench.group_id, name)]
    bench.begin()
    found.append(bench.device.body(bench.group_id, name))
    bench.finish()
    found.append(bench.device.body(bench.group_id, name))
    bench.added(b"another")
    found.append(bench.device.body(bench.group_id, name))
    bench.restart()
    found.append(bench.device.body(bench.group_id, name))

    assert found == [b"body"] * 5


def test_unsaved_bytes_are_those_of_bodies_that_are_not_on_disk():
    """Gathered and under way; none afterwards."""
    bench = Bench()
    bench.hear(bench.message(bytes(100)))
    bench.begin()
    bench.hear(bench.message(bytes(1_000)))
    both = bench.device.unsaved_bytes

    bench.finish()
    one = bench.device.unsaved_bytes
    bench.commit()

    assert (both, one) == (1_100 + 2 * MESSAGE_BYTES, 1_000 + MESSAGE_BYTES)
    assert bench.device.unsaved_bytes == 0


def test_changes_that_nobody_waits_for_are_lazy():
    """What only saves work after a restart is written 2 s later, or with the next commit."""
    bench = Bench()
    message = bench.message()
    bench.up()
    bench.hear(message)
    bench.commit()
    bench.say()
    assert not bench.device.must_commit
    assert bench.device.deadline() == after_ms(bench.now, LAZY_MS)

    bench.pass_ms(LAZY_MS - 1)
    early = bench.device.must_commit
    bench.pass_ms(1)

    assert (early, bench.device.must_commit) == (False, True)
    bench.commit()
    assert bench.device.deadline() is None
    bench.restart()
    assert bench.flags(bench.id_of(message)) == Flags(hold=True)


def test_lazy_changes_ride_with_the_next_commit():
    """Nothing is left to be written for them."""
    bench = Bench()
    bench.up()
    bench.hear(bench.message(b"1"))
    bench.commit()
    bench.say()

    bench.added(b"2")

    assert bench.device.deadline() is None


def test_event_of_what_was_not_taken_comes_at_once():
    """It changes nothing, so nothing waits for the disk; later events keep their order."""
    bench = Bench()
    bench.hear(bench.message(b"1"), Message(bytes(32), 0, b""))

    early = bench.device.take_events()
    bench.commit()

    assert early == [Dropped(bytes(32), P, Refusal.UNSHARED_GROUP)]
    assert [type(event) for event in bench.events] == [Stored, Delivered]


def test_flags_of_many_messages_are_kept_in_chunks():
    """One row for 256 messages and a peer; all of them survive."""
    bench = Bench(peers=(P,))
    names = [bench.add(n.to_bytes(2, "big")) for n in range(2 * CHUNK_MESSAGES + 1)]
    bench.commit()
    bench.hear(Ack(tuple(names[::2])))
    bench.commit()

    bench.restart()

    assert [bench.device.holds(P, bench.group_id, name) for name in names] == [n % 2 == 0 for n in range(len(names))]
    assert len(list(bench.store.scan("bsp_flags"))) == 3
    audit(bench.device)


# Restarts


def story(bench):
    """Live through something of everything, and yield after each step."""
    root = bench.message(deps_v1_body((), b"root"), 5)
    leaf = bench.message(deps_v1_body((bench.id_of(root),), b"leaf"), 4)
    broken = bench.message(b"?", 3)
    child = bench.message(deps_v1_body((bench.id_of(broken),), b"child"), 2)
    bench.up(), bench.up(Q, KEPT)
    yield bench.hear(leaf, child)
    yield bench.hear(broken, peer=Q)
    yield bench.hear(root, leaf)
    mine = bench.add(deps_v1_body((bench.id_of(leaf),), b"mine"), 9) if bench.vertex(bench.id_of(leaf)) else None
    yield mine
    withheld = bench.add(deps_v1_body((), b"withheld"), 9, share=False)
    yield bench.say(), bench.say(Q)
    yield bench.hear(Ack((mine, bench.id_of(root))), peer=Q)
    yield bench.hear(Offer((mine,)))
    yield bench.device.share_message(bench.group_id, withheld, bench.now)
    yield bench.device.delete(bench.group_id, bench.id_of(root))
    yield bench.say(), bench.say(Q)
    yield bench.device.delete(bench.group_id, withheld)
    yield bench.pass_ms(2_000)


@pytest.mark.parametrize("saves_every", [1, 2, 3])
def test_restart_at_every_commit_boundary_finds_the_same(saves_every):
    """Messages, order, bodies, hold flags and owed acknowledgements are as they were when the commit was made."""
    bench = Bench(format="deps_v1", mode=Mode.BATCH)

    for number, _ in enumerate(story(bench)):
        if number % saves_every:
            continue
        bench.commit()
        if bench.device.deadline() is not None:
            bench.begin(), bench.finish()
        again = copy.copy(bench)
        again.restart()
        audit(again.device)

        assert state_of(again) == state_of(bench)


def test_restart_before_the_commit_finds_nothing_of_it():
    """A device that ends before its changes are on disk has told nobody of them, and gets them again."""
    bench = Bench()
    message = bench.message()
    bench.hear(message)
    bench.begin()

    bench.restart()
    bench.up()

    assert bench.vertex(bench.id_of(message)) is None
    assert bench.say() == []
    bench.hear(message)
    bench.commit()
    assert told(bench.say()) == only("Ack", bench.id_of(message))


def test_acknowledgement_that_was_owed_is_owed_after_a_restart():
    """Kill -9 between the commit and the ACK: it is said when the group is shared again (bsp 10, row 24)."""
    bench = Bench()
    message = bench.message()
    bench.hear(message)
    bench.commit()

    bench.restart()
    bench.up()

    assert bench.flags(bench.id_of(message)) == Flags(hold=True, ack=True)
    assert told(bench.say()) == only("Ack", bench.id_of(message))
    bench.hear(message)
    assert told(bench.say()) == only("Ack", bench.id_of(message))
    assert bench.device.take_events() == []


def test_acknowledgement_that_is_owed_again_is_kept():
    """A message that comes again after its ACK makes a commit necessary: a restart would forget what is owed."""
    bench = Bench()
    message = bench.message()
    bench.up()
    bench.hear(message)
    bench.commit()
    bench.say()
    bench.pass_ms(LAZY_MS)
    bench.commit()

    bench.hear(message)

    assert bench.device.must_commit
    bench.commit()
    bench.restart()
    assert bench.flags(bench.id_of(message)).ack


def test_acknowledgement_in_a_file_is_not_lazy():
    """What a file says is on disk before anything else happens to it."""
    bench = Bench()
    bench.hear(bench.message())
    bench.commit()

    bench.device.sent(bench.device.draft(P, KEPT, bench.now), bench.now)

    assert bench.device.must_commit


def test_deleted_body_is_not_kept_in_memory():
    """A body that nobody will read or write does not wait for the commit."""
    bench = Bench()
    message_id = bench.add(bytes(1_000))

    bench.device.delete(bench.group_id, message_id)

    assert bench.device._repository._gathering.bodies == {}


def test_pending_message_is_delivered_after_a_restart():
    """What it waited for may come in another life."""
    bench = Bench(format="deps_v1")
    root = bench.message(deps_v1_body((), b"root"))
    leaf = bench.message(deps_v1_body((bench.id_of(root),), b"leaf"))
    bench.hear(leaf)
    bench.commit()
    bench.restart()

    bench.hear(root)
    bench.commit()

    orders = {type(event): event.message_id for event in bench.events if isinstance(event, Delivered)}
    assert orders == {Delivered: bench.id_of(leaf)}
    assert [vertex.order for vertex in bench.device.messages(bench.group_id)] == [1, 2]


def test_next_message_after_a_restart_has_a_place_of_its_own():
    """Places are never used twice, so flags of one message never speak of another."""
    bench = Bench()
    first = bench.added(b"1")
    bench.hear(Ack((first,)))
    bench.commit()
    bench.restart()

    second = bench.added(b"2")

    assert not bench.device.holds(P, bench.group_id, second)
    assert {bench.vertex(name).seq for name in (first, second)} == {0, 1}
