"""Graphs for tests: vertices with readable names, and a judge that remembers what it was asked."""

import hashlib

from waystation.protocols.bsp.graph.order import MessageGraph, State, Vertex

GROUP = bytes(range(32))


def name_of(label):
    """Return the identifier that goes with a label."""
    return hashlib.blake2s(f"message {label}".encode()).digest()


def vertex(label, *dependencies, timestamp=0):
    """Return a vertex that names the messages with the labels ``dependencies``."""
    return Vertex(name_of(label), timestamp, 100, tuple(name_of(one) for one in dependencies))


def chain(count):
    """Return vertices of which each but the first depends on the one before, their timestamps growing."""
    names = [number.to_bytes(32, "big") for number in range(count)]
    return [
        Vertex(names[number], number, 100, (bytes(bytearray(names[number - 1])),) if number else ())
        for number in range(count)
    ]


class Judge:
    """A client that rejects what it was told to, and checks that it is asked properly."""

    def __init__(self, *rejected):
        self.rejected = {name_of(label) for label in rejected}
        self.asked = []
        self.graph = None

    def __call__(self, asked):
        """Judge a vertex; all its dependencies must be delivered by now."""
        assert all(self.graph.vertices[one].state is State.DELIVERED for one in asked.dependencies)
        assert asked.state in (State.UNKNOWN, State.PENDING)
        self.asked.append(asked.message_id)
        return asked.message_id not in self.rejected


def graph_of(*rejected):
    """Return an empty graph and its judge, who rejects some labels."""
    judge = Judge(*rejected)
    judge.graph = MessageGraph(GROUP, judge)
    return judge.graph, judge


def names(vertices):
    """Return identifiers of vertices."""
    return [one.message_id for one in vertices]


def restored(graph, judge, change=lambda vertex: None, named=lambda vertex: vertex.dependencies):
    """Return a graph that was restored from what another one knows, not settled yet.

    Args:
        graph: What stood in the store.
        judge: Becomes the new graph's.
        change: Called with each copy before it is restored, to undo what was not on disk yet.
        named: Returns what each depended on when it was stored; what is INVALID has forgotten it.
    """
    copy = judge.graph = MessageGraph(graph.group_id, judge)
    for old in sorted(graph.vertices.values(), key=lambda one: one.message_id):
        new = Vertex(
            bytes(bytearray(old.message_id)),
            old.timestamp,
            old.size_bytes,
            tuple(bytes(bytearray(one)) for one in named(old)),
            seq=old.seq,
            stored_ms=old.stored_ms,
            state=old.state,
            shared=old.shared,
            body_present=old.body_present,
            order=old.order,
            refusal=old.refusal,
        )
        change(new)
        copy.restore(new)
    return copy


def facts(graph):
    """Return all that the store keeps of a graph, by identifier."""
    return {
        one.message_id: (one.state, one.order, one.shared, one.body_present, one.refusal, set(one.dependencies))
        for one in graph.vertices.values()
    }
