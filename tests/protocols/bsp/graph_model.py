"""A message graph that is obviously right: sets and fixpoints, computed from nothing after every message.

It is the oracle for ``waystation.protocols.bsp.graph.order`` and shares no line with it. A message is a ``Told``: what
the device was told of it. Nothing is remembered between two questions but the list of what was told.
"""

from typing import NamedTuple


class Told(NamedTuple):
    """One message as it came in."""

    message_id: bytes
    timestamp: int
    dependencies: tuple[bytes, ...]
    parses: bool = True
    valid: bool = True
    """What the client says in the context of the dependencies."""
    own: bool = False
    """A local one, delivered without judging."""


class GraphModel:
    """What was told, and what follows from it."""

    def __init__(self):
        self.told = {}
        self.roots_shared = set()

    def tell(self, told):
        """Take in a message; return what it delivers, in order, and the set of what it makes invalid."""
        delivered_before, invalid_before = self.outcome()
        self.told[told.message_id] = told
        delivered, invalid = self.outcome()
        return self._ordered(delivered_before, delivered - delivered_before), invalid - invalid_before

    def outcome(self):
        """Return the sets of delivered and of invalid identifiers: the least fixpoint of the rules of bsp 4."""
        delivered, invalid = set(), set()
        while True:
            before = len(delivered) + len(invalid)
            for told in self.told.values():
                if not told.parses or told.message_id in told.dependencies or set(told.dependencies) & invalid:
                    invalid.add(told.message_id)
                elif set(told.dependencies) <= delivered:
                    (delivered if told.valid or told.own else invalid).add(told.message_id)
            if len(delivered) + len(invalid) == before:
                return delivered, invalid

    def pending(self):
        """Return the identifiers that are neither delivered nor invalid."""
        delivered, invalid = self.outcome()
        return set(self.told) - delivered - invalid

    def awaited_count(self):
        """Return how many dependencies pending messages wait for."""
        delivered, _ = self.outcome()
        return sum(len(set(self.told[one].dependencies) - delivered) for one in self.pending())

    def share(self, message_id):
        """Share a delivered message; return the set of identifiers that were not shared before."""
        before = self.shared()
        self.roots_shared.add(message_id)
        return self.shared() - before

    def shared(self):
        """Return all shared identifiers: what was asked for and whatever that depends on."""
        shared = set(self.roots_shared)
        while True:
            wider = shared.union(*(self.told[one].dependencies for one in shared))
            if wider == shared:
                return shared
            shared = wider

    def _ordered(self, delivered, new):
        """Return new deliveries in order: again and again the smallest (timestamp, identifier) of the ready ones."""
        done, order = set(delivered), []
        while len(order) < len(new):
            ready = [one for one in new - done if set(self.told[one].dependencies) <= done]
            first = min(ready, key=lambda one: (self.told[one].timestamp, one))
            done.add(first)
            order.append(first)
        return order
