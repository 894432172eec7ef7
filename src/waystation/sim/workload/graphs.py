"""Computes facts about small graphs by brute force, as a reference for the pipeline's faster algorithms.

``groups`` and ``truth`` call it. Slow and plain on purpose: it shares no code with ``rules``, so that a mistake there
shows.
"""

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["articulation_points", "components", "depth_of", "parts_of"]


def components(links: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the parts of a graph, each sorted, by their smallest member."""
    part: dict[str, set[str]] = {}
    for one, other in links:
        joined = part.get(one, {one}) | part.get(other, {other})
        part |= dict.fromkeys(joined, joined)
    return [list(members) for members in sorted({tuple(sorted(members)) for members in part.values()})]


def articulation_points(links: Sequence[tuple[str, str]]) -> list[str]:
    """Return whose loss leaves more parts than there are, tried one by one."""
    members = sorted({end for link in links for end in link})
    return [each for each in members if _splits(each, links)]


def depth_of(dependencies: Mapping[int, Sequence[int]]) -> int:
    """Return the longest chain of known messages; keys come after what they depend on."""
    depths: dict[int, int] = {}
    for message, above in dependencies.items():
        depths[message] = 1 + max((depths.get(each, 0) for each in above), default=0)
    return max(depths.values(), default=0)


def parts_of(dependencies: Mapping[int, Sequence[int]]) -> int:
    """Return how many parts the known messages fall into."""
    part = {message: message for message in dependencies}
    for message, above in dependencies.items():
        for each in above:
            if each in part:
                part[_root(part, each)] = _root(part, message)
    return sum(message == its for message, its in part.items())


def _root(part: dict[int, int], message: int) -> int:
    while part[message] != message:
        part[message] = part[part[message]]
        message = part[message]
    return message


def _splits(lost: str, links: Sequence[tuple[str, str]]) -> bool:
    own = next(members for members in components(links) if lost in members)
    left = [link for link in links if lost not in link and link[0] in own]
    found = components(left)
    alone = len(own) - 1 - sum(map(len, found))
    return len(found) + alone > 1
