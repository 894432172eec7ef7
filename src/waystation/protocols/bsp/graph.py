"""The messages of one group, ordered by what they depend on. Spec: seed 5, bsp 4.

A vertex is placed once, in whatever order messages arrive. It waits (PENDING) until every dependency is DELIVERED,
is then judged in the context of them, and becomes DELIVERED or INVALID for ever. INVALID spreads to all that depend on
it, now or later; so no delivered vertex ever depends on one that is not, and nothing delivered is taken back::

    UNKNOWN -> PENDING | DELIVERED | INVALID        PENDING -> DELIVERED | INVALID

Delivery numbers (``Vertex.order``) are 1, 2, 3...: a vertex has a greater one than each of its dependencies. Of those
that are ready at the same time the smallest (timestamp, identifier) goes first. Sharing spreads the other way, from a
vertex to all that it depends on. Deletion takes a body and changes nothing here.

Identifiers are unique among groups, hence a dependency in another group is one that never comes (BSP-D12), and a cycle
would need a hash that names itself. The graph holds no body and knows no peer, store or clock: its owner writes down
what each call reports.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import Final

from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.vertices import Changes, State, Vertex
from waystation.protocols.bsp.waiting import Waiting

__all__ = ["AWAITED_MAX", "DEPENDENCIES_MAX", "PENDING_MAX", "Changes", "MessageGraph", "State", "Vertex"]

DEPENDENCIES_MAX: Final = 64
"""Of one message (bsp 4); more make it INVALID."""
PENDING_MAX: Final = 100_000
"""PENDING vertices of one group (bsp 4); more are refused without acknowledgement and come again."""
AWAITED_MAX: Final = 4 * PENDING_MAX
"""Undelivered dependencies of all PENDING vertices of one group. Without it 100,000 small messages that name 64 absent
ones each would take more than a gigabyte (BSP-AWAITED)."""


class MessageGraph:
    """All messages of one group that this device has heard of.

    Attributes:
        group_id: 32 bytes.
        vertices: Every vertex by identifier, in the order placed; read it, never write it.
        pending_count: How many are PENDING.
        awaited_count: How many dependencies these wait for, one counted as often as it is waited for.
        next_order: Delivery number of the next to be delivered, from 1.
    """

    def __init__(self, group_id: bytes, judge: Callable[[Vertex], bool]) -> None:
        """Make an empty graph.

        Args:
            group_id: 32 bytes.
            judge: Says whether a vertex is valid in the context of its dependencies. Called once for a vertex, when
                all of them are DELIVERED; must neither raise nor call the graph.
        """
        self.group_id = group_id
        self.vertices: dict[bytes, Vertex] = {}
        self.pending_count = 0
        self.awaited_count = 0
        self.next_order = 1
        self._judge = judge
        self._waiting = Waiting()
        self._unsettled: list[Vertex] | None = None

    def place(self, vertex: Vertex) -> Changes:
        """Put in a message that was parsed, and deliver or invalidate whatever that decides.

        Args:
            vertex: New here, UNKNOWN, with at most ``DEPENDENCIES_MAX`` different dependencies.

        Cost: O(dependencies), and as much again for each vertex that changes.
        """
        self._add(vertex)
        changes = Changes()
        if self._await(vertex, changes):
            self._deliver_all([_ready(vertex)], changes)
        return changes

    def place_invalid(self, vertex: Vertex, refusal: Refusal) -> Changes:
        """Put in a message that cannot be parsed: it is INVALID, and so is all that waited for it."""
        self._add(vertex)
        changes = Changes()
        self._invalidate(vertex, refusal, changes)
        return changes

    def place_delivered(self, vertex: Vertex) -> Changes:
        """Put in a message of our own: it is DELIVERED without judging, first in ``Changes.delivered``.

        Args:
            vertex: New here, UNKNOWN; every dependency is DELIVERED.
        """
        self._add(vertex)
        assert not self.missing(vertex)
        changes = Changes()
        ready = self._deliver(vertex, changes)
        heapify(ready)
        self._deliver_all(ready, changes)
        return changes

    def restore(self, vertex: Vertex) -> None:
        """Put in a message as the store has kept it, in any order; ``settle`` must follow before anything else."""
        assert vertex.message_id not in self.vertices
        if self._unsettled is None:
            self._unsettled = []
        self.vertices[vertex.message_id] = vertex
        if vertex.state is State.DELIVERED:
            assert vertex.order > 0
            self.next_order = max(self.next_order, vertex.order + 1)
        elif vertex.state is not State.INVALID:
            self._unsettled.append(vertex)

    def settle(self) -> Changes:
        """Finish what an end between two commits has left half done; call it once, after the last ``restore``.

        UNKNOWN and PENDING vertices are looked at again, those whose dependencies are there are judged, and what a
        shared vertex depends on is shared (bsp 4, "On start").

        Cost: O(vertices and dependencies).
        """
        changes = Changes()
        unsettled, self._unsettled = self._unsettled or [], None
        for vertex in self.vertices.values():
            if vertex.state is State.DELIVERED:
                self._rest(vertex)
        for vertex in unsettled:
            vertex.state = State.UNKNOWN
        ready = [_ready(vertex) for vertex in unsettled if self._await(vertex, changes)]
        heapify(ready)
        self._deliver_all(ready, changes)
        changes.shared = _spread([vertex for vertex in self.vertices.values() if vertex.shared])
        return changes

    def share(self, vertex: Vertex) -> list[Vertex]:
        """Share a DELIVERED vertex and all that it depends on.

        Returns:
            Those that were not shared before, dependencies first; empty when it was shared already.

        Cost: O(newly shared vertices and their dependencies), and sorting the former.
        """
        assert vertex.state is State.DELIVERED
        assert self._unsettled is None, "restore without settle"
        if vertex.shared:
            return []
        vertex.shared = True
        newly = _spread([vertex]) if vertex.above else []
        newly.append(vertex)  # The last to be delivered of all of them.
        return newly

    def remove_body(self, vertex: Vertex) -> None:
        """Note that a body was deleted; the place of the message in the graph stays."""
        vertex.body_present = False

    def missing(self, vertex: Vertex) -> list[bytes]:
        """Return the dependencies of a vertex, placed or not, that are not delivered."""
        known = self.vertices.get
        missing = []
        for name in vertex.dependencies:
            other = known(name)
            if other is None or other.state is not State.DELIVERED:
                missing.append(name)
        return missing

    def is_known(self, message_id: bytes) -> bool:
        """Say whether a message was placed here, in whatever state it is now."""
        return message_id in self.vertices

    def has_room(self, vertex: Vertex) -> bool:
        """Say whether a vertex that is not placed yet may be: False when it would wait and too many do already."""
        if self.pending_count < PENDING_MAX and self.awaited_count <= AWAITED_MAX - DEPENDENCIES_MAX:
            return True
        return not self.missing(vertex) or self._fault(vertex) is not None

    def _add(self, vertex: Vertex) -> None:
        assert self._unsettled is None, "restore without settle"
        assert vertex.state is State.UNKNOWN
        assert vertex.message_id not in self.vertices
        self.vertices[vertex.message_id] = vertex

    def _await(self, vertex: Vertex, changes: Changes) -> bool:
        """Let a vertex wait for what is missing, or invalidate it; return True when nothing is missing."""
        assert len(vertex.dependencies) <= DEPENDENCIES_MAX
        missing = self.missing(vertex)
        if not missing:
            return True
        fault = self._fault(vertex)
        if fault is not None:
            self._invalidate(vertex, fault, changes)
            return False
        for name in missing:
            self._waiting.add(name, vertex)
        vertex.waits_for = len(missing)
        vertex.state = State.PENDING
        self.pending_count += 1
        self.awaited_count += len(missing)
        return False

    def _fault(self, vertex: Vertex) -> Refusal | None:
        if vertex.message_id in vertex.dependencies:
            return Refusal.NAMES_ITSELF
        for name in vertex.dependencies:
            other = self.vertices.get(name)
            if other is not None and other.state is State.INVALID:
                return Refusal.INVALID_DEPENDENCY
        return None

    def _deliver_all(self, ready: "list[_Ready]", changes: Changes) -> None:
        """Judge what is ready, a heap, and whatever becomes ready by it."""
        while ready:
            vertex = heappop(ready)[2]
            if not self._judge(vertex):
                self._invalidate(vertex, Refusal.INVALID_IN_CONTEXT, changes)
                continue
            for freed in self._deliver(vertex, changes):
                heappush(ready, freed)

    def _deliver(self, vertex: Vertex, changes: Changes) -> "list[_Ready]":
        """Deliver one vertex; return those that wait for nothing any more."""
        if vertex.state is State.PENDING:
            self.pending_count -= 1
        vertex.state = State.DELIVERED
        vertex.order = self.next_order
        self._rest(vertex)
        self.next_order += 1
        changes.delivered.append(vertex)
        ready = []
        for waiter in self._waiting.take(vertex.message_id):
            waiter.waits_for -= 1
            self.awaited_count -= 1
            if waiter.waits_for == 0:
                ready.append(_ready(waiter))
        return ready

    def _rest(self, vertex: Vertex) -> None:
        """Let a delivered vertex know the vertices that it depends on."""
        names = vertex.dependencies
        if names:
            known = self.vertices
            vertex.rest_on(tuple([known[name] for name in names]))

    def _invalidate(self, vertex: Vertex, refusal: Refusal, changes: Changes) -> None:
        fallen = [vertex]
        self._fell(vertex, refusal)
        for cause in fallen:  # Grows as it is read: a chain may be longer than any stack.
            for waiter in self._waiting.take(cause.message_id):
                self._fell(waiter, Refusal.INVALID_DEPENDENCY)
                fallen.append(waiter)
        changes.invalidated += fallen

    def _fell(self, vertex: Vertex, refusal: Refusal) -> None:
        if vertex.state is State.PENDING:
            self.pending_count -= 1
            self.awaited_count -= vertex.waits_for
            if vertex.waits_for > 1:  # else only for what has made it fall
                for name in vertex.dependencies:
                    self._waiting.remove(name, vertex)
            vertex.waits_for = 0
        vertex.rest_on(())  # nobody needs to know any more on what it would have rested
        vertex.state = State.INVALID
        vertex.refusal = refusal
        vertex.body_present = False


def _spread(shared: list[Vertex]) -> list[Vertex]:
    """Share what shared vertices depend on; return those that were not shared before, dependencies first."""
    newly: list[Vertex] = []
    for vertex in chain(shared, newly):  # The second grows as it is read.
        for other in vertex.above:
            if not other.shared:
                other.shared = True
                newly.append(other)
    newly.sort(key=_order)
    return newly


def _ready(vertex: Vertex) -> "_Ready":
    return vertex.timestamp, vertex.message_id, vertex


_Ready = tuple[int, bytes, Vertex]
_order: Final = attrgetter("order")
