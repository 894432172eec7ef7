"""One message's vertex in the dependency graph of its group, and the changes that a call to the graph returns.

``order`` builds the graph of them. Dependencies that are not here are kept as identifiers, because a message may come
before what it depends on. Spec: seed 5, bsp 4.
"""

from enum import IntEnum

from waystation.protocols.bsp.refusals import Refusal

__all__ = ["Changes", "State", "Vertex"]


class State(IntEnum):
    """The state of a message; the store keeps the value."""

    UNKNOWN = 0
    """Stored, not yet looked at."""
    PENDING = 1
    """Some dependency is not delivered."""
    DELIVERED = 2
    INVALID = 3
    """For ever; its body is gone."""


class Vertex:
    """One message without its body.

    Attributes:
        message_id: 32 bytes.
        timestamp: Milliseconds since the Unix epoch.
        size_bytes: Length of the body, also when it is gone.
        seq: Its place in the owner's table of the group, from 0; -1 before it has one.
        stored_ms: Wall clock when it came here, milliseconds since the Unix epoch; 0 when unknown.
        state: Its state in the graph.
        shared: Whether it is synchronised with the peers that share the group; then so are its dependencies.
        body_present: Whether the body is still there.
        above: The vertices that it depends on, in the body's order; empty before it is DELIVERED.
        order: Its delivery number, from 1; 0 before it is delivered.
        refusal: Why it is INVALID, else None.
        waits_for: How many of its dependencies are not delivered; kept by the graph, 0 unless PENDING.
    """

    __slots__ = (
        "_names",
        "above",
        "body_present",
        "message_id",
        "order",
        "refusal",
        "seq",
        "shared",
        "size_bytes",
        "state",
        "stored_ms",
        "timestamp",
        "waits_for",
    )

    def __init__(
        self,
        message_id: bytes,
        timestamp: int,
        size_bytes: int,
        dependencies: tuple[bytes, ...] = (),
        *,
        seq: int = -1,
        stored_ms: int = 0,
        state: State = State.UNKNOWN,
        shared: bool = False,
        body_present: bool = True,
        order: int = 0,
        refusal: Refusal | None = None,
    ) -> None:
        """Make a vertex of a message; repeats among its dependencies collapse."""
        self.message_id = message_id
        self.timestamp = timestamp
        self.size_bytes = size_bytes
        self.seq = seq
        self.stored_ms = stored_ms
        self.state = state
        self.shared = shared
        self.body_present = body_present
        self.above: tuple[Vertex, ...] = ()
        # Spec 11.6: repeats count once.
        self._names = dependencies if len(dependencies) < 2 else tuple(dict.fromkeys(dependencies))
        self.order = order
        self.refusal = refusal
        self.waits_for = 0

    @property
    def dependencies(self) -> tuple[bytes, ...]:
        """Identifiers of what it depends on, 32 bytes each, in the body's order and without repeats."""
        return tuple([one.message_id for one in self.above]) if self.above else self._names

    def depend_on(self, above: "tuple[Vertex, ...]") -> None:
        """Remember the vertices themselves that it depends on, instead of their identifiers.

        To follow them is twice as fast as to look them up, and for them a hundred thousand are as good as ten: a
        lookup misses the processor's cache.
        """
        self.above = above
        self._names = ()

    def __repr__(self) -> str:
        return f"Vertex({self.message_id[:4].hex()}, {self.state.name}, order={self.order})"


class Changes:
    """The changes of one call to the graph; the owner stores them before it reports them.

    Attributes:
        delivered: Newly DELIVERED, in the order of delivery.
        invalidated: Newly INVALID, what was found invalid first.
        shared: Newly shared by ``MessageGraph.settle``, dependencies first; empty from every other call.
    """

    __slots__ = ("delivered", "invalidated", "shared")

    def __init__(self) -> None:
        self.delivered: list[Vertex] = []
        self.invalidated: list[Vertex] = []
        self.shared: list[Vertex] = []
