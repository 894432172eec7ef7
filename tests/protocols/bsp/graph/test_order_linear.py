"""Long chains: no recursion, work that grows with their length and not faster, and few bytes for each message."""

import sys
import tracemalloc
import weakref

import pytest

from tests.protocols.bsp.build_graph import GROUP, Judge, chain, restored
from waystation.protocols.bsp.graph import order as graph_module
from waystation.protocols.bsp.graph.order import MessageGraph, State, Vertex
from waystation.protocols.bsp.refusals import Refusal

SHORT, LONG, LONGEST = 300, 3_000, 100_000
BYTES_DELIVERED_MAX = 480
"""Measured: 397 with the identifier (65 + 8 in its dependents), timestamps, number and dictionary's entry."""
BYTES_PENDING_MAX = 560
"""Measured: 442 with the absent identifier."""


def new_graph():
    """Return an empty graph of an undemanding client."""
    return MessageGraph(GROUP, lambda _: True)


def in_order(count):
    """Deliver a chain, its root first; return how many were delivered."""
    graph = new_graph()
    return sum(len(graph.place(one).delivered) for one in chain(count))


def in_reverse(count):
    """Deliver a chain, its root last; return how many the root delivered."""
    graph = new_graph()
    links = chain(count)
    for one in reversed(links[1:]):
        graph.place(one)
    return len(graph.place(links[0]).delivered)


def invalidated(count):
    """Make a waiting chain invalid by its root; return how many fell."""
    graph = new_graph()
    links = chain(count)
    for one in links[1:]:
        graph.place(one)
    return len(graph.place_invalid(links[0], Refusal.UNPARSABLE).invalidated)


def shared(count):
    """Share the leaf of a delivered chain; return how many that shares."""
    graph = new_graph()
    links = chain(count)
    for one in links:
        graph.place(one)
    return len(graph.share(links[-1]))


def settled(count):
    """Restore a chain of which the root was delivered and the leaf is to be shared; return how many that delivers."""
    graph = new_graph()
    for number, one in enumerate(chain(count)):
        one.state, one.order = (State.PENDING, 0) if number else (State.DELIVERED, 1)
        graph.restore(one)
    return len(graph.settle().delivered) + 1


def wide(count):
    """Deliver one root that all others wait for; return how many it delivers."""
    graph = new_graph()
    links = chain(count)
    for one in links[1:]:
        graph.place(Vertex(one.message_id, one.timestamp, 1, (links[0].message_id,)))
    return len(graph.place(links[0]).delivered)


def one_by_one(count):
    """Let all wait for one absent message and each for another that turns out invalid; return how many fell."""
    graph = new_graph()
    links = chain(2 * count)
    absent = b"\xff" * 32
    for number in range(count):
        graph.place(Vertex(links[number].message_id, 0, 1, (absent, links[count + number].message_id)))
    return sum(
        len(graph.place_invalid(Vertex(one.message_id, 0, 1), Refusal.UNPARSABLE).invalidated) - 1
        for one in links[count:]
    )


WORK = [in_order, in_reverse, invalidated, shared, settled, wide, one_by_one]


def lines_run(work, count):
    """Return how many lines of the graph's modules a piece of work runs."""
    watched = {graph_module.__file__, graph_module.Waiting.add.__code__.co_filename}
    lines = 0

    def on_line(frame, event, argument):
        nonlocal lines
        lines += 1
        return on_line

    def on_call(frame, event, argument):
        return on_line if frame.f_code.co_filename in watched else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        assert work(count) == count
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("work", WORK)
def test_work_grows_with_the_length_and_not_faster(work):
    """Ten times the messages run ten times the lines, to a hundredth: counted, not timed."""
    short, long = lines_run(work, SHORT), lines_run(work, LONG)

    assert 9.9 < long / short < 10.1
    assert long / LONG < 150


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK)
def test_hundred_thousand(work):
    """A chain of 100,000 overflows no stack, and runs ten times the lines of one of 10,000."""
    short, long = lines_run(work, LONGEST // 10), lines_run(work, LONGEST)

    assert 9.9 < long / short < 10.1


@pytest.mark.parametrize("work", [in_order, in_reverse, invalidated, shared])
def test_chain_far_deeper_than_any_stack(work):
    """20 times as many messages as the interpreter allows calls in each other are no matter."""
    count = 20 * sys.getrecursionlimit()

    assert work(count) == count


def bytes_each(count, dependency_of, *, backwards=False):
    """Return bytes that a graph keeps for each of so many messages, all that a vertex points to included."""
    tracemalloc.start()
    try:
        graph = new_graph()
        before = tracemalloc.get_traced_memory()[0]
        for number in reversed(range(count)) if backwards else range(count):
            above = (dependency_of(number).to_bytes(32, "big"),) if number else ()
            graph.place(Vertex(number.to_bytes(32, "big"), 1 << 40, 100, above, seq=number, stored_ms=1 << 40))
        return (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("backwards", [False, True], ids=["root first", "root last"])
def test_delivered_message_takes_few_bytes(backwards):
    """A delivered message costs under 480 bytes however it came: nothing of its waiting stays."""
    assert bytes_each(5_000, lambda number: number - 1, backwards=backwards) < BYTES_DELIVERED_MAX


def test_pending_message_takes_few_bytes():
    """A pending message costs under 560 bytes, the absent identifier included."""
    assert bytes_each(5_000, lambda number: number + 1_000_000) < BYTES_PENDING_MAX


@pytest.mark.parametrize("arrive", [list, reversed], ids=["root first", "root last"])
def test_identifiers_are_kept_once(arrive):
    """A delivered vertex rests on vertices and keeps no identifier but its own, also after a restart."""
    graph = new_graph()
    links = chain(3)
    for one in arrive(links):
        graph.place(one)
    copy = restored(graph, Judge())
    copy.settle()

    for each in (graph, copy):
        held = list(each.vertices.values())
        assert all(
            one.message_id is name for above in held for one, name in zip(above.above, above.dependencies, strict=True)
        )
        assert [len(one.above) for one in sorted(held, key=lambda one: one.order)] == [0, 1, 1]
        assert all(each.vertices[below.message_id] is below for one in held for below in one.above)


def test_long_chain_is_forgotten_without_recursion():
    """A graph of 10,000 vertices, each holding the one before, goes away like any other."""
    graph = new_graph()
    links = chain(LONGEST // 10)
    for one in links:
        graph.place(one)
    leaf = weakref.ref(graph)
    del links, one

    del graph

    assert leaf() is None
