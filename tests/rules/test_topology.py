"""Graphs of servers, compared with taking each server out."""

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from waystation.rules.topology import Place, places

SERVERS = "abcdefgh"
LINKS = st.lists(st.tuples(st.sampled_from(SERVERS), st.sampled_from(SERVERS)), max_size=14)


def part_of(start: str, linked: dict[str, set[str]], without: str | None = None) -> frozenset[str]:
    """Return what can be reached, by looking again until nothing is new."""
    found = {start}
    while True:
        more = {other for one in found for other in linked[one]} - found - {without}
        if not more:
            return frozenset(found)
        found |= more


def plain(servers, links) -> list[Place]:
    """Return the places as their definition reads."""
    names = sorted({*servers, *(server for link in links for server in link)})
    linked = {name: {a if b == name else b for a, b in links if name in (a, b)} - {name} for name in names}
    placed = []
    for name in names:
        part = part_of(name, linked)
        rest = {part_of(other, linked, without=name) for other in part - {name}}
        placed.append(Place(name, tuple(sorted(linked[name])), min(part), len(part), len(rest) > 1))
    return placed


@given(st.sets(st.sampled_from(SERVERS)), LINKS)
def test_places_are_what_removal_shows(servers, links) -> None:
    """Parts, neighbours and cuts are those found by taking out one server after the other."""
    assert places(servers, links) == plain(servers, links)


@given(LINKS, st.randoms())
def test_order_and_direction_mean_nothing(links, rng) -> None:
    """Shuffled, turned round and doubled links give the same places."""
    turned = [rng.choice([(one, other), (other, one)]) for one, other in links + links]
    rng.shuffle(turned)

    assert places((), turned) == places((), links)


def test_middle_of_a_chain_is_a_cut_and_a_ring_has_none() -> None:
    """In a chain every inner server splits it; closing it to a ring leaves none; a star has its centre."""
    chain = [("a", "b"), ("b", "c"), ("c", "d")]

    assert [place.server for place in places((), chain) if place.is_articulation] == ["b", "c"]
    assert not any(place.is_articulation for place in places((), [*chain, ("d", "a")]))
    assert [place.server for place in places((), [("m", "a"), ("m", "z")]) if place.is_articulation] == ["m"]


def test_server_alone_has_a_place() -> None:
    """A server without links is a part of its own, and so is one that is only linked with itself."""
    assert places(["z"], [("a", "a")]) == [Place("a", (), "a", 1, False), Place("z", (), "z", 1, False)]
    assert [place.degree for place in places(["z"], [("a", "b")])] == [1, 1, 0]


def test_long_chains_need_no_stack() -> None:
    """A chain of 20,000 servers is walked without recursion, in time that grows with its length."""
    names = [f"{number:016x}" for number in range(20_000)]
    begun = time.process_time()
    found = places((), list(itertools.pairwise(names)))

    assert [place.is_articulation for place in found] == [False, *[True] * 19_998, False]
    assert time.process_time() - begun < 5
