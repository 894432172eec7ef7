"""What the recorder makes of facts about a mesh of nodes: look-ups of clients, and links to other nodes.

Each fact becomes one event at once. A machine that looks up more than an operator could read tells many look-ups as one
fact, without their targets; the totals count them all the same. Clients and nodes leave as keyed references only, so
that nobody learns from the journal alone who was looked for, or which nodes met.
"""

from collections.abc import Callable

from waystation.core import facts
from waystation.core.ids import node_id_of
from waystation.journal import events
from waystation.journal.events import Event

__all__ = ["MeshRecords"]


class MeshRecords:
    """Turns facts about a mesh into events and totals; the recorder's hand for them."""

    def __init__(self, append: Callable[[Event], None] | None, reference: Callable[[bytes], bytes]) -> None:
        """Start with nothing counted.

        Args:
            append: Takes each event; None keeps totals only.
            reference: Returns the keyed reference (16 bytes) of an identity.
        """
        self._append = append
        self._reference = reference
        self._lookup_totals: dict[tuple[str, str], int] = {}

    def totals(self) -> dict[tuple[str, str], int]:
        """Return look-ups since the start by protocol and result."""
        return dict(self._lookup_totals)

    def looked_up(self, fact: facts.LookupFinished, wall_us: int) -> None:
        """A look-up is over, or several of one result; ``wall_us`` is now in microseconds UTC."""
        total = (fact.protocol, fact.result)
        self._lookup_totals[total] = self._lookup_totals.get(total, 0) + fact.times
        if self._append is not None:
            target = self._reference(fact.target) if fact.target is not None else None
            self._append(events.MeshLookup(wall_us, fact.protocol, target, *fact[2:]))

    def link_ended(self, fact: facts.LinkEnded, wall_us: int) -> None:
        """A link to another node is over; ``wall_us`` is now in microseconds UTC."""
        if self._append is not None:
            node = self._reference(fact.node)
            relay_id = node_id_of(fact.node)
            self._append(events.MeshLinkEnded(wall_us, fact.protocol, node, relay_id, int(fact.dialled), *fact[3:]))
