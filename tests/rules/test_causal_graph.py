"""Groups as graphs, compared with walking every path."""

import itertools
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.relay import facts
from waystation.rules import causal_graph
from waystation.rules.causal_graph import Cause, Closure, close, converge_us

STATES = (("delivered", None), ("waiting", None), ("deleted", None), ("invalid", None))
STATES += (("invalid", "unparsable"), ("invalid", "invalid_dependency"))


def ref(number: int) -> bytes:
    """Return a reference; later numbers are greater."""
    return bytes([number]) * 16


def message(number: int, above: tuple[int, ...] = (), state: str = "delivered", reason: str | None = None):
    """Return a message by its number and those it depends on."""
    return ref(number), [ref(each) for each in above], state, reason


def drawn_edges(pairs, count: int, *, acyclic: bool) -> list[tuple[int, ...]]:
    """Return for each message what it depends on; numbers of ``count`` and more are never seen."""
    above: list[list[int]] = [[] for _ in range(count)]
    for below, on in pairs:
        if not acyclic or on >= count or on < below:
            above[below].append(on)
    return [tuple(each) for each in above]


@st.composite
def groups(draw, acyclic: bool = False):
    """Draw up to nine messages in any order, with dependencies on one another and on three unseen ones."""
    count = draw(st.integers(1, 9))
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count + 2)), max_size=24))
    states = draw(st.lists(st.sampled_from(STATES), min_size=count, max_size=count))
    edges = drawn_edges(pairs, count, acyclic=acyclic)
    return draw(st.permutations([message(at, edges[at], *states[at]) for at in range(count)]))


def reachable(of: dict, start: bytes) -> dict[bytes, int]:
    """Return everything that lies behind ``start`` with its distance, by looking again until nothing is new."""
    found = {start: 0}
    while True:
        more = {ref: found[at] + 1 for at in list(found) for ref in of.get(at, ()) if ref not in found}
        if not more:
            return found
        nearest = min(more.values())
        found |= {ref: steps for ref, steps in more.items() if steps == nearest}


def plain(messages) -> Closure:
    """Return the closure as its definition reads, in cubic time."""
    above = {ref: set(on) for ref, on, _, _ in messages}
    behind = {ref: reachable(above, ref) for ref in above}
    on_cycle = {ref for ref in above if any(ref in behind[each] for each in above[ref] & set(above))}
    core = {ref for ref in above if on_cycle & set(behind[ref]) and any(ref in behind[each] for each in on_cycle)}
    depths: dict[bytes, int] = {}
    while len(depths) < len(above):
        for ref, on in above.items():
            needed = [each for each in on if each in above and not (ref in core and each in core)]
            if all(each in depths for each in needed):
                depths[ref] = 1 + max((depths[each] for each in needed), default=0)
    both_ways: dict[bytes, set[bytes]] = {}
    for ref, on in above.items():
        both_ways.setdefault(ref, set()).update(on)
        for each in on:
            both_ways.setdefault(each, set()).add(ref)
    roots = {ref for ref, _, state, why in messages if state == "invalid" and why != "invalid_dependency"}
    nearest = {ref: min((steps, root) for root, steps in behind[ref].items() if root in roots) for ref in above
               if roots & set(behind[ref])}  # fmt: skip
    states = [state for _, _, state, _ in messages]
    return Closure(
        len(messages),
        states.count("delivered"),
        states.count("waiting"),
        len(roots),
        states.count("invalid") - len(roots),
        states.count("deleted"),
        len({each for on in above.values() for each in on} - set(above)),
        max(depths.values()),
        len({frozenset(reachable(both_ways, ref)) for ref in both_ways}),
        sum(s == "delivered" and not any(r in on for on in above.values()) for r, _, s, _ in messages),
        [Cause(r, nearest[r][1], nearest[r][0]) for r, _, s, _ in messages if s == "invalid" and r in nearest],
    )


@given(groups(acyclic=True))
def test_group_is_what_every_path_says(messages) -> None:
    """Without cycles, all counts and causes are those of the definition."""
    assert close(messages) == plain(messages)


@given(groups())
def test_cycles_only_cost_their_own_edges(messages) -> None:
    """With cycles of any kind, a message on itself included, everything ends and only their edges do not deepen."""
    assert close(messages) == plain(messages)


@given(groups(), st.randoms())
def test_order_means_nothing(messages, rng) -> None:
    """The same messages in another order give the same counts and the same causes."""
    first = close(messages)
    shuffled = [(ref, rng.sample(on, len(on)), state, why) for ref, on, state, why in messages]
    rng.shuffle(shuffled)
    second = close(shuffled)

    assert sorted(second.causes) == sorted(first.causes)
    assert second[:-1] == first[:-1]


def test_nearest_root_wins_and_then_the_smallest() -> None:
    """Two steps to a greater root beat three to a smaller one; at equal distance the smaller root is named."""
    roots = [message(number, (), "invalid", "unparsable") for number in (9, 8, 7)]
    fallen = ("invalid", "invalid_dependency")
    between = [message(1, (9, 8), *fallen), message(2, (7,), *fallen), message(3, (2,), *fallen)]
    causes = {cause.ref: cause for cause in close([message(4, (3, 1), *fallen), *between, *roots]).causes}

    assert causes[ref(1)] == Cause(ref(1), ref(8), 1)
    assert causes[ref(4)] == Cause(ref(4), ref(8), 2)
    assert causes[ref(9)] == Cause(ref(9), ref(9), 0)


def test_what_waits_for_an_invalid_message_waits() -> None:
    """A state is what was recorded: a message that depends on an invalid one has no cause while it is not invalid."""
    closed = close([message(1, (), "invalid", "unparsable"), message(2, (1,), "waiting")])

    assert (closed.n_waiting, closed.n_invalid_transitive, len(closed.causes)) == (1, 0, 1)


def test_unknown_root_gives_no_cause() -> None:
    """A message that fell for one that nobody has seen is counted, and blames nobody."""
    closed = close([message(1, (5,), "invalid", "invalid_dependency")])

    assert (closed.n_invalid_root, closed.n_invalid_transitive, closed.missing_deps, closed.causes) == (0, 1, 1, [])


def test_unseen_dependency_joins() -> None:
    """Two messages that depend on the same unseen one are one part, and their chain begins with themselves."""
    closed = close([message(1, (5,)), message(2, (5,)), message(3)])

    assert (closed.n_components, closed.missing_deps, closed.depth, closed.fork_width) == (2, 1, 1, 3)


def test_no_messages_are_no_group() -> None:
    """An empty group has zero of everything."""
    assert close([]) == Closure(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [])


@pytest.mark.parametrize("cycle", [False, True], ids=["chain", "ring"])
def test_long_chains_need_no_stack(cycle: bool) -> None:
    """A chain or a ring of 20,000 messages is walked without recursion, in time that grows with its length."""
    refs = [number.to_bytes(16, "big") for number in range(20_000)]
    fallen = ("invalid", "invalid_dependency")
    chain = [(at, [before], *fallen) for before, at in itertools.pairwise(refs)]
    begun = time.process_time()
    closed = close([(refs[0], [refs[-1]] if cycle else [], "invalid", "unparsable"), *chain])

    assert closed.depth == (1 if cycle else 20_000)
    assert closed.causes[-1] == Cause(refs[-1], refs[0], 19_999)
    assert time.process_time() - begun < 5


def test_words_are_those_of_the_protocol() -> None:
    """States and the reason are spelled as nodes record them."""
    for name in ("DELETED", "DELIVERED", "INVALID", "WAITING"):
        assert getattr(causal_graph, name) == getattr(facts, name)
    assert Refusal.INVALID_DEPENDENCY.value == causal_graph.INVALID_DEPENDENCY


def test_slowest_peer_is_what_counts() -> None:
    """Convergence is the longest wait; words from before storing count 0, and unknown messages for nothing."""
    stored = {ref(1): 100, ref(2): 500}

    assert converge_us(stored, [(ref(1), 150), (ref(1), 900), (ref(2), 600), (ref(3), 10**9)]) == 800
    assert converge_us(stored, [(ref(2), 100)]) == 0
    assert converge_us(stored, [(ref(3), 100)]) is None
    assert converge_us(stored, []) is None


def test_states_are_counted_once_each() -> None:
    """Whatever the states, the counts add up to the messages."""
    rng = random.Random(5)
    closed = close([message(number, (), *rng.choice(STATES)) for number in range(200)])
    parts = (closed.n_delivered, closed.n_waiting, closed.n_invalid_root, closed.n_invalid_transitive, closed.n_deleted)

    assert sum(parts) == closed.n_messages == 200
