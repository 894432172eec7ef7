"""Laws of protocols.bsp.why: every reason for which a message is where it is has its sentence."""

import pytest

from tests.protocols.bsp.build import id_at, ids
from tests.protocols.bsp.build_device import KEPT, LIVE, WALL_US, Bench, P, Q
from waystation.core.errors import LocalError
from waystation.protocols.bsp.device.links import Mode, Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.device.why import Missing, explain
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.messages import Ack, Offer, Request
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal


def why(bench, name):
    return explain(bench.device, bench.group_id, name, bench.now)


def reason_for(bench, name, peer=P):
    """Return the sentence about one peer."""
    return {each.peer: each.reason for each in why(bench, name).peers}[peer]


# The place in the graph


def test_message_nobody_has_heard_of():
    """Neither offered nor sent."""
    told = why(Bench(), id_at(0))

    assert told.reason == "no peer has offered or sent it"
    assert (told.vertex, told.missing) == (None, ())
    assert [each.reason for each in told.peers] == ["has not offered it"] * 2


def test_message_that_was_not_taken_tells_from_whom_and_why():
    """A quota leaves no trace in the group, so it is remembered beside it; it is on disk for a program beside, too."""
    bench = Bench(admits=lambda _group, _size: Refusal.QUOTA_FULL)
    message = bench.message(b"too much")
    bench.hear(message)
    bench.commit()
    now = why(bench, bench.id_of(message)).reason
    bench.restart()

    assert now == why(bench, bench.id_of(message)).reason
    assert P.hex()[:8] in now
    assert "quota of the group's owner" in now


@pytest.mark.parametrize(("peers", "who"), [((P,), "1 peer has"), ((P, Q), "2 peers have")])
def test_message_that_was_offered_only(peers, who):
    """Who has offered it, and what comes next."""
    bench = Bench()
    for peer in peers:
        bench.hear(Offer(ids(1)), peer=peer)

    assert why(bench, id_at(0)).reason == f"it has not come here; {who} offered it"
    assert reason_for(bench, id_at(0)) == "has offered it; we ask for it at the next opportunity"


def test_message_that_waits_for_what_never_came():
    """How many dependencies are missing, and which of them are known."""
    bench = Bench(format="deps_v1")
    middle = bench.message(deps_v1_body(ids(1), b""))
    leaf = bench.message(deps_v1_body((bench.id_of(middle), id_at(1)), b""))
    bench.hear(leaf)
    alone = why(bench, bench.id_of(leaf)).reason

    bench.hear(middle)
    told = why(bench, bench.id_of(leaf))

    assert alone == "it waits for 2 of its dependencies, 2 of which have never come here"
    assert told.reason == "it waits for 2 of its dependencies, 1 of which have never come here"
    assert told.missing == (Missing(bench.id_of(middle), is_known=True), Missing(id_at(1), is_known=False))


def test_message_that_waits_for_what_waits():
    """All its dependencies came, and are not delivered themselves."""
    bench = Bench(format="deps_v1")
    middle = bench.message(deps_v1_body(ids(1), b""))
    leaf = bench.message(deps_v1_body((bench.id_of(middle),), b""))
    bench.hear(leaf, middle)

    assert why(bench, bench.id_of(leaf)).reason == "it waits for 1 of its dependencies, which wait in turn"


def test_invalid_messages_say_why():
    """Each reason has its words, also after a restart."""
    bench = Bench(format="judging")
    broken = bench.message(b"?")
    many = bench.message(deps_v1_body(ids(65), b""))
    child = bench.message(deps_v1_body((bench.id_of(broken),), b""))
    bad = bench.message(deps_v1_body((), b"bad"))
    bench.hear(broken, many, child, bad)
    bench.commit()
    bench.restart()

    assert [why(bench, bench.id_of(each)).reason for each in (broken, many, child, bad)] == [
        "it is invalid: its body is not what the group's format can read",
        "it is invalid: it names more than 64 dependencies",
        "it is invalid: a message that it depends on is invalid",
        "it is invalid: the application found it invalid in the context of its dependencies",
    ]


def test_every_reason_for_invalidity_has_words():
    """No refusal of a vertex is told as unknown, and a reason that was not kept is told as such."""
    bench = Bench(format="deps_v1")
    broken = bench.message(b"?")
    bench.hear(broken)
    vertex = bench.vertex(bench.id_of(broken))
    reasons = []
    for refusal in (Refusal.NAMES_ITSELF, None):
        vertex.refusal = refusal
        reasons.append(why(bench, vertex.message_id).reason)

    assert reasons == [
        "it is invalid: it names itself as a dependency",
        "it is invalid: for a reason that was not kept",
    ]


def test_delivered_message_tells_its_number():
    """Whether it is shared, and whether its body is there."""
    bench = Bench()
    first, second = bench.added(b"1", share=False), bench.added(b"2")
    bench.device.delete(bench.group_id, second)

    assert why(bench, first).reason == "it is delivered (number 1) and not shared with any peer"
    assert why(bench, second).reason == "it is delivered (number 2) and shared; its body was deleted"


# Each peer


def test_peer_that_holds_it():
    """And whether we owe it an acknowledgement."""
    bench = Bench()
    message = bench.message()
    bench.hear(message)
    bench.commit()
    owed = reason_for(bench, bench.id_of(message))
    bench.up()
    bench.say()

    assert owed == "holds it; we still owe it an acknowledgement"
    assert reason_for(bench, bench.id_of(message)) == "holds it"


def test_peer_that_must_not_get_it():
    """The group is only visible to it, the message is not shared, or its body gone."""
    bench = Bench()
    first, second = bench.added(b"1"), bench.added(b"2", share=False)
    bench.device.share(bench.group_id, P, bench.now, Visibility.VISIBLE)
    visible = reason_for(bench, first)
    bench.device.delete(bench.group_id, first)

    assert visible == "the group is visible to it, but not shared: we take its messages and send none"
    assert reason_for(bench, second, Q) == "the message is not shared"
    assert reason_for(bench, first, Q) == "does not hold it, and never will from us: the body is gone"


def test_peer_that_waits_for_it():
    """Every stage of handing over has its sentence."""
    bench = Bench()
    name = bench.added()
    told = [reason_for(bench, name)]
    link = bench.up()
    told.append(reason_for(bench, name))
    bench.say()
    bench.pass_ms(400)
    told.append(reason_for(bench, name))
    bench.pass_ms(600)
    bench.say()
    told.append(reason_for(bench, name))
    bench.pass_ms(2_000)
    told.append(reason_for(bench, name))
    bench.device.link_down(link, bench.now)
    told.append(reason_for(bench, name))
    bench.up()
    bench.hear(Request((name,)))
    told.append(reason_for(bench, name))
    bench.hear(Ack((name,)))
    told.append(reason_for(bench, name))

    assert told == [
        "does not hold it; it has not gone out yet, and no link to the peer is up",
        "does not hold it; it has not gone out yet, and goes out at the next opportunity over live",
        "does not hold it; it was offered or sent once without an answer, and goes out again in 0.6 s",
        "does not hold it; it was offered or sent 2 times without an answer, and goes out again in 2.0 s",
        (
            "does not hold it; it was offered or sent 2 times without an answer, "
            "and goes out at the next opportunity over live"
        ),
        "does not hold it; it was offered or sent 2 times without an answer, and no link to the peer is up",
        "has asked for it; it goes out at the next opportunity",
        "holds it",
    ]


def test_request_that_came_too_early_waits():
    """What went out a moment ago goes out again in its time, though it was asked for."""
    bench = Bench(mode=Mode.BATCH)
    name = bench.added()
    bench.up()
    bench.say()
    bench.pass_ms(500)

    bench.hear(Request((name,)))

    assert reason_for(bench, name).endswith("goes out again in 0.5 s")


def read_again(bench):
    """Return a device as another program reads it from the same store."""
    reader = BspDevice(SEED, bench.store)
    reader.set_wall(bench.now, WALL_US + bench.now)
    reader.join(bench.groups[0], bench.now)
    reader.meet(P)
    reader.share(bench.group_id, P, bench.now)
    return reader


@pytest.mark.parametrize(
    ("terms", "kept"),
    [
        (LIVE, "what is"),
        (KEPT, "a copy is in a file or at a relay, and is repeated there in 8 s at the earliest; what else is"),
    ],
)
def test_store_beside_a_program_that_runs_tells_no_more_than_it_knows(terms, kept):
    """What is up and under way is in memory; only a copy that outlives its way is on the disk."""
    bench = Bench(mode=Mode.BATCH)
    name = bench.added()
    bench.up(terms=terms)
    bench.say()
    bench.commit()

    told = explain(read_again(bench), bench.group_id, name, bench.now, is_running=False)

    assert told.reason == "it is delivered (number 1) and shared"
    assert [each.reason for each in told.peers] == [
        f"is not known to hold it; {kept} under way only the running program knows"
    ]


def test_store_does_not_know_what_was_offered():
    """A message that never came may have been offered to the program that runs."""
    bench = Bench()
    bench.hear(Offer(ids(1)))

    told = explain(read_again(bench), bench.group_id, id_at(0), bench.now, is_running=False)

    assert told.reason == "it has not come here; whether it was offered only the running program knows"
    assert [each.reason for each in told.peers] == ["whether it has offered it only the running program knows"]


def test_group_of_others_is_not_explained():
    """Nothing is known of a group that the device is no member of."""
    bench = Bench()

    with pytest.raises(LocalError, match="no member of the group"):
        explain(read_again(bench), bench.other_id, id_at(0), bench.now)
