"""Mesh topology: neighbours, connected components and cut servers of an undirected graph of servers.

``pipeline.transforms.mesh_topology`` passes MERK's linked nodes of one hour. A cut server is one whose loss splits its
component. Several reports of one link, in either direction, count as one link. A link from a server to itself is
ignored. Results are sorted by name, so the order of links does not matter.
"""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Place", "places"]


class Place(NamedTuple):
    """The position of one server."""

    server: str
    neighbours: tuple[str, ...]
    """Sorted."""
    component: str
    """The smallest server of its part."""
    component_size: int
    is_articulation: bool
    """Whether its loss would split that part."""

    @property
    def degree(self) -> int:
        """How many neighbours it has."""
        return len(self.neighbours)


def places(servers: Iterable[str], links: Iterable[tuple[str, str]]) -> list[Place]:
    """Return the place of every server, in order of names.

    Args:
        servers: Servers that are known otherwise; without a link they are alone.
        links: Pairs of servers.

    Cost: O(servers + links), and sorting them.
    """
    neighbours = _neighbours(servers, links)
    placed: dict[str, Place] = {}
    for start in neighbours:  # in order of names, so the first of a part is its smallest
        if start not in placed:
            members, cuts = _walk(start, neighbours)
            for server in members:
                placed[server] = Place(server, neighbours[server], start, len(members), server in cuts)
    return [placed[server] for server in neighbours]


def _neighbours(servers: Iterable[str], links: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    linked: dict[str, set[str]] = {server: set() for server in servers}
    for one, other in links:
        linked.setdefault(one, set())
        linked.setdefault(other, set())
        if one != other:
            linked[one].add(other)
            linked[other].add(one)
    return {server: tuple(sorted(linked[server])) for server in sorted(linked)}


def _walk(start: str, neighbours: dict[str, tuple[str, ...]]) -> tuple[list[str], set[str]]:
    """Return the servers of a part and those whose loss would split it: Tarjan's low points, without recursion.

    Depth first, each server gets a number; its low point is the smallest number that it or a server below it is
    linked with. A server is a cut when no link from below it leads above it.
    """
    number = {start: 0}
    low = {start: 0}
    cuts: set[str] = set()
    branches_of_start = 0
    way = [(start, iter(neighbours[start]))]
    while way:
        at, rest = way[-1]
        ahead = next(rest, None)
        if ahead is None:
            way.pop()
            if way:
                before = way[-1][0]
                low[before] = min(low[before], low[at])
                if before == start:
                    branches_of_start += 1
                elif low[at] >= number[before]:
                    cuts.add(before)
        elif ahead in number:
            low[at] = min(low[at], number[ahead])
        else:
            number[ahead] = low[ahead] = len(number)
            way.append((ahead, iter(neighbours[ahead])))
    if branches_of_start > 1:
        cuts.add(start)
    return list(number), cuts
