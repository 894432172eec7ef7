"""The dependency graph of one group's messages: it decides which are delivered, and in what order.

Each ``Membership`` of a device has one; ``Changes`` come out of every call.

A message may be placed in any order of arrival, once. It waits (PENDING) until all its dependencies are DELIVERED. Then
it is validated and becomes DELIVERED or INVALID, which is final. INVALID spreads to all messages that depend on it. So
no delivered message ever depends on an undelivered one::

    UNKNOWN -> PENDING | DELIVERED | INVALID        PENDING -> DELIVERED | INVALID

Delivery numbers (``Vertex.order``) are 1, 2, 3...; a vertex has a greater one than each of its dependencies. Of the
vertices that are ready at once, the smallest (timestamp, identifier) is delivered first. Sharing a vertex also shares
all its dependencies. Deleting a body does not change the graph.

Identifiers are unique across groups, so a dependency in another group never arrives (BSP-D12). A cycle is impossible,
because identifiers are hashes. The graph stores no bodies; its owner persists the changes that each call returns.
Spec: seed 5, bsp 4.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import Final

from waystation.protocols.bsp.graph.vertices import Changes, State, Vertex
from waystation.protocols.bsp.graph.waiting import Waiting
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["AWAITED_MAX", "DEPENDENCIES_MAX", "PENDING_MAX", "Changes", "MessageGraph", "State", "Vertex"]

DEPENDENCIES_MAX: Final = 64
"""Of one message (bsp 4); more make it INVALID."""
PENDING_MAX: Final = 100_000
"""PENDING vertices of one group (bsp 4); more are refused without acknowledgement and come again."""
AWAITED_MAX: Final = 4 * PENDING_MAX
"""Undelivered dependencies of all PENDING vertices of one group. Without it 100,000 small messages that name 64 absent
ones each would take more than a gigabyte (BSP-AWAITED)."""


class MessageGraph:
    """All messages of one group that this device has received.

    Attributes:
        group_id: 32 bytes.
        vertices: Every vertex by identifier, in the order placed; read it, never write it.
        pending_count: How many are PENDING.
        awaited_count: How many dependencies these wait for, one counted as often as it is waited for.
        next_order: Delivery number of the next to be delivered, from 1.
    """

    def __init__(self, group_id: bytes, validate: Callable[[Vertex], bool]) -> None:
        """Make an empty graph.

        Args:
            group_id: 32 bytes.
            validate: Returns whether a vertex is valid in the context of its dependencies. Called once for a vertex,
                when all of them are DELIVERED; must neither raise nor call the graph.
        """
        self.group_id = group_id
        self.vertices: dict[bytes, Vertex] = {}
        self.pending_count = 0
        self.awaited_count = 0
        self.next_order = 1
        self._validate = validate
        self._waiting = Waiting()
        self._unsettled: list[Vertex] | None = None

    def place(self, vertex: Vertex) -> Changes:
        """Add a parsed message, and deliver or invalidate all that this decides.

        Args:
            vertex: New here, UNKNOWN, with at most ``DEPENDENCIES_MAX`` different dependencies.

        Cost: O(dependencies), and as much again for each vertex that changes.
        """
        self._add(vertex)
        changes = Changes()
        if self._await(vertex, changes):
            # Spec 4: it is delivered after all its dependencies; this one waits for none.
            self._deliver_all([_ready(vertex)], changes)
        return changes

    def place_invalid(self, vertex: Vertex, refusal: Refusal) -> Changes:
        """Add a message that cannot be parsed: it is INVALID, and so is all that waited for it."""
        self._add(vertex)
        changes = Changes()
        # Spec 4: INVALID when it cannot be parsed or names more than 64 others; all that waited for it goes too.
        self._invalidate(vertex, refusal, changes)
        return changes

    def place_delivered(self, vertex: Vertex) -> Changes:
        """Add a message of our own: it is DELIVERED without validation, first in ``Changes.delivered``.

        Args:
            vertex: New here, UNKNOWN; every dependency is DELIVERED.
        """
        self._add(vertex)
        # Spec 4: only messages whose dependencies are delivered can be; ``BspDevice.add`` has refused the others.
        assert not self.missing(vertex)
        changes = Changes()
        ready = self._deliver(vertex, changes)
        heapify(ready)
        self._deliver_all(ready, changes)
        return changes

    def restore(self, vertex: Vertex) -> None:
        """Add a message as the store has it, in any order; ``settle`` must follow before anything else."""
        assert vertex.message_id not in self.vertices
        if self._unsettled is None:
            self._unsettled = []
        self.vertices[vertex.message_id] = vertex
        if vertex.state is State.DELIVERED:
            assert vertex.order > 0
            # Delivery numbers go on after a restart: an application continues from the last it has seen.
            self.next_order = max(self.next_order, vertex.order + 1)
        elif vertex.state is not State.INVALID:
            self._unsettled.append(vertex)

    def settle(self) -> Changes:
        """Finish what a stop between two commits has left half done; call it once, after the last ``restore``.

        UNKNOWN and PENDING vertices are placed again, those whose dependencies are delivered are validated, and what
        a shared vertex depends on is shared (bsp 4).

        Cost: O(vertices and dependencies).
        """
        changes = Changes()
        unsettled, self._unsettled = self._unsettled or [], None
        for vertex in self.vertices.values():
            if vertex.state is State.DELIVERED:
                self._link_dependencies(vertex)
        for vertex in unsettled:
            vertex.state = State.UNKNOWN
        ready = [_ready(vertex) for vertex in unsettled if self._await(vertex, changes)]
        # Spec 4: of those that are ready at once the smallest (time, identifier) goes first.
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
        # Spec 4: all that a shared message depends on is shared with it.
        newly = _spread([vertex]) if vertex.above else []
        newly.append(vertex)  # The last to be delivered of all of them.
        return newly

    def remove_body(self, vertex: Vertex) -> None:
        """Note that a body was deleted; the place of the message in the graph stays."""
        # Spec 4: to delete a message takes its body and nothing else.
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
        """Return whether a message was placed here, in whatever state it is now."""
        return message_id in self.vertices

    def has_room(self, vertex: Vertex) -> bool:
        """Return whether a new vertex may be placed: False when it would wait and too many do already."""
        # Spec 9: 100,000 pending messages of a group, which wait for 400,000 others; beyond, no acknowledgement.
        if self.pending_count < PENDING_MAX and self.awaited_count <= AWAITED_MAX - DEPENDENCIES_MAX:
            return True
        # A vertex that is decided at once needs no room among those that wait.
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
        # Spec 4: INVALID when it depends on an invalid message, now or later.
        if fault is not None:
            self._invalidate(vertex, fault, changes)
            return False
        # Spec 4: a dependency that never comes leaves it PENDING; it is not asked for (BSP-D13).
        for name in missing:
            self._waiting.add(name, vertex)
        vertex.waits_for = len(missing)
        vertex.state = State.PENDING
        self.pending_count += 1
        self.awaited_count += len(missing)
        return False

    def _fault(self, vertex: Vertex) -> Refusal | None:
        # Spec 4: INVALID when it names itself.
        if vertex.message_id in vertex.dependencies:
            return Refusal.NAMES_ITSELF
        for name in vertex.dependencies:
            other = self.vertices.get(name)
            if other is not None and other.state is State.INVALID:
                return Refusal.INVALID_DEPENDENCY
        return None

    def _deliver_all(self, ready: "list[_Ready]", changes: Changes) -> None:
        """Validate and deliver the heap of ready vertices, and all that become ready by it."""
        while ready:
            vertex = heappop(ready)[2]
            # Spec 4: INVALID when it fails its application's validation.
            if not self._validate(vertex):
                self._invalidate(vertex, Refusal.INVALID_IN_CONTEXT, changes)
                continue
            for freed in self._deliver(vertex, changes):
                heappush(ready, freed)

    def _deliver(self, vertex: Vertex, changes: Changes) -> "list[_Ready]":
        """Deliver one vertex; return those that wait for nothing any more."""
        if vertex.state is State.PENDING:
            self.pending_count -= 1
        vertex.state = State.DELIVERED
        # Each message gets a greater number than each of its dependencies.
        vertex.order = self.next_order
        self._link_dependencies(vertex)
        self.next_order += 1
        changes.delivered.append(vertex)
        ready = []
        for waiter in self._waiting.take(vertex.message_id):
            waiter.waits_for -= 1
            self.awaited_count -= 1
            if waiter.waits_for == 0:
                ready.append(_ready(waiter))
        return ready

    def _link_dependencies(self, vertex: Vertex) -> None:
        """Let a delivered vertex know the vertices that it depends on."""
        names = vertex.dependencies
        if names:
            known = self.vertices
            vertex.depend_on(tuple([known[name] for name in names]))

    def _invalidate(self, vertex: Vertex, refusal: Refusal, changes: Changes) -> None:
        fallen = [vertex]
        self._mark_invalid(vertex, refusal)
        for cause in fallen:  # Grows as it is read: a chain may be longer than any stack.
            # Spec 4: an invalid message takes with it every message that depends on it.
            for waiter in self._waiting.take(cause.message_id):
                self._mark_invalid(waiter, Refusal.INVALID_DEPENDENCY)
                fallen.append(waiter)
        changes.invalidated += fallen

    def _mark_invalid(self, vertex: Vertex, refusal: Refusal) -> None:
        if vertex.state is State.PENDING:
            self.pending_count -= 1
            self.awaited_count -= vertex.waits_for
            if vertex.waits_for > 1:  # else it waits only for the vertex that made it invalid
                for name in vertex.dependencies:
                    self._waiting.remove(name, vertex)
            vertex.waits_for = 0
        vertex.depend_on(())  # no caller follows the dependencies of an invalid vertex
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
    # Dependencies first, so that a peer which gets the list in order can deliver at once.
    newly.sort(key=_order)
    return newly


def _ready(vertex: Vertex) -> "_Ready":
    # Spec 4: the smallest (time, identifier) goes first.
    return vertex.timestamp, vertex.message_id, vertex


_Ready = tuple[int, bytes, Vertex]
_order: Final = attrgetter("order")
