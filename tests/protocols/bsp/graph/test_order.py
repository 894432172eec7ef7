"""The graph of one group: causal delivery, invalidation and sharing, in whatever order messages come."""

import itertools

import pytest

from tests.protocols.bsp.build_graph import GROUP, chain, facts, graph_of, name_of, names, restored, vertex
from waystation.protocols.bsp.graph.order import DEPENDENCIES_MAX, PENDING_MAX, MessageGraph, State, Vertex
from waystation.protocols.bsp.refusals import Refusal

FAMILY = {"root": (), "child": ("root",), "grandchild": ("child",)}


def state_of(graph, label):
    """Return the state of the message with a label."""
    return graph.vertices[name_of(label)].state


@pytest.mark.parametrize("labels", list(itertools.permutations(FAMILY)), ids=" ".join)
def test_arrival_order_does_not_show(labels):
    """Three generations in any of 6 orders end delivered, the root as number 1, its grandchild as number 3 (14)."""
    graph, judge = graph_of()

    delivered = [one for label in labels for one in names(graph.place(vertex(label, *FAMILY[label])).delivered)]

    assert delivered == judge.asked == [name_of(label) for label in FAMILY]
    assert [graph.vertices[name_of(label)].order for label in FAMILY] == [1, 2, 3]
    assert (graph.pending_count, graph.awaited_count, graph.next_order) == (0, 0, 4)


@pytest.mark.parametrize("labels", list(itertools.permutations(FAMILY)), ids=" ".join)
def test_invalid_root_takes_its_line_with_it(labels):
    """Three generations whose root is rejected in context end invalid in any order, and only the root is judged."""
    graph, judge = graph_of("root")

    fallen = [one for label in labels for one in names(graph.place(vertex(label, *FAMILY[label])).invalidated)]

    assert sorted(fallen) == sorted(name_of(label) for label in FAMILY)
    assert judge.asked == [name_of("root")] and graph.next_order == 1
    assert [graph.vertices[name_of(label)].refusal for label in FAMILY] == [
        Refusal.INVALID_IN_CONTEXT,
        Refusal.INVALID_DEPENDENCY,
        Refusal.INVALID_DEPENDENCY,
    ]
    assert not any(one.body_present for one in graph.vertices.values())


def test_invalid_root_of_a_thousand():
    """All 1000 of a waiting chain fall with its root, and a child of the 500th that comes later falls at once (15)."""
    graph, judge = graph_of()
    links = chain(1_000)
    for one in links[1:]:
        graph.place(one)

    changes = graph.place_invalid(links[0], Refusal.UNPARSABLE)
    late = Vertex(name_of("late"), 0, 100, (links[499].message_id,))
    at_once = graph.place(late)

    assert names(changes.invalidated) == names(links) and len(links) == 1_000
    assert {one.state for one in links} == {State.INVALID} and not any(one.body_present for one in links)
    assert links[0].refusal is Refusal.UNPARSABLE and links[999].refusal is Refusal.INVALID_DEPENDENCY
    assert at_once.invalidated == [late] and late.refusal is Refusal.INVALID_DEPENDENCY
    assert judge.asked == [] and (graph.pending_count, graph.awaited_count) == (0, 0)


def test_diamond_waits_for_both_arms():
    """A leaf of two arms is delivered with the second of them, not before (16)."""
    graph, judge = graph_of()
    graph.place(vertex("leaf", "left", "right"))
    graph.place(vertex("left", "root"))
    graph.place(vertex("root"))

    waiting = state_of(graph, "leaf")
    delivered = names(graph.place(vertex("right", "root")).delivered)

    assert waiting is State.PENDING
    assert delivered == [name_of("right"), name_of("leaf")]
    assert judge.asked.count(name_of("leaf")) == 1


@pytest.mark.parametrize("bad", ["left", "right"])
def test_diamond_falls_with_either_arm(bad):
    """One invalid arm makes the leaf invalid, though the other arm never comes or is delivered."""
    graph, _ = graph_of(bad)
    graph.place(vertex("leaf", "left", "right"))
    graph.place(vertex("left"))

    graph.place(vertex("right"))

    assert state_of(graph, "leaf") is State.INVALID
    assert (graph.pending_count, graph.awaited_count) == (0, 0)


def test_fallen_vertex_no_longer_waits():
    """What one invalid dependency has decided is not looked at again when the other one is delivered."""
    graph, judge = graph_of()
    graph.place(vertex("leaf", "bad", "good"))
    graph.place_invalid(vertex("bad"), Refusal.UNPARSABLE)

    changes = graph.place(vertex("good"))

    assert names(changes.delivered) == judge.asked == [name_of("good")] and not changes.invalidated
    assert state_of(graph, "leaf") is State.INVALID and not len(graph._waiting)


def test_share_spreads_to_all_dependencies():
    """Sharing the leaf of 1000 shares 1000, dependencies first; again, or any of them: none (17)."""
    graph, _ = graph_of()
    links = chain(1_000)
    for one in links:
        graph.place(one)

    newly = graph.share(links[-1])
    again = graph.share(links[-1]), graph.share(links[499])

    assert names(newly) == names(links) and len(newly) == 1_000
    assert all(one.shared for one in links) and again == ([], [])


def test_share_stops_at_what_is_shared():
    """A leaf above a shared half shares the other half, and two arms share their root once."""
    graph, _ = graph_of()
    for label, above in (("root", ()), ("left", ("root",)), ("right", ("root",)), ("leaf", ("left", "right"))):
        graph.place(vertex(label, *above))
    half = graph.share(graph.vertices[name_of("left")])

    rest = graph.share(graph.vertices[name_of("leaf")])

    assert names(half) == [name_of("root"), name_of("left")]
    assert names(rest) == [name_of("right"), name_of("leaf")]


def test_ties_go_by_timestamp_then_identifier():
    """Of those that one delivery frees, the oldest goes first, and of equally old ones the smaller identifier."""
    graph, _ = graph_of()
    waiting = [vertex(number, "root", timestamp=5 - number // 4) for number in range(12)]
    for one in waiting:
        graph.place(one)

    delivered = graph.place(vertex("root", timestamp=99)).delivered

    expected = sorted(waiting, key=lambda one: (one.timestamp, one.message_id))
    assert delivered[1:] == expected and [one.order for one in expected] == list(range(2, 14))


def test_newly_ready_one_competes_with_the_others():
    """A child that becomes ready goes before an uncle who is ready and younger than it."""
    graph, _ = graph_of()
    for one in (vertex("uncle", "root", timestamp=9), vertex("father", "root", timestamp=1)):
        graph.place(one)
    graph.place(vertex("child", "father", timestamp=5))

    delivered = names(graph.place(vertex("root")).delivered)

    assert delivered == [name_of(label) for label in ("root", "father", "child", "uncle")]


def test_repeats_collapse():
    """A dependency named three times is one: waited for once, delivered once, written once."""
    graph, judge = graph_of()
    child = vertex("child", "root", "root", "root")
    graph.place(child)

    awaited = graph.awaited_count
    graph.place(vertex("root"))

    assert awaited == 1 and child.dependencies == (name_of("root"),)
    assert child.state is State.DELIVERED and judge.asked == [name_of("root"), name_of("child")]


def test_who_names_itself_is_invalid():
    """A message whose body states its own identifier is invalid, whatever else it names, and so is its child."""
    graph, judge = graph_of()
    graph.place(vertex("child", "self"))

    changes = graph.place(vertex("self", "absent", "self"))

    assert names(changes.invalidated) == [name_of("self"), name_of("child")]
    assert changes.invalidated[0].refusal is Refusal.NAMES_ITSELF and judge.asked == []
    assert (graph.pending_count, graph.awaited_count, len(graph._waiting)) == (0, 0, 0)


def test_cycle_that_bodies_claim_waits_for_ever():
    """Two messages that name each other stay pending, and hold nobody else up."""
    graph, judge = graph_of()
    graph.place(vertex("a", "b"))
    graph.place(vertex("b", "a"))

    graph.place(vertex("c"))

    assert state_of(graph, "a") is state_of(graph, "b") is State.PENDING
    assert judge.asked == [name_of("c")] and graph.pending_count == 2


def test_dependency_in_another_group_never_comes():
    """A dependency in another group leaves its dependent pending, whether it is delivered or invalid there."""
    here, _ = graph_of()
    there, judge = graph_of("bad")
    for label in ("good", "bad"):
        here.place(vertex(f"child of {label}", label))

    for label in ("good", "bad"):
        there.place(vertex(label))

    assert judge.asked == [name_of("good"), name_of("bad")]
    assert state_of(here, "child of good") is state_of(here, "child of bad") is State.PENDING
    assert here.missing(here.vertices[name_of("child of bad")]) == [name_of("bad")]


def test_deleted_message_still_satisfies():
    """A delivered message without a body keeps its place: its children are delivered, and share it."""
    graph, _ = graph_of()
    root = vertex("root")
    graph.place(root)

    graph.remove_body(root)
    child = vertex("child", "root")
    graph.place(child)

    assert (root.state, root.body_present, child.state) == (State.DELIVERED, False, State.DELIVERED)
    assert graph.share(child) == [root, child]


def test_own_message_is_not_judged():
    """A local message is delivered as the next number without asking the client; those that waited are judged."""
    graph, judge = graph_of()
    graph.place(vertex("younger", "own", timestamp=2))
    graph.place(vertex("older", "own", timestamp=1))
    graph.place(vertex("root"))

    changes = graph.place_delivered(vertex("own", "root", "root"))

    assert names(changes.delivered) == [name_of(label) for label in ("own", "older", "younger")]
    assert [one.order for one in changes.delivered] == [2, 3, 4]
    assert judge.asked == [name_of(label) for label in ("root", "older", "younger")]


def test_own_message_needs_its_dependencies():
    """A local message on something that is not delivered is its caller's mistake."""
    graph, _ = graph_of()
    graph.place(vertex("pending", "absent"))

    with pytest.raises(AssertionError):
        graph.place_delivered(vertex("own", "pending"))


def test_missing_and_known():
    """Missing are the dependencies that are absent or pending, once each and in order; known is all that was placed."""
    graph, _ = graph_of()
    graph.place(vertex("there"))
    graph.place(vertex("pending", "absent"))

    missing = graph.missing(vertex("new", "pending", "there", "absent", "pending"))

    assert missing == [name_of("pending"), name_of("absent")]
    assert [graph.is_known(name_of(label)) for label in ("there", "pending", "absent")] == [True, True, False]


def test_same_message_is_placed_once():
    """To place a message twice is the caller's mistake, whatever became of it."""
    graph, _ = graph_of()
    graph.place(vertex("one"))

    with pytest.raises(AssertionError):
        graph.place(vertex("one"))


def test_bound_of_dependencies():
    """64 dependencies wait and are delivered; a vertex with 65 must not be placed but as invalid."""
    graph, _ = graph_of()
    labels = range(DEPENDENCIES_MAX)
    graph.place(vertex("child", *labels))
    awaited = graph.awaited_count
    for label in labels:
        graph.place(vertex(label))

    with pytest.raises(AssertionError):
        graph.place(vertex("other", *range(DEPENDENCIES_MAX + 1)))

    assert (awaited, state_of(graph, "child")) == (64, State.DELIVERED)


def test_bound_of_pending(monkeypatch):
    """At the bound there is room only for what would not wait: the deliverable, and what is invalid at once."""
    monkeypatch.setattr("waystation.protocols.bsp.graph.order.PENDING_MAX", 3)
    graph, _ = graph_of("bad")
    for number in range(2):
        graph.place(vertex(number, "absent"))
    before = graph.has_room(vertex(2, "absent"))
    graph.place(vertex(2, "absent"))
    graph.place(vertex("bad"))

    room = {
        label: graph.has_room(vertex("new", *above))
        for label, above in {"waits": ("absent",), "free": (), "self": ("new",), "falls": ("bad", "absent")}.items()
    }

    assert before and room == {"waits": False, "free": True, "self": True, "falls": True}
    assert PENDING_MAX == 100_000


def test_bound_of_awaited(monkeypatch):
    """Absent dependencies are counted too: few vertices that name many have no more room than many that name few."""
    monkeypatch.setattr("waystation.protocols.bsp.graph.order.AWAITED_MAX", 130)
    graph, _ = graph_of()
    graph.place(vertex("one", *range(64)))
    before = graph.has_room(vertex("two", "absent"))
    graph.place(vertex("two", *range(64)))

    after = graph.has_room(vertex("three", "absent"))
    graph.place(vertex(0))

    assert (before, after, graph.awaited_count) == (True, False, 126)


def test_restore_must_be_settled():
    """Between restoring and settling nothing may be placed or shared, whatever was restored."""
    graph, _ = graph_of()
    delivered = Vertex(name_of("delivered"), 0, 1, state=State.DELIVERED, order=1)
    graph.restore(delivered)

    with pytest.raises(AssertionError):
        graph.place(vertex("new"))
    with pytest.raises(AssertionError):
        graph.share(delivered)

    assert not delivered.shared and not graph.is_known(name_of("new"))


def test_settle_changes_nothing_that_was_finished():
    """A restored graph is the one that was stored, and goes on from its numbers."""
    graph, judge = graph_of("bad")
    for one in (vertex("root"), vertex("child", "root"), vertex("bad"), vertex("victim", "bad"), vertex("w", "absent")):
        graph.place(one)
    graph.share(graph.vertices[name_of("root")])
    graph.remove_body(graph.vertices[name_of("root")])
    asked = list(judge.asked)

    copy = restored(graph, judge)
    changes = copy.settle()
    after = facts(copy)
    next_one = copy.place(vertex("absent")).delivered

    assert not changes.delivered and not changes.invalidated and not changes.shared
    assert after == facts(graph) and (graph.pending_count, graph.awaited_count) == (1, 1)
    assert [one.order for one in next_one] == [3, 4] and judge.asked == [*asked, name_of("absent"), name_of("w")]


def test_settle_finishes_what_was_begun():
    """UNKNOWN and PENDING are looked at again in order of age, invalidity spreads, and sharing reaches the root."""
    graph, judge = graph_of("bad")
    graph.restore(Vertex(name_of("root"), 0, 1, state=State.DELIVERED, order=7))
    graph.restore(Vertex(name_of("leaf"), 3, 1, (name_of("root"),), state=State.DELIVERED, order=9, shared=True))
    graph.restore(Vertex(name_of("young"), 5, 1, (name_of("root"),), state=State.PENDING))
    graph.restore(Vertex(name_of("old"), 4, 1, (name_of("leaf"),)))
    graph.restore(Vertex(name_of("victim"), 6, 1, (name_of("fallen"), name_of("absent")), state=State.PENDING))
    graph.restore(Vertex(name_of("fallen"), 6, 1, state=State.INVALID, refusal=Refusal.UNPARSABLE))
    graph.restore(Vertex(name_of("waits"), 6, 1, (name_of("absent"),)))
    graph.restore(Vertex(name_of("bad"), 0, 1))

    changes = graph.settle()

    assert names(changes.delivered) == [name_of("old"), name_of("young")]
    assert [one.order for one in changes.delivered] == [10, 11]
    assert names(changes.invalidated) == [name_of("victim"), name_of("bad")]
    assert names(changes.shared) == [name_of("root")]
    assert (graph.pending_count, graph.awaited_count, len(judge.asked)) == (1, 1, 3)


def test_vertex_shows_what_matters():
    """A vertex in an error message is its identifier's beginning, state and number."""
    graph = MessageGraph(GROUP, lambda _: True)
    one = Vertex(bytes.fromhex("0badcafe") + bytes(28), 0, 0)

    graph.place(one)

    assert repr(one) == "Vertex(0badcafe, DELIVERED, order=1)"
