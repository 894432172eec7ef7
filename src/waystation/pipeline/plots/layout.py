"""Graph layout of the mesh plot: force-directed within each component, components side by side.

``plots.mesh`` passes the servers and their links and gets a position for each. The layout is deterministic: the same
graph gives the same positions.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

__all__ = ["places"]

_ROUNDS: Final = 200
_UNIT: Final = 0.9
"""Room of one server."""
_GAP: Final = 1.3
"""Around each part."""
_SLACK: Final = 1.25
"""How much wider than its area asks for a row may become."""


def places(graph: Mapping[str, AbstractSet[str]], aspect: float) -> dict[str, tuple[float, float]]:
    """Return x and y of each server.

    Args:
        graph: Server to its neighbours, both ways; neighbours that are no key are left out.
        aspect: Width of the drawing by its height.

    Cost: O(rounds * servers^2); the caller bounds the servers.
    """
    parts = _parts(graph)
    shapes = [_springs(part, graph) * _UNIT * math.sqrt(len(part)) for part in parts]
    sizes = [tuple(float(side) + _GAP for side in shape.max(axis=0) - shape.min(axis=0)) for shape in shapes]
    placed: dict[str, tuple[float, float]] = {}
    for part, shape, (x, y) in zip(parts, shapes, _shelves(sizes, aspect), strict=True):
        for server, (dx, dy) in zip(part, shape, strict=True):
            placed[server] = (x + float(dx), y + float(dy))
    return placed


def _parts(graph: Mapping[str, AbstractSet[str]]) -> list[list[str]]:
    """Return the servers of each part, sorted, the largest part first."""
    left, parts = set(graph), []
    for start in sorted(graph):
        if start in left:
            part, edge = {start}, [start]
            while edge:
                new = {other for other in graph[edge.pop()] if other in graph} - part
                part |= new
                edge += new
            left -= part
            parts.append(sorted(part))
    return sorted(parts, key=lambda part: (-len(part), part[0]))


def _shelves(sizes: Sequence[tuple[float, ...]], aspect: float) -> list[tuple[float, float]]:
    """Return the centres of rectangles that are put side by side, row below row."""
    area = sum(width * height for width, height in sizes)
    most = max(math.sqrt(area * aspect), *(width for width, _ in sizes))
    centres, x, y, deepest = [], 0.0, 0.0, 0.0
    for width, height in sizes:
        if x and x + width > most * _SLACK:
            x, y, deepest = 0.0, y - deepest, 0.0
        deepest = max(deepest, height)
        centres.append((x + width / 2, y - height / 2))
        x += width
    return centres


def _springs(part: Sequence[str], graph: Mapping[str, AbstractSet[str]]) -> Any:
    """Return places within the unit circle, after Fruchterman and Reingold, begun as an even circle."""
    import numpy as np  # noqa: PLC0415 - part of an extra

    count = len(part)
    if count == 1:
        return np.zeros((1, 2))
    angles = 2 * np.pi * np.arange(count) / count
    at = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    index = {server: number for number, server in enumerate(part)}
    linked = np.zeros((count, count))
    for server in part:
        for other in graph[server]:
            if other in index and other != server:
                linked[index[server], index[other]] = linked[index[other], index[server]] = 1
    ideal = 1.3 / math.sqrt(count)
    for step in range(_ROUNDS):
        apart = at[:, None, :] - at[None, :, :]
        distance = np.maximum(np.linalg.norm(apart, axis=2), 0.01)
        force = ideal**2 / distance - linked * distance**2 / ideal
        move = (apart * (force / distance)[:, :, None]).sum(axis=1) - 0.1 * at
        length = np.maximum(np.linalg.norm(move, axis=1), 1e-9)
        limit = 0.2 * (1 - step / _ROUNDS)
        at += move * (np.minimum(length, limit) / length)[:, None]
    at = at - at.mean(axis=0)
    # Lying down: the page is wider than high.
    _, axes = np.linalg.eigh(at.T @ at)
    at = at @ axes[:, ::-1]
    at -= (at.max(axis=0) + at.min(axis=0)) / 2
    return at / np.maximum(np.linalg.norm(at, axis=1).max(), 1e-9)
