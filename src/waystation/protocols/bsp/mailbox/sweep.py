"""Visits all kept messages of hosted groups, a few per step, to find bodies that can be deleted.

The mailbox (``host``) calls ``step`` from its timer; the cost of a step is bounded, so a large mailbox does not hold up
connections. A body may go once every member has the message or its time is over.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

__all__ = ["Sweep"]


class Sweep:
    """One sweep checks once every message of every group that it began with."""

    __slots__ = ("_group_id", "_groups", "_messages", "is_over", "is_whole")

    def __init__(self) -> None:
        self._groups: list[bytes] = []
        self._group_id = b""
        self._messages: Iterator[bytes] = iter(())
        self.is_over = True
        """Whether no message is left to check."""
        self.is_whole = False
        """Whether a whole sweep is under way, and not merely groups that were added."""

    def begin(self, groups: Sequence[bytes]) -> None:
        """Begin a sweep through these groups, the last of them first."""
        self._groups = list(groups)
        self.is_over, self.is_whole = False, True

    def add(self, group_id: bytes) -> None:
        """Check one group next, within the sweep or without one."""
        self._groups.append(group_id)
        self.is_over = False

    def step(
        self,
        count_max: int,
        messages: Callable[[bytes], Iterable[bytes]],
        look: Callable[[bytes, bytes], None],
    ) -> None:
        """Check the next messages.

        Args:
            count_max: At so many at most, at least 1.
            messages: Returns those of a group, as they are when the sweep comes to it.
            look: Called with group and message; may change what ``messages`` returns.
        """
        while count_max:
            for message_id in islice(self._messages, count_max):
                count_max -= 1
                look(self._group_id, message_id)
            if not count_max:
                return
            if not self._groups:
                self.is_over, self.is_whole = True, False
                return
            self._group_id = self._groups.pop()
            # A copy: ``look`` may delete what the group still lists.
            self._messages = iter(list(messages(self._group_id)))
