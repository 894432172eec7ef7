"""Draws connected graphs (line, ring, star, random) that define which nodes are configured to dial each other.

The plans of Bhumi and MERK take its edges (pairs of node numbers). A connected graph is needed, since parts that nobody
joins could not find each other.
"""

import random
from typing import Final

__all__ = ["TOPOLOGIES", "edges_of"]

TOPOLOGIES: Final = ("line", "ring", "star", "random")


def edges_of(topology: str, nodes: int, rng: random.Random) -> list[tuple[int, int]]:
    """Return who has whom among its configured peers; whatever is drawn, the graph is connected.

    Args:
        topology: One of ``TOPOLOGIES``.
        nodes: At least 1.
        rng: Draws the direction of each edge, and the edges of ``random``.
    """
    if topology == "star":
        edges = [(0, node) for node in range(1, nodes)]
    elif topology == "random":
        edges = [(rng.randrange(node), node) for node in range(1, nodes)]
        extra = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(nodes // 2)]
        edges += [(one, other) for one, other in extra if one != other]
    else:
        edges = [(node - 1, node) for node in range(1, nodes)]
        if topology == "ring" and nodes > 2:
            edges.append((nodes - 1, 0))
    return [edge if rng.random() < 1 / 2 else edge[::-1] for edge in dict.fromkeys(edges)]
