"""Who waits for whom."""

import random
import sys

from tests.protocols.bsp.build_graph import name_of, vertex
from waystation.protocols.bsp.graph.waiting import Waiting

ONE, TWO, THREE = (vertex(label) for label in range(3))
ABSENT, OTHER = name_of("absent"), name_of("other")


def test_taken_in_the_order_they_came():
    """All that waited are returned once, first come first."""
    waiting = Waiting()
    for one in (TWO, ONE, THREE, TWO):
        waiting.add(ABSENT, one)

    taken = list(waiting.take(ABSENT))

    assert taken == [TWO, ONE, THREE]
    assert list(waiting.take(ABSENT)) == [] and len(waiting) == 0


def test_one_alone_and_removed():
    """One that waits alone is forgotten with its identifier; whoever does not wait cannot be removed."""
    waiting = Waiting()
    waiting.add(ABSENT, ONE)
    waiting.add(ABSENT, ONE)

    waiting.remove(ABSENT, TWO)
    waiting.remove(OTHER, ONE)
    before = len(waiting)
    waiting.remove(ABSENT, ONE)

    assert (before, len(waiting)) == (1, 0)


def test_emptied_one_by_one():
    """Of two that wait for the same, removing both forgets the identifier, and taking the last frees all room."""
    waiting = Waiting()
    for number in range(1_000):
        waiting.add(name_of(number), ONE)
        waiting.add(name_of(number), TWO)

    for number in range(999):
        waiting.remove(name_of(number), ONE)
        waiting.remove(name_of(number), TWO)
    before = len(waiting), sys.getsizeof(waiting._waiters)
    waiting.take(name_of(999))

    assert before[0] == 1 and before[1] > 30_000
    assert sys.getsizeof(waiting._waiters) < 100


def test_identifiers_are_kept_apart():
    """One vertex may wait for two; taking one leaves the other."""
    waiting = Waiting()
    waiting.add(ABSENT, ONE)
    waiting.add(OTHER, ONE)

    taken = list(waiting.take(ABSENT))

    assert taken == [ONE] and list(waiting.take(OTHER)) == [ONE]


def test_agrees_with_lists():
    """A thousand random steps are those of plain lists in a dictionary."""
    rng = random.Random("waiting")
    waiting, plain = Waiting(), {}
    vertices = [vertex(number) for number in range(6)]
    ids = [name_of(number) for number in range(4)]

    for _ in range(1_000):
        name, one = rng.choice(ids), rng.choice(vertices)
        listed = plain.setdefault(name, [])
        step = rng.random()
        if step < 0.5:
            waiting.add(name, one)
            listed += [one] if one not in listed else []
        elif step < 0.85:
            waiting.remove(name, one)
            plain[name] = [other for other in listed if other is not one]
        else:
            assert list(waiting.take(name)) == plain.pop(name)
        assert len(waiting) == sum(1 for names in plain.values() if names)

    assert any(plain.values())
