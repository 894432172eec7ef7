"""An index of the messages that wait for an undelivered message, by that message's identifier.

``order`` adds a vertex for each missing dependency and takes all that wait when it is delivered, so no search over the
group is needed. Spec: bsp 4.
"""

from collections.abc import Iterable

from waystation.protocols.bsp.graph.vertices import Vertex

__all__ = ["Waiting"]


class Waiting:
    """The waiting vertices, by the identifier that they wait for.

    Most identifiers are waited for by one vertex, which is then the entry itself: a dictionary for each would cost more
    than all else that a graph keeps of a pending message.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[bytes, Vertex | dict[bytes, Vertex]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, name: bytes, waiter: Vertex) -> None:
        """Let a vertex wait for an identifier; twice is once."""
        found = self._waiters.setdefault(name, waiter)
        if isinstance(found, dict):
            found[waiter.message_id] = waiter
        elif found is not waiter:
            self._waiters[name] = {found.message_id: found, waiter.message_id: waiter}

    def remove(self, name: bytes, waiter: Vertex) -> None:
        """Let a vertex no longer wait for an identifier; nothing when it does not."""
        found = self._waiters.get(name)
        if isinstance(found, dict):
            found.pop(waiter.message_id, None)
        if not found or found is waiter:
            self._waiters.pop(name, None)

    def take(self, name: bytes) -> Iterable[Vertex]:
        """Return those that waited for an identifier, in the order they came, and forget that they did."""
        found = self._waiters.pop(name, None)
        if found is None:
            return ()
        if not self._waiters:
            self._waiters.clear()  # An emptied dictionary keeps the memory of its largest size.
        return found.values() if isinstance(found, dict) else (found,)
