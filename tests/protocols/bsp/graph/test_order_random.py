"""Thousands of small random graphs: the graph of the device and the obviously right one say the same."""

import random

import pytest

from tests.protocols.bsp.build_graph import GROUP, facts, names, restored
from tests.protocols.bsp.graph_model import GraphModel, Told
from waystation.protocols.bsp.graph.order import MessageGraph, State, Vertex
from waystation.protocols.bsp.refusals import Refusal

GRAPHS = 100


class Pair:
    """A graph and its model, told the same; every difference is an error at once."""

    def __init__(self):
        self.model = GraphModel()
        self.asked = set()
        self.deleted = set()
        self.graph = MessageGraph(GROUP, self)

    def __call__(self, asked):
        """Be the client: never asked twice, and only about what the model says is ready."""
        told = self.model.told[asked.message_id]
        assert asked.message_id not in self.asked and not told.own
        assert all(self.graph.vertices[one].state is State.DELIVERED for one in told.dependencies)
        self.asked.add(asked.message_id)
        return told.valid

    def tell(self, told):
        """Place one message in both, and compare what that changes."""
        vertex = Vertex(told.message_id, told.timestamp, 100, told.dependencies)
        missing = set(told.dependencies) - self.model.outcome()[0]
        assert set(self.graph.missing(vertex)) == missing
        first_order = self.graph.next_order
        expected, fallen = self.model.tell(told)
        if not told.parses:
            changes = self.graph.place_invalid(vertex, Refusal.UNPARSABLE)
        else:
            changes = (self.graph.place_delivered if told.own else self.graph.place)(vertex)
        assert names(changes.delivered) == expected
        assert [one.order for one in changes.delivered] == list(range(first_order, self.graph.next_order))
        assert set(names(changes.invalidated)) == fallen and len(changes.invalidated) == len(fallen)
        assert not changes.shared

    def share(self, message_id):
        """Share one message in both, and compare what becomes shared and in which order."""
        newly = names(self.graph.share(self.graph.vertices[message_id]))
        assert set(newly) == self.model.share(message_id) and len(set(newly)) == len(newly)
        for place, one in enumerate(newly):
            assert not set(self.model.told[one].dependencies) & set(newly[place:])

    def delete(self, message_id):
        """Delete the body of a message; the model knows no bodies, so that nothing else may change."""
        self.graph.remove_body(self.graph.vertices[message_id])
        self.deleted.add(message_id)

    def compare(self):
        """Compare all that both know."""
        delivered, invalid = self.model.outcome()
        by_state = {state: set() for state in State}
        for one in self.graph.vertices.values():
            by_state[one.state].add(one.message_id)
            assert (one.order > 0) == (one.state is State.DELIVERED)
            assert (one.waits_for > 0) == (one.state is State.PENDING)
            assert (one.refusal is None) == (one.state is not State.INVALID)
            assert one.body_present == (one.refusal is None and one.message_id not in self.deleted)
        assert by_state == {
            State.UNKNOWN: set(),
            State.PENDING: self.model.pending(),
            State.DELIVERED: delivered,
            State.INVALID: invalid,
        }
        assert {one.message_id for one in self.graph.vertices.values() if one.shared} == self.model.shared()
        assert self.graph.pending_count == len(self.model.pending())
        assert self.graph.awaited_count == self.model.awaited_count()
        assert sorted(one.order for one in self.graph.vertices.values() if one.order) == list(
            range(1, len(delivered) + 1)
        )


def some_message(rng, name, others, model):
    """Return a message about which chance decides everything."""
    delivered, _ = model.outcome()
    count = rng.choice((0, 1, 1, 1, 2, 2, 3, 5))
    own = rng.random() < 0.1
    pool = sorted(delivered) if own else others
    dependencies = tuple(rng.choice(pool) for _ in range(count)) if pool else ()
    if rng.random() < 0.03 and not own:
        dependencies = (*dependencies, name)
    return Told(name, rng.randrange(4), dependencies, own or rng.random() > 0.06, rng.random() > 0.08, own)


def run(rng):
    """Drive one random graph to its end; return the pair."""
    pair = Pair()
    count = rng.randrange(2, 13)
    ids = [rng.randbytes(32) for _ in range(count + 2)]  # the last two never come
    backwards = rng.random()  # 0: dependencies come first; 1: last; between: any order, cycles too
    for place, name in enumerate(ids[:count]):
        others = ids[place + 1 :] if rng.random() < backwards else ids[:place]
        pair.tell(some_message(rng, name, others, pair.model))
        assert pair.graph.is_known(rng.choice(ids[: place + 1]))  # hence no duplicate reaches the graph
        delivered = sorted(pair.model.outcome()[0])
        if delivered and rng.random() < 0.3:
            pair.share(rng.choice(delivered))
        if delivered and rng.random() < 0.1:
            pair.delete(rng.choice(delivered))
        if rng.random() < 0.2:
            restart(pair, rng)
    pair.compare()
    return pair


def restart(pair, rng):
    """Restore the graph from what it knew, with the end of that not on disk yet, or all of it."""
    before = facts(pair.graph)
    shared = pair.model.shared()
    own_orders = [one.order for one in pair.graph.vertices.values() if pair.model.told[one.message_id].own]
    lost_from = rng.randint(max(own_orders, default=0) + 1, pair.graph.next_order)
    everything = rng.random() < 0.4

    def undoes(vertex):
        return vertex.refusal in (Refusal.INVALID_DEPENDENCY, Refusal.INVALID_IN_CONTEXT) or vertex.order >= lost_from

    def forget(vertex):
        if everything:
            return
        if undoes(vertex):
            vertex.state = rng.choice((State.PENDING, State.UNKNOWN))
            vertex.order, vertex.refusal, vertex.body_present = 0, None, vertex.message_id not in pair.deleted
            pair.asked.discard(vertex.message_id)
        vertex.shared = vertex.shared and vertex.order > 0 and rng.random() < 0.7

    def named(old):
        return old.dependencies if everything or not undoes(old) else pair.model.told[old.message_id].dependencies

    pair.graph = restored(pair.graph, pair, forget, named)
    half_shared = {one.message_id for one in pair.graph.vertices.values() if one.shared}
    changes = pair.graph.settle()
    now_shared = {one.message_id for one in pair.graph.vertices.values() if one.shared}
    assert set(names(changes.shared)) == now_shared - half_shared
    assert changes.shared == sorted(changes.shared, key=lambda one: one.order)
    assert all(set(pair.model.told[one].dependencies) <= now_shared for one in now_shared)
    if everything:
        assert facts(pair.graph) == before
        assert not (changes.delivered or changes.invalidated or changes.shared)
    for one in sorted(shared):
        pair.graph.share(pair.graph.vertices[one])
    pair.compare()


@pytest.mark.parametrize("seed", range(24))
def test_graph_agrees_with_its_model(seed):
    """States, delivery order, invalid and shared sets and counters are those of fixpoints computed from nothing."""
    rng = random.Random(f"bsp graph {seed}")

    pairs = [run(rng) for _ in range(GRAPHS)]

    assert len(pairs) == GRAPHS and any(pair.model.outcome()[0] for pair in pairs)


@pytest.mark.slow
def test_graph_agrees_with_its_model_for_long():
    """The same for 40,000 graphs."""
    rng = random.Random("bsp graph, long")

    seen = [len(run(rng).model.told) for _ in range(40_000)]

    assert min(seen) == 2 and max(seen) == 12


def test_random_graphs_reach_every_end():
    """Chance makes what the comparison is about: each state, each refusal, sharing, waiting and interrupted work."""
    rng = random.Random("bsp graph, ends")
    pairs = [run(rng) for _ in range(GRAPHS)]

    vertices = [one for pair in pairs for one in pair.graph.vertices.values()]

    assert {one.state for one in vertices} == {State.PENDING, State.DELIVERED, State.INVALID}
    assert {one.refusal for one in vertices} >= {
        Refusal.UNPARSABLE,
        Refusal.NAMES_ITSELF,
        Refusal.INVALID_DEPENDENCY,
        Refusal.INVALID_IN_CONTEXT,
    }
    assert any(one.shared for one in vertices) and any(pair.deleted for pair in pairs)
