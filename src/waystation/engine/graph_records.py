"""What the recorder makes of facts about messages of groups.

A message is one event when it is on disk, one more for each state that it comes to later, and one for each peer that is
known to hold it. Nothing is gathered: whoever can make a node tell one of these has made it store a message, or holds
one of its own. Groups and messages get keyed references like peers, because who knows the identifier of a message can
find it again wherever it is kept. The references that a message depends on are made in the same moment as its own, so
messages of two weeks cannot be joined when the key changes between them (BSP-REFS).
"""

from collections.abc import Callable
from functools import partial
from typing import Final, cast

from waystation.core import facts
from waystation.journal import events
from waystation.journal.events import Event

__all__ = ["HELD", "GraphRecords"]

HELD: Final = "held"
"""What totals call a message that a peer is known to hold."""

# As effects.make_send: each message that arrives is one of the first, each that leaves one of the second.
_make_stored: Final = cast(
    "Callable[[tuple[object, ...]], events.MessageStored]", partial(tuple.__new__, events.MessageStored)
)
_make_held: Final = cast(
    "Callable[[tuple[object, ...]], events.MessageHeld]", partial(tuple.__new__, events.MessageHeld)
)


class GraphRecords:
    """Turns facts about messages of groups into events and totals; the recorder's hand for them."""

    def __init__(self, append: Callable[[Event], None] | None, reference: Callable[[bytes], bytes]) -> None:
        """Start with nothing counted.

        Args:
            append: Takes each event; None keeps totals only.
            reference: Returns the keyed reference (16 bytes) of a group, message or peer.
        """
        self._append = append
        self._reference = reference
        self._totals: dict[tuple[str, str], int] = {}

    def totals(self) -> dict[tuple[str, str], int]:
        """Return messages since the start by protocol and state, and how often a peer came to hold one."""
        return dict(self._totals)

    def stored(self, fact: facts.MessageStored, wall_us: int) -> None:
        """A message is on disk; ``wall_us`` is now in microseconds UTC."""
        protocol, group, message_id, source, state, dependencies, created_ms, size_bytes, order = fact
        self._count(protocol, state)
        if self._append is None:
            return
        reference = self._reference
        peer = reference(source) if source is not None else None
        above = b"".join([reference(each) for each in dependencies]) if dependencies else b""
        named = (reference(group), reference(message_id), above)
        self._append(_make_stored((wall_us, protocol, peer, state, size_bytes, *named, created_ms, order)))

    def changed(self, fact: facts.MessageChanged, wall_us: int) -> None:
        """A stored message came to another state, or is invalid for this reason."""
        protocol, group, message_id, state, reason, order = fact
        self._count(protocol, state)
        if self._append is not None:
            named = self._reference(group), self._reference(message_id)
            self._append(events.MessageChanged(wall_us, protocol, state, reason or None, *named, order))

    def held(self, fact: facts.MessageHeld, wall_us: int) -> None:
        """A peer holds a message."""
        protocol, group, message_id, peer, *copies = fact
        self._count(protocol, HELD)
        if self._append is not None:
            reference = self._reference
            named = (reference(peer), reference(group), reference(message_id))
            self._append(_make_held((wall_us, protocol, *named, *copies)))

    def _count(self, protocol: str, what: str) -> None:
        total = (protocol, what)
        self._totals[total] = self._totals.get(total, 0) + 1
