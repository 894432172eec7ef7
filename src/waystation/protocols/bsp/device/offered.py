"""The identifiers that one peer offered and we neither acknowledged nor requested yet.

``flags`` keeps one for each group shared with a peer; ``receiving`` adds, ``sending`` takes from the front what to
request. The length is limited, because a peer may offer without end. Spec: seed 4.1; bsp 2, 11.5.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["OFFERED_MAX", "OfferedList"]

OFFERED_MAX: Final = 1_000


class OfferedList:
    """Identifiers in the order in which they were offered, each once.

    Cost: O(1) per identifier.
    """

    __slots__ = ("_bound", "_drops_oldest", "_ids")

    def __init__(self, *, drops_oldest: bool, bound: int = OFFERED_MAX) -> None:
        """Start empty.

        Args:
            drops_oldest: What happens at the bound: the oldest makes room (seed), or the new one is refused (Briar).
            bound: Most identifiers kept.
        """
        self._ids: dict[bytes, None] = {}
        self._drops_oldest = drops_oldest
        self._bound = bound

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, message_id: bytes) -> bool:
        return message_id in self._ids

    def add(self, message_id: bytes) -> None:
        """Take an identifier; one that is there already keeps its place."""
        # BSP-D7: an identifier that comes twice counts once.
        if message_id in self._ids:
            return
        if len(self._ids) >= self._bound:
            # Spec 7: in profile briar a new one is not remembered while the list is full.
            if not self._drops_oldest:
                return
            # Spec 2: one more than 1,000 pushes the oldest out; it holds within one record too (11.5).
            del self._ids[next(iter(self._ids))]
        self._ids[message_id] = None

    def remove(self, message_ids: Iterable[bytes]) -> None:
        """Forget identifiers; those that are not there are ignored."""
        for message_id in message_ids:
            self._ids.pop(message_id, None)

    def first(self, count_max: int) -> list[bytes]:
        """Return at most so many identifiers, the oldest first."""
        # Spec 3: the whole list is requested when it fits, the oldest first when it does not.
        if count_max >= len(self._ids):
            return list(self._ids)
        return [message_id for message_id, _ in zip(self._ids, range(count_max), strict=False)]

    def clear(self) -> None:
        """Forget all of them."""
        self._ids.clear()
