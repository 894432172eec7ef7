"""Laws of protocols.bsp.hearing: the table of bsp 2, line by line, and what a peer may not learn."""

import pytest

from tests.protocols.bsp.build import ids
from tests.protocols.bsp.build_device import Bench, Flags, P, Q, R, audit, only, told
from waystation.protocols.bsp.device.events import Delivered, Dropped, Invalidated, Stored
from waystation.protocols.bsp.graph import order as graph
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.graph.order import State
from waystation.protocols.bsp.messages import Ack, Offer, Priority, Request, Versions
from waystation.protocols.bsp.profile import BRIAR
from waystation.protocols.bsp.refusals import Refusal


def offer(bench, message_id, peer=P):
    bench.up(peer)
    assert told(bench.say(peer)) == only("Offer", message_id)


# MESSAGE


def test_new_message_is_held_and_owed_an_acknowledgement():
    """MESSAGE from p, new: row(p) has hold = ack = 1."""
    bench = Bench()
    message = bench.message()

    bench.hear(message)

    assert bench.flags(bench.id_of(message)) == Flags(hold=True, ack=True)
    audit(bench.device)


def test_new_message_gets_a_row_at_every_other_peer():
    """MESSAGE from p, new: others get a row when it is shared, all zero."""
    bench = Bench()
    message = bench.message()

    bench.hear(message)

    assert bench.flags(bench.id_of(message), Q) == Flags()
    assert (bench.device.owes(P), bench.device.owes(Q)) == (0, 1)


def test_new_message_counts_as_held_by_everybody_who_offered_it():
    """MESSAGE from p, new: hold = ack = 1 for every q with the id in offered(q), and it leaves that list."""
    bench = Bench()
    message = bench.message()
    bench.hear(Offer((bench.id_of(message),)), peer=Q)

    bench.hear(message)

    assert bench.flags(bench.id_of(message), Q) == Flags(hold=True, ack=True)
    assert not bench.offered(bench.id_of(message), Q)
    audit(bench.device)


@pytest.mark.parametrize("body", [b"?", deps_v1_body(ids(1), b"")])
def test_message_that_is_not_delivered_is_held_by_who_offered_it(body):
    """Invalid and pending messages are never shared; who offered them is acknowledged all the same."""
    bench = Bench(format="deps_v1")
    message = bench.message(body)
    bench.up(Q)
    bench.hear(Offer((bench.id_of(message),)), peer=Q)

    bench.hear(message)
    bench.commit()

    assert bench.flags(bench.id_of(message), Q) == Flags(hold=True, ack=True)
    assert told(bench.say(Q)) == only("Ack", bench.id_of(message))


def test_new_message_is_not_held_by_who_offered_it_without_sharing_its_group():
    """An OFFER of somebody who does not share the group says nothing about it."""
    bench = Bench()
    message = bench.message(group_id=bench.other_id)
    bench.hear(Offer((bench.id_of(message),)), peer=Q)

    bench.hear(message)
    bench.commit()
    bench.up(Q)

    assert told(bench.say(Q)) == only("Request", bench.id_of(message))


def test_new_message_leaves_the_senders_own_offers():
    """What came needs no request."""
    bench = Bench()
    message = bench.message()
    bench.up()
    bench.hear(Offer((bench.id_of(message),)), message)
    bench.commit()

    assert told(bench.say()) == only("Ack", bench.id_of(message))


def known(bench, how):
    """Return a message that the bench knows in one of the ways that count."""
    body = {"pending": deps_v1_body(ids(1), b""), "invalid": b"?"}.get(how, deps_v1_body((), b"x"))
    message = bench.message(body)
    bench.hear(message, peer=Q)
    bench.commit()
    if how == "deleted":
        bench.device.delete(bench.group_id, bench.id_of(message))
    return message


@pytest.mark.parametrize("how", ["delivered", "pending", "invalid", "deleted"])
@pytest.mark.parametrize("by", ["message", "offer"])
def test_known_message_sets_hold_and_ack(how, by):
    """MESSAGE or OFFER from p, known (also pending, invalid, deleted): hold = ack = 1, request = 0."""
    bench = Bench(format="deps_v1")
    message = known(bench, how)

    bench.hear(message if by == "message" else Offer((bench.id_of(message),)))
    bench.commit()
    bench.up()

    assert bench.flags(bench.id_of(message)) == Flags(hold=True, ack=True)
    assert told(bench.say()) == only("Ack", bench.id_of(message))
    assert bench.flags(bench.id_of(message)) == Flags(hold=True)
    audit(bench.device)


@pytest.mark.parametrize("by", ["message", "offer", "ack"])
def test_request_is_over_once_the_peer_shows_that_it_holds(by):
    """MESSAGE, OFFER or ACK from p: request = 0, and nothing goes out for it."""
    bench = Bench()
    message = bench.message()
    message_id = bench.added(message.body)
    offer(bench, message_id)
    bench.hear(Request((message_id,)))
    assert bench.flags(message_id) == Flags(request=True)

    bench.hear({"message": message, "offer": Offer((message_id,)), "ack": Ack((message_id,))}[by])
    bench.commit()

    assert not bench.flags(message_id).request
    assert [kind for kind, _ in told(bench.say())] == ([] if by == "ack" else ["Ack"])
    audit(bench.device)


def test_message_of_a_group_that_is_not_shared_is_as_of_an_unknown_one():
    """MESSAGE of a group not shared with its sender: nothing stored, no ACK, and the owner is told (BSP-D8)."""
    bench = Bench()
    foreign = bench.message(group_id=bench.other_id)
    unknown = bench.message(group_id=b"?" * 32)
    bench.up(Q)

    bench.hear(foreign, unknown, peer=Q)
    bench.commit()

    assert bench.vertex(bench.id_of(foreign), bench.other_id) is None
    assert bench.say(Q) == []
    assert bench.events == [Dropped(group_id, Q, Refusal.UNSHARED_GROUP) for group_id in (bench.other_id, b"?" * 32)]


def test_record_of_somebody_unknown_is_nothing():
    """Who is not in the table of peers changes nothing."""
    bench = Bench()

    bench.hear(bench.message(), Offer(ids(1)), peer=R)

    assert (bench.device.sizes()["messages"], bench.device.must_commit, bench.device.take_events()) == (0, False, [])


def test_records_of_profile_briar_say_nothing_to_a_device():
    """VERSIONS and PRIORITY are the connection's business."""
    bench = Bench(profile=BRIAR)

    bench.hear(Versions(b"\0"), Priority(bytes(16)))

    assert not bench.device.must_commit


def test_too_many_messages_are_refused_without_an_acknowledgement():
    """At the bound of the device a new message stays with its author; a known one is acknowledged all the same."""
    bench = Bench(messages_max=2)
    first, second, third = (bench.message(bytes([n])) for n in range(3))
    bench.up()

    bench.hear(first, second, third, first)
    bench.commit()

    assert told(bench.say()) == only("Ack", bench.id_of(first), bench.id_of(second))
    assert Dropped(bench.group_id, P, Refusal.DEVICE_FULL) in bench.events


def test_owner_may_refuse_a_new_message():
    """``admits`` is asked with group and size before anything is stored; its refusal is told."""
    asked = []

    def admits(group_id, size_bytes):
        asked.append((group_id, size_bytes))
        return Refusal.QUOTA_FULL if size_bytes > 3 else None

    bench = Bench(admits=admits)
    small, big = bench.message(b"123"), bench.message(b"1234")
    bench.up()

    bench.hear(small, big, small)
    bench.commit()

    assert asked == [(bench.group_id, 3), (bench.group_id, 4)]
    assert told(bench.say()) == only("Ack", bench.id_of(small))
    assert Dropped(bench.group_id, P, Refusal.QUOTA_FULL) in bench.events


def test_refused_message_is_taken_later():
    """A refusal is not remembered: the same message may come again."""
    full = [Refusal.QUOTA_FULL]
    bench = Bench(admits=lambda *_: full[0])
    message = bench.message()
    bench.hear(message)

    full[0] = None
    bench.hear(message)

    assert bench.vertex(bench.id_of(message)).state is State.DELIVERED


def test_full_group_takes_only_what_need_not_wait(monkeypatch):
    """At the bound of pending messages one more is refused and not acknowledged; it is taken once there is room."""
    monkeypatch.setattr(graph, "PENDING_MAX", 2)
    bench = Bench(format="deps_v1")
    root = bench.message(deps_v1_body((), b"root"))
    waiting = [bench.message(deps_v1_body((bench.id_of(root),), bytes([number]))) for number in range(3)]
    bench.up()

    bench.hear(*waiting)
    bench.commit()
    acknowledged = told(bench.say())
    bench.hear(root, waiting[2])
    bench.commit()

    assert acknowledged == [("Ack", tuple(map(bench.id_of, waiting[:2])))]
    assert Dropped(bench.group_id, P, Refusal.PENDING_FULL) in bench.events
    assert {bench.vertex(bench.id_of(each)).state for each in (root, *waiting)} == {State.DELIVERED}
    audit(bench.device)


@pytest.mark.slow
def test_pending_bound_refuses_what_would_wait():
    """At the bound of awaited dependencies a message that waits is refused, one that does not is taken."""
    bench = Bench(format="deps_v1")
    absent = [bytes([n]) * 32 for n in range(64)]
    for number in range(6_250):
        bench.hear(bench.message(deps_v1_body(absent, number.to_bytes(4, "big"))))
    late, free = bench.message(deps_v1_body(absent, b"late")), bench.message(deps_v1_body((), b"free"))

    bench.hear(late, free)

    assert bench.vertex(bench.id_of(late)) is None
    assert bench.vertex(bench.id_of(free)).state is State.DELIVERED
    assert bench.device.take_events() == [Dropped(bench.group_id, P, Refusal.PENDING_FULL)]


def test_too_many_dependencies_are_invalid_and_acknowledged():
    """More than 64 dependencies: INVALID, acknowledged, body gone (BSP-C6); repeats do not count."""
    bench = Bench(format="deps_v1")
    many = bench.message(deps_v1_body(ids(65), b""))
    repeated = bench.message(deps_v1_body(ids(64) + ids(64), b""))
    bench.up()

    bench.hear(many, repeated)
    bench.commit()

    assert told(bench.say()) == only("Ack", bench.id_of(many), bench.id_of(repeated))
    assert bench.vertex(bench.id_of(many)).refusal is Refusal.TOO_MANY_DEPENDENCIES
    assert bench.vertex(bench.id_of(repeated)).state is State.PENDING
    assert bench.device.body(bench.group_id, bench.id_of(many)) is None
    audit(bench.device)


def test_dependency_in_another_group_is_acknowledged_and_waits_for_ever():
    """It is never satisfied, so the message stays PENDING (BSP-D12)."""
    bench = Bench(format="deps_v1")
    elsewhere = bench.added(deps_v1_body((), b""), group_id=bench.other_id)
    message = bench.message(deps_v1_body((elsewhere,), b""))

    bench.hear(message)
    bench.commit()
    bench.up()

    assert bench.vertex(bench.id_of(message)).state is State.PENDING
    assert ("Ack", (bench.id_of(message),)) in told(bench.say())


def test_invalid_message_is_acknowledged_and_never_asked_for_again():
    """An ACK says received, not valid; an offer of it is acknowledged too."""
    bench = Bench(format="deps_v1")
    message = bench.message(b"?")
    bench.up()

    bench.hear(message)
    bench.commit()
    first = told(bench.say())
    bench.hear(Offer((bench.id_of(message),)))
    bench.commit()

    assert first == told(bench.say()) == only("Ack", bench.id_of(message))


# OFFER


def test_unknown_offer_is_remembered_and_requested():
    """OFFER(id), unknown: appended to offered(p), and requested at the next opportunity, once."""
    bench = Bench()
    bench.up()

    bench.hear(Offer(ids(2)), Offer(ids(3)))

    assert bench.device.is_due(P, bench.now)
    assert told(bench.say()) == only("Request", *ids(3))
    assert bench.say() == []
    assert not bench.device.must_commit


def test_offered_list_forgets_the_oldest_also_within_one_record():
    """Of 1,001 then 2,000 offers the newest 1,000 are requested (BSP-C5)."""
    bench = Bench()
    bench.up()

    bench.hear(Offer(ids(1_001)))
    first = bench.say()
    bench.hear(Offer(ids(2_000, 2_000)))

    assert [name for record in first for name in record.ids] == list(ids(1_000, 1))
    assert [name for record in bench.say() for name in record.ids] == list(ids(1_000, 3_000))


def test_offered_list_of_profile_briar_keeps_the_first():
    """Profile briar refuses the new one at the bound."""
    bench = Bench(profile=BRIAR)
    bench.up()

    bench.hear(Offer(ids(1_200)))

    assert [name for record in bench.say() for name in record.ids] == list(ids(1_000))


def test_offer_of_a_message_in_a_group_not_shared_is_answered_as_unknown():
    """What we know, but do not share with its sender, is requested as if we did not know it (BSP-UNKNOWN)."""
    bench = Bench()
    secret = bench.added(group_id=bench.other_id)
    bench.up(Q)
    bench.say(Q)

    bench.hear(Offer((secret, *ids(1))), peer=Q)

    assert told(bench.say(Q)) == only("Request", secret, *ids(1))


def test_message_that_becomes_shared_is_held_by_who_offered_it():
    """Message becomes shared with p, id in offered(p): removed there, hold = ack = 1, no row."""
    bench = Bench(shares_delivered=False)
    message = bench.message()
    bench.up(Q)
    bench.hear(message)
    bench.commit()
    other = bench.message(b"later")
    bench.hear(Offer((bench.id_of(other),)), peer=Q)
    mine = bench.added(other.body, share=False)

    bench.device.share_message(bench.group_id, mine, bench.now)
    bench.commit()

    assert bench.flags(mine, Q) == Flags(hold=True, ack=True)
    assert told(bench.say(Q)) == only("Ack", mine)
    audit(bench.device)


def test_group_that_becomes_shared_credits_who_offered_its_messages():
    """Group newly shared, id in offered(p): removed there, hold = ack = 1."""
    bench = Bench()
    message_id = bench.added(group_id=bench.other_id)
    bench.hear(Offer((message_id,)), peer=Q)

    bench.device.share(bench.other_id, Q, bench.now)
    bench.commit()
    bench.up(Q)

    assert bench.flags(message_id, Q, bench.other_id) == Flags(hold=True, ack=True)
    assert told(bench.say(Q)) == only("Ack", message_id)
    audit(bench.device)


# Events


def test_events_come_behind_the_commit_and_in_order():
    """Stored before Delivered, a dependency before what it frees; nothing before the disk has it."""
    bench = Bench(format="deps_v1")
    root = bench.message(deps_v1_body((), b"root"), 5)
    leaf = bench.message(deps_v1_body((bench.id_of(root),), b"leaf"), 4)
    broken = bench.message(b"?", 3)
    bench.hear(leaf, root, broken)
    assert bench.device.take_events() == []

    bench.begin()
    assert bench.device.take_events() == []
    bench.finish()

    group_id, (root_id, leaf_id, broken_id) = bench.group_id, map(bench.id_of, (root, leaf, broken))
    assert bench.events == [
        Stored(group_id, leaf_id, P),
        Stored(group_id, root_id, P),
        Delivered(group_id, root_id, 5, 1),
        Delivered(group_id, leaf_id, 4, 2),
        Stored(group_id, broken_id, P),
        Invalidated(group_id, broken_id, Refusal.UNPARSABLE),
    ]


def test_message_is_delivered_once_however_often_it_comes():
    """Duplicates before, during and after the commit tell nothing more."""
    bench = Bench()
    message = bench.message()
    bench.hear(message, message)
    bench.begin()
    bench.hear(message, peer=Q)
    bench.finish()
    bench.hear(message)
    bench.commit()

    assert [type(event) for event in bench.events].count(Delivered) == 1
    assert bench.vertex(bench.id_of(message)).order == 1
    audit(bench.device)
