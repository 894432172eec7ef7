"""Counts how many frames and bytes there are, in all and of each name, so that none takes more than its share.

``mailboxes`` keeps one per limit: of the senders and sources in one mailbox, and of networks over all of them.
"""

from collections.abc import Iterator

__all__ = ["Shares"]


class Shares:
    """Frames and bytes by name; names without any are forgotten. Cost: O(1) each."""

    __slots__ = ("_of", "count", "size")

    def __init__(self) -> None:
        """Start with nothing."""
        self._of: dict[str | bytes, tuple[int, int]] = {}
        self.count = 0
        """How many frames there are."""
        self.size = 0
        """Their bytes."""

    def __len__(self) -> int:
        """Return how many names have something."""
        return len(self._of)

    def of(self, name: str | bytes) -> tuple[int, int]:
        """Return how many frames and bytes a name has."""
        return self._of.get(name, (0, 0))

    def items(self) -> Iterator[tuple[str | bytes, int, int]]:
        """Yield every name that has something, its frames and its bytes."""
        for name, (count, total) in self._of.items():
            yield name, count, total

    def add(self, name: str | bytes, size: int, times: int = 1) -> None:
        """Count a frame in, or out with ``times`` = -1."""
        count, total = self.of(name)
        count, total = count + times, total + times * size
        assert count >= 0
        assert total >= 0
        if count:
            self._of[name] = (count, total)
        else:
            self._of.pop(name, None)
        self.count += times
        self.size += times * size

    def has_room(self, size: int, count_max: int, bytes_max: int) -> bool:
        """Return whether one frame more fits among all."""
        return self.count < count_max and self.size + size <= bytes_max

    def has_room_for(self, name: str | bytes, size: int, count_max: int, bytes_max: int) -> bool:
        """Return whether a name's share has room for one frame more; "" is nobody, and has no share to fill."""
        count, total = self.of(name)
        return not name or (count < count_max and total + size <= bytes_max)
