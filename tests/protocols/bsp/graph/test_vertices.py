"""What is remembered of a message."""

from waystation.protocols.bsp.graph.vertices import Changes, State, Vertex


def test_states_are_what_the_store_keeps():
    """The numbers of states stand in databases and never change."""
    assert {state.name: int(state) for state in State} == {"UNKNOWN": 0, "PENDING": 1, "DELIVERED": 2, "INVALID": 3}


def test_new_vertex_is_nobodys():
    """A vertex that was only received is unknown, unshared, undelivered, and has no place in a table yet."""
    new = Vertex(bytes(32), 7, 5)

    assert (new.state, new.order, new.seq, new.stored_ms, new.waits_for) == (State.UNKNOWN, 0, -1, 0, 0)
    assert (new.shared, new.body_present, new.refusal, new.dependencies) == (False, True, None, ())
    assert (new.message_id, new.timestamp, new.size_bytes) == (bytes(32), 7, 5)


def test_vertex_holds_nothing_else():
    """A vertex has no dictionary: there may be a million of them."""
    assert not hasattr(Vertex(bytes(32), 0, 0), "__dict__")


def test_repeated_dependencies_are_one():
    """Identifiers keep the body's order; one that stands there again is left out."""
    one, two = bytes([1]) * 32, bytes([2]) * 32

    assert Vertex(bytes(32), 0, 0, (two, one, two, two, one)).dependencies == (two, one)


def test_what_it_rests_on_names_its_dependencies():
    """A vertex that rests on others tells their identifiers, and holds none of its own."""
    below = [Vertex(bytes([number]) * 32, 0, 0) for number in (2, 1)]
    above = Vertex(bytes(32), 0, 0, tuple(bytes([number]) * 32 for number in (2, 1)))

    above.depend_on(tuple(below))

    assert above.above == tuple(below)
    assert all(name is one.message_id for name, one in zip(above.dependencies, below, strict=True))


def test_changes_begin_empty():
    """Two calls report into lists of their own."""
    one, two = Changes(), Changes()

    one.delivered.append(Vertex(bytes(32), 0, 0))

    assert (two.delivered, two.invalidated, two.shared) == ([], [], [])
