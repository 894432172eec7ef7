"""Laws of protocols.bsp.graph_facts: what a node tells of messages of groups, once each, and nothing of a body."""

from tests.protocols.bsp.build import id_at
from tests.protocols.bsp.build_device import START, Bench, P, Q
from waystation.core.facts import MessageChanged, MessageHeld, MessageStored, Refused
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.messages import Ack, Message, Request
from waystation.protocols.bsp.relay.facts import facts_of


def told(bench):
    """Return the facts of all that has happened since the last time."""
    bench.commit()
    facts = facts_of(bench.events, bench.device, bench.now)
    bench.events = []
    return facts


def test_message_that_is_delivered_as_it_comes_is_one_fact():
    """It tells where it came from, what it depends on, and its place; the same message again tells nothing."""
    bench = Bench(format="deps_v1")
    root = bench.added(deps_v1_body((), b"root"), 5)
    before = told(bench)
    leaf = bench.message(deps_v1_body([root], b"leaf"), 6)
    bench.hear(leaf, leaf)
    behind = told(bench)

    size = len(leaf.body)
    assert before == [MessageStored("bsp", None, "delivered", 3 + 4, bench.group_id, root, (), 5, 1)]
    assert behind == [
        MessageStored("bsp", P, "delivered", size, bench.group_id, bench.id_of(leaf), (root,), 6, 2),
    ]


def test_message_that_waits_is_told_again_when_it_is_delivered():
    """The child comes first: it is waiting, and changes when its parent is here; so it is also in one commit."""
    for commits in (True, False):
        bench = Bench(format="deps_v1")
        parent = bench.message(deps_v1_body((), b"parent"), 1)
        child = bench.message(deps_v1_body([bench.id_of(parent)], b"child"), 2)
        bench.hear(child)
        first = told(bench) if commits else []
        bench.hear(parent)
        facts = first + told(bench)

        told_of = [(type(fact), fact.message_id, fact.state, fact.order) for fact in facts]
        assert told_of == [
            (MessageStored, bench.id_of(child), "waiting", 0),
            (MessageStored, bench.id_of(parent), "delivered", 1),
            (MessageChanged, bench.id_of(child), "delivered", 2),
        ]


def test_invalid_message_says_why():
    """What cannot be read, and what depends on it, is invalid, each for its own reason."""
    bench = Bench(format="deps_v1")
    root = bench.message(b"\xff", 1)
    child = bench.message(deps_v1_body([bench.id_of(root)], b""), 2)
    bench.hear(child)
    told(bench)
    bench.hear(root)
    facts = told(bench)

    assert [(type(fact), fact.message_id, fact.state) for fact in facts] == [
        (MessageStored, bench.id_of(root), "invalid"),
        (MessageChanged, bench.id_of(root), "invalid"),
        (MessageChanged, bench.id_of(child), "invalid"),
    ]
    assert [fact.reason for fact in facts[1:]] == ["unparsable", "invalid_dependency"]


def test_each_peer_that_holds_a_message_is_one_fact():
    """It names the peer, its copies since it last asked, and how long ago they were; to hear it twice is no matter."""
    bench = Bench()
    message_id = bench.added()
    told(bench)
    bench.up(P)
    bench.say(P)
    bench.pass_ms(30)
    bench.hear(Request((message_id,)), peer=P)
    bench.pass_ms(4)
    bench.say(P)
    bench.pass_ms(500)
    bench.hear(Ack((message_id,)), Ack((message_id,)), peer=P)
    facts = told(bench)

    assert facts == [MessageHeld("bsp", P, bench.group_id, message_id, 1, 534_000, 504_000, 500_000)]


def test_message_that_was_sent_at_once_was_never_offered():
    """In batch mode there is no offer and no request."""
    bench = Bench(mode=Mode.BATCH)
    message_id = bench.added()
    told(bench)
    bench.up(P)
    bench.say(P)
    bench.hear(Ack((message_id,)), peer=P)

    assert told(bench) == [MessageHeld("bsp", P, bench.group_id, message_id, 1, None, None, 0)]


def test_deleted_message_is_told_once():
    """Its body is gone; to delete it again is no matter."""
    bench = Bench()
    message_id = bench.added()
    told(bench)
    bench.device.delete(bench.group_id, message_id)
    bench.device.delete(bench.group_id, message_id)

    assert told(bench) == [MessageChanged("bsp", "deleted", None, bench.group_id, message_id, 0)]


def test_refused_messages_are_counted_by_peer_and_reason():
    """A hundred messages of a group that is not shared are one fact of their peer."""
    bench = Bench()
    for number in range(100):
        bench.hear(Message(id_at(7), number, b"?"), peer=Q if number % 4 else P)

    assert told(bench) == [Refused("bsp", P, "unshared_group", 25), Refused("bsp", Q, "unshared_group", 75)]


def test_group_that_was_left_meanwhile_is_not_told_of():
    """What is known of a message is gone with its group."""
    bench = Bench()
    bench.hear(bench.message())
    bench.commit()
    bench.device.leave(bench.group_id)

    assert facts_of(bench.events, bench.device, bench.now) == []


def test_nothing_happened_tells_nothing():
    """Without events there are no facts."""
    assert facts_of([], Bench().device, START) == []


def test_facts_hold_no_body():
    """Whatever a body says, no fact repeats it."""
    bench = Bench()
    bench.hear(bench.message(b"secret words"))

    assert b"secret" not in repr(told(bench)).encode()
