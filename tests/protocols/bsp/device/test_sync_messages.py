"""Laws of protocols.bsp.device about messages: adding, sharing, deleting and judging them."""

import pytest

from tests.protocols.bsp.build import ids
from tests.protocols.bsp.build_device import (
    START,
    WALL_US,
    Bench,
    Flags,
    P,
    Q,
    audit,
    kept_rows,
    only,
    told,
)
from waystation.core.errors import LocalError
from waystation.core.records import Record
from waystation.protocols.bsp.device.events import Deleted, Delivered, Settled, Stored
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.graph.order import State
from waystation.protocols.bsp.messages import Offer, Request
from waystation.protocols.bsp.profile import BRIAR, SEED
from waystation.protocols.bsp.refusals import Refusal

# Messages of our own


def test_own_message_is_delivered_and_shared():
    """It has a place, a time, a body, and is told behind the commit."""
    bench = Bench()
    bench.pass_ms(1_500)

    message_id = bench.add(b"body", 77)
    vertex = bench.vertex(message_id)
    assert bench.device.body(bench.group_id, message_id) == b"body"
    bench.commit()

    assert message_id == SEED.message_id(bench.group_id, 77, b"body")
    assert (vertex.state, vertex.order, vertex.shared, vertex.seq) == (State.DELIVERED, 1, True, 0)
    assert vertex.stored_ms == (WALL_US + START) // 1_000 + 1_500
    assert bench.events == [Stored(bench.group_id, message_id, None), Delivered(bench.group_id, message_id, 77, 1)]
    assert bench.device.body(bench.group_id, message_id) == b"body"


def test_own_message_is_not_handed_over_before_it_is_on_disk():
    """Nothing is offered, sent on request or told before the commit."""
    bench = Bench()
    bench.up()
    message_id = bench.add()
    bench.hear(Request((message_id,)))
    assert bench.say() == [] and bench.device.take_events() == []
    bench.begin()
    bench.hear(Request((message_id,)))
    assert bench.say() == []

    bench.finish()

    assert told(bench.say()) == [("Message", b"hello")]


def test_own_message_twice_is_one():
    """The same body and time are the same message."""
    bench = Bench()

    assert bench.add() == bench.added() == bench.add()
    assert not bench.device.must_commit
    assert len(bench.device.messages(bench.group_id)) == 1


@pytest.mark.parametrize(
    ("profile", "body", "timestamp", "why"),
    [
        (SEED, bytes(32_769), 0, "a body has 0 to 32768 bytes, this has 32769"),
        (BRIAR, b"", 0, "a body has 1 to 32768 bytes, this has 0"),
        (SEED, b"", -1, "a timestamp is 0 to"),
        (SEED, b"", 1 << 63, "a timestamp is 0 to"),
    ],
)
def test_own_message_out_of_bounds_is_refused(profile, body, timestamp, why):
    """Nothing changes when an own message is refused."""
    bench = Bench(profile=profile)

    with pytest.raises(LocalError, match=why):
        bench.add(body, timestamp)

    assert not bench.device.must_commit and bench.device.sizes()["messages"] == 0


@pytest.mark.parametrize(
    ("profile", "body", "timestamp"), [(SEED, b"", 0), (BRIAR, b"x", 0), (SEED, bytes(32_768), (1 << 63) - 1)]
)
def test_own_message_at_its_bounds_is_taken(profile, body, timestamp):
    """Both ends of every bound."""
    bench = Bench(profile=profile)

    message_id = bench.added(body, timestamp)

    assert bench.device.body(bench.group_id, message_id) == body


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"?", "the body is not of format deps_v1"),
        (deps_v1_body(ids(65), b""), "at most 64 dependencies, this has 65"),
        (deps_v1_body(ids(1), b""), f"depends on {ids(1)[0].hex()}, which is not delivered"),
    ],
)
def test_own_message_that_its_format_or_graph_refuses(body, why):
    """Own messages name only what is delivered."""
    bench = Bench(format="deps_v1")

    with pytest.raises(LocalError, match=why):
        bench.add(body)

    assert bench.device.messages(bench.group_id) == []


def test_own_message_of_an_unknown_group_is_refused():
    """We write only into groups that we are a member of."""
    bench = Bench()

    with pytest.raises(LocalError, match="no member of the group"):
        bench.add(group_id=bytes(32))


def test_own_message_is_not_judged():
    """The application that writes a message has judged it (bsp 4)."""
    bench = Bench(format="judging")

    mine = bench.added(deps_v1_body((), b"bad"))
    theirs = bench.message(deps_v1_body((), b"also bad"))
    bench.hear(theirs)

    assert bench.vertex(mine).state is State.DELIVERED
    assert bench.vertex(bench.id_of(theirs)).refusal is Refusal.INVALID_IN_CONTEXT


@pytest.mark.parametrize("shares_delivered", [True, False])
def test_withheld_message_is_shared_by_name(shares_delivered):
    """``share=False`` withholds it until ``share_message``, which shares what it depends on first."""
    bench = Bench(format="deps_v1", shares_delivered=shares_delivered)
    bench.up()
    root = bench.added(deps_v1_body((), b""), 1, share=False)
    leaf = bench.added(deps_v1_body((root,), b""), 2, share=False)
    assert bench.say() == []

    bench.device.share_message(bench.group_id, leaf, bench.now)
    bench.device.share_message(bench.group_id, leaf, bench.now)
    bench.commit()

    assert told(bench.say()) == only("Offer", root, leaf)
    audit(bench.device)


def test_chain_is_shared_by_its_leaf():
    """Sharing the leaf of a chain of 300 makes 300 rows at every peer, the oldest first."""
    bench = Bench(format="deps_v1", shares_delivered=False)
    names = []
    for n in range(300):
        names.append(bench.add(deps_v1_body(tuple(names[-1:]), b""), n, share=False))
    bench.commit()

    bench.device.share_message(bench.group_id, names[-1], bench.now)
    bench.up(Q)

    assert (bench.device.owes(P), bench.device.owes(Q)) == (300, 300)
    assert told(bench.say(Q)) == only("Offer", *names)
    audit(bench.device)


@pytest.mark.parametrize("how", ["unknown", "pending", "invalid"])
def test_only_delivered_messages_can_be_shared(how):
    """Who asks otherwise is told."""
    bench = Bench(format="deps_v1")
    message = bench.message(deps_v1_body(ids(1), b"") if how == "pending" else b"?")
    if how != "unknown":
        bench.hear(message)

    with pytest.raises(LocalError, match="there is no message" if how == "unknown" else "is not delivered"):
        bench.device.share_message(bench.group_id, bench.id_of(message), bench.now)


# Deletion


@pytest.mark.parametrize("moment", ["gathered", "under way", "saved"])
def test_deleted_message_keeps_its_place_and_flags(moment):
    """Never sent or offered again; it is still known, still satisfies dependents, and its flags stay."""
    bench = Bench(format="deps_v1")
    message = bench.message(deps_v1_body((), b"x"))
    name = bench.id_of(message)
    bench.hear(message)
    if moment != "gathered":
        bench.begin()
    if moment == "saved":
        bench.finish()
    bench.device.delete(bench.group_id, name)
    bench.device.delete(bench.group_id, name)
    audit(bench.device)
    if moment == "under way":
        bench.finish()
    bench.commit()
    bench.up(Q)
    bench.hear(Request((name,)), peer=Q)
    child = bench.message(deps_v1_body((name,), b"child"))
    bench.hear(child)
    bench.commit()
    assert told(bench.say(Q)) == only("Offer", bench.id_of(child))

    for _ in range(2):
        assert bench.device.body(bench.group_id, name) is None
        assert (bench.vertex(name).state, bench.vertex(name).order) == (State.DELIVERED, 1)
        assert bench.vertex(bench.id_of(child)).state is State.DELIVERED
        assert bench.flags(name) == Flags(hold=True, ack=True)
        assert bench.device.usage(bench.group_id) == (1, len(child.body), 1)
        audit(bench.device)
        bench.restart()
    assert b"x" not in kept_rows(bench.store, "bsp_messages")[bench.group_id + name][-3:]


def test_deletion_settles_a_peer_that_lacked_only_that():
    """What is gone is owed to nobody."""
    bench = Bench(peers=(P,))
    message_id = bench.added()
    bench.events.clear()

    bench.device.delete(bench.group_id, message_id)
    bench.commit()

    assert bench.device.owes(P) == 0
    assert bench.events == [Settled(P), Deleted(bench.group_id, message_id)]


def test_unshared_message_that_is_deleted_is_acknowledged_to_who_offered_it():
    """Deleting an unshared message while offered(q) holds it: acknowledge (bsp 4)."""
    bench = Bench(shares_delivered=False)
    bench.up(Q)
    bench.hear(Offer((bench.id_of(bench.message(b"same")),)), peer=Q)
    message_id = bench.added(b"same", share=False)

    bench.device.delete(bench.group_id, message_id)
    bench.commit()

    assert told(bench.say(Q)) == only("Ack", message_id)
    audit(bench.device)


def test_pending_message_that_was_deleted_is_weighed_once():
    """Deleted while it waited, then invalid because of what it waited for: its body went once."""
    bench = Bench(format="deps_v1")
    broken = bench.message(b"?")
    waiting = bench.message(deps_v1_body((bench.id_of(broken),), b""))
    bench.hear(waiting)
    bench.device.delete(bench.group_id, bench.id_of(waiting))
    bench.commit()

    bench.restart()
    bench.hear(broken)

    assert bench.device.usage(bench.group_id) == (0, 0, 2)
    audit(bench.device)


def test_message_that_is_still_to_be_judged_cannot_be_deleted():
    """Without its body it would become invalid here and nowhere else; formats that judge nothing do not mind."""
    judging, plain = Bench(format="judging"), Bench(format="deps_v1")
    message = plain.message(deps_v1_body(ids(1), b""))
    for bench in (judging, plain):
        bench.hear(message)
    name = plain.id_of(message)

    with pytest.raises(LocalError, match="is not delivered yet: its application validates it with its body"):
        judging.device.delete(judging.group_id, name)
    plain.device.delete(plain.group_id, name)

    assert (judging.vertex(name).body_present, plain.vertex(name).body_present) == (True, False)


def test_unknown_message_cannot_be_deleted():
    """Who asks otherwise is told."""
    bench = Bench()

    with pytest.raises(LocalError, match="there is no message"):
        bench.device.delete(bench.group_id, bytes(32))
    with pytest.raises(LocalError, match="there is no message"):
        bench.device.holds(P, bench.group_id, bytes(32))


def test_body_that_the_store_has_lost_is_never_said():
    """Nothing is sent for it, asked for or not, and nothing else suffers."""
    bench = Bench(mode=Mode.BATCH)
    lost = bench.added(b"lost", 1)
    bench.added(b"kept", 2)
    bench.store.commit([Record("bsp_messages", bench.group_id + lost, None)])
    bench.up()

    first = told(bench.say())
    bench.hear(Request((lost,)))

    assert first == [("Message", b"kept")]
    assert bench.say() == []
    assert (bench.device.owes(P), bench.device.is_due(P, bench.now)) == (1, False)


def test_sharing_that_an_end_left_half_done_is_finished_at_the_start():
    """What a shared message depends on is shared, and handed over (bsp 4, on start)."""
    bench = Bench(format="deps_v1")
    root = bench.added(deps_v1_body((), b""), 1)
    leaf = bench.added(deps_v1_body((root,), b""), 2)
    key = bench.group_id + root
    row = bytearray(bench.store.get("bsp_messages", key))
    row[1] &= ~4  # the bit of a shared message (protocols.bsp.ledger)
    bench.store.commit([Record("bsp_messages", key, bytes(row))])

    bench.restart()
    bench.commit()
    bench.up()

    assert bench.vertex(root).shared
    assert told(bench.say()) == only("Offer", root, leaf)
    bench.restart()
    assert not bench.device.must_commit
