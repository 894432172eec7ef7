"""Dependency graph of one BSP group (message group that devices synchronise): depth, components and invalid messages.

``pipeline.transforms.bsp_groups`` passes the recorded messages of a group and writes the result as one row. Message ids
are hashes that cover the dependencies, so a valid group has no cycles. Recorded rows may be wrong or forged, so cycles
are tolerated. No function recurses; each is linear in messages and dependencies.

Edges on a cycle, or between two cycles, do not count for the depth of a group. They count for every other result. A
dependency on an unknown message does not count as a message, but it connects the messages that depend on it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

__all__ = ["DELETED", "DELIVERED", "INVALID", "INVALID_DEPENDENCY", "WAITING", "Cause", "Closure", "Message"]
__all__ += ["close", "converge_us"]

DELETED: Final = "deleted"
DELIVERED: Final = "delivered"
INVALID: Final = "invalid"
WAITING: Final = "waiting"
INVALID_DEPENDENCY: Final = "invalid_dependency"
"""The reason of a message that is invalid because of another; every other reason, or none, makes it a root."""

Message: TypeAlias = tuple[bytes, Sequence[bytes], str, str | None]
"""Its reference, the references it depends on, its state, and why it is invalid."""


class Cause(NamedTuple):
    """Why one message is invalid."""

    ref: bytes
    root: bytes
    """The nearest message that is invalid by itself; of several the smallest."""
    distance: int
    """Dependencies between the two; 0 for a root."""


class Closure(NamedTuple):
    """What is known of one group; the names are the columns of ``gold.bsp_groups``."""

    n_messages: int
    n_delivered: int
    n_waiting: int
    n_invalid_root: int
    n_invalid_transitive: int
    n_deleted: int
    missing_deps: int
    depth: int
    n_components: int
    fork_width: int
    causes: list[Cause]
    """One for each invalid message whose root is known, in the order of the messages."""


def close(messages: Sequence[Message]) -> Closure:
    """Return what follows from the messages of one group.

    A message that is recorded as waiting counts as waiting, whatever it depends on. One that is invalid because of
    another has no cause when no root is among what it depends on, as when the root's reference was made with another
    week's key.

    Args:
        messages: Each reference once; the order means nothing but the order of ``causes``.

    Cost: O(messages + dependencies).
    """
    count = len(messages)
    index = dict(zip([message[0] for message in messages], range(count), strict=True))
    assert len(index) == count
    parents = _parents(messages, index)
    children = _children(parents, count)
    depth, pending = _peel(children, [_known(above, count) for above in parents])
    if any(pending):
        depth = _depth_without_cycles(parents, children, pending)
    states = [message[2] for message in messages]
    roots = [at for at in range(count) if states[at] == INVALID and messages[at][3] != INVALID_DEPENDENCY]
    n_invalid = states.count(INVALID)
    return Closure(
        count,
        states.count(DELIVERED),
        states.count(WAITING),
        len(roots),
        n_invalid - len(roots),
        states.count(DELETED),
        len(index) - count,
        depth,
        _components_count(parents, len(index)),
        sum(1 for at in range(count) if states[at] == DELIVERED and not children[at]),
        _causes(messages, children, roots) if roots else [],
    )


def converge_us(stored: Mapping[bytes, int], held: Iterable[tuple[bytes, int]]) -> int | None:
    """Return the longest time from storing a message to a peer's report that it holds it, None without one.

    A peer that reported so before the message was stored counts as 0: it is where the message came from.

    Args:
        stored: When each message was stored, microseconds.
        held: Message, and when one peer first reported that it holds it.
    """
    return max((max(at - stored[ref], 0) for ref, at in held if ref in stored), default=None)


def _parents(messages: Sequence[Message], index: dict[bytes, int]) -> list[list[int]]:
    """Return what each message depends on, by number; ``index`` gains a number for each unknown message."""
    number = index.setdefault
    return [[number(ref, len(index)) for ref in message[1]] for message in messages]


def _known(above: list[int], count: int) -> int:
    """Return how many of these numbers are messages that were seen."""
    return len(above) if not above or max(above) < count else sum(1 for each in above if each < count)


def _children(parents: list[list[int]], count: int) -> list[list[int]]:
    """Return the messages that depend on each that was seen."""
    children: list[list[int]] = [[] for _ in range(count)]
    for at, above in enumerate(parents):
        for each in above:
            if each < count:
                children[each].append(at)
    return children


def _peel(edges: list[list[int]], pending: list[int]) -> tuple[int, list[int]]:
    """Remove what nothing is pending for, pass by pass; return the passes and what is left pending.

    Args:
        edges: For each number those that it is pending for.
        pending: How many edges lead to each; changed.
    """
    passes = 0
    free = [at for at, open_count in enumerate(pending) if not open_count]
    while free:
        passes += 1
        freed = []
        for at in free:
            for below in edges[at]:
                pending[below] -= 1
                if not pending[below]:
                    freed.append(below)
        free = freed
    return passes, pending


def _depth_without_cycles(parents: list[list[int]], children: list[list[int]], pending: list[int]) -> int:
    """Return the depth when edges on and between cycles are left out.

    What is left after peeling from both ends lies on a cycle or between two. ``pending`` is what peeling in the
    direction of ``children`` has left.
    """
    count = len(children)
    left = [at for at in range(count) if pending[at]]
    upwards = [
        [each for each in parents[at] if each < count and pending[each]] if pending[at] else [] for at in range(count)
    ]
    leading_off = [0] * count
    for at in left:
        for each in upwards[at]:
            leading_off[each] += 1
    _, cyclic = _peel(upwards, leading_off)
    edges = [[each for each in children[at] if not (cyclic[at] and cyclic[each])] for at in range(count)]
    leading_to = [0] * count
    for targets in edges:
        for each in targets:
            leading_to[each] += 1
    return _peel(edges, leading_to)[0]


def _components_count(parents: list[list[int]], count: int) -> int:
    """Return how many parts ``count`` numbers fall into; union-find with halved paths."""
    over = list(range(count))
    parts = count
    for at, above in enumerate(parents):
        for each in above:
            one, other = at, each
            while over[one] != one:
                over[one] = one = over[over[one]]
            while over[other] != other:
                over[other] = other = over[over[other]]
            if one != other:
                over[one] = other
                parts -= 1
    return parts


def _causes(messages: Sequence[Message], children: list[list[int]], roots: list[int]) -> list[Cause]:
    """Walk away from all roots at once; the first one reached is nearest."""
    root_of = {at: messages[at][0] for at in roots}
    distance_of = dict.fromkeys(roots, 0)
    front, distance = roots, 0
    while front:
        distance += 1
        reached = []
        for at in front:
            root = root_of[at]
            for below in children[at]:
                known = distance_of.setdefault(below, distance)
                if below not in root_of:
                    root_of[below] = root
                    reached.append(below)
                elif known == distance and root < root_of[below]:
                    root_of[below] = root
        front = reached
    return [
        Cause(message[0], root_of[at], distance_of[at])
        for at, message in enumerate(messages)
        if message[2] == INVALID and at in root_of
    ]
