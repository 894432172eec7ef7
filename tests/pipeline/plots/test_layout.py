"""Places of servers in a drawing."""

import itertools
import math

from waystation.pipeline.plots.layout import places


def graph_of(*links: tuple[str, str], alone: str = "") -> dict[str, set[str]]:
    """Return a graph with links both ways, and servers without any."""
    graph: dict[str, set[str]] = {name: set() for name in alone}
    for one, other in links:
        graph.setdefault(one, set()).add(other)
        graph.setdefault(other, set()).add(one)
    return graph


def test_nobody_stands_on_another() -> None:
    """Sixty servers in a ring, a star and alone keep apart."""
    ring = [(f"r{n}", f"r{(n + 1) % 30}") for n in range(30)]
    star = [("s", f"s{n}") for n in range(20)]
    at = places(graph_of(*ring, *star, alone="abcdefghi"), 1.8)

    assert len(at) == 30 + 21 + 9
    assert min(math.dist(one, other) for one, other in itertools.combinations(at.values(), 2)) > 0.2


def test_same_graph_gives_the_same_places() -> None:
    """Nothing is drawn by lot, and the order of the servers does not matter."""
    graph = graph_of(("a", "b"), ("b", "c"), ("x", "y"))

    assert places(graph, 1.0) == places(dict(reversed(graph.items())), 1.0)


def test_links_to_nobody_are_left_out() -> None:
    """A neighbour that is not drawn, and a server linked with itself, do no harm."""
    at = places({"a": {"b", "gone", "a"}, "b": {"a"}}, 1.0)

    assert set(at) == {"a", "b"}
    assert all(math.isfinite(number) for place in at.values() for number in place)


def test_wide_drawings_put_parts_side_by_side() -> None:
    """Three equal parts stand in one row when there is room, below each other when there is none."""
    graph = graph_of(*((f"{part}{a}", f"{part}{b}") for part in "xyz" for a, b in itertools.combinations(range(4), 2)))
    spread = {}
    for aspect in (4.0, 0.1):
        at = places(graph, aspect)
        spread[aspect] = [max(side) - min(side) for side in zip(*at.values(), strict=True)]

    assert spread[4.0][0] > 2 * spread[4.0][1]
    assert spread[0.1][1] > 2 * spread[0.1][0]
