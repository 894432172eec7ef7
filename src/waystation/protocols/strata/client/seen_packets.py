"""Remembers delivered packets to drop duplicates; the table is bounded, and the oldest entries are evicted first.

The client machine asks ``is_new`` before it reports a packet: a relay may send one again after a new connection.
"""

from collections import OrderedDict
from typing import Final

__all__ = ["SEEN_MAX", "SeenPackets"]

SEEN_MAX: Final = 100_000  # packet ids remembered, over all subscriptions of one machine


class SeenPackets:
    """The packets that each subscription of one client has delivered."""

    def __init__(self) -> None:
        """Begin with none."""
        self._seen: OrderedDict[tuple[int, bytes], None] = OrderedDict()

    def is_new(self, number: int, packet_id: bytes) -> bool:
        """Return whether a subscription, by its number, meets a packet for the first time; remember it."""
        key = (number, packet_id)
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return True
