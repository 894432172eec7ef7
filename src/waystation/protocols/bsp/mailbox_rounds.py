"""Goes through everything that is kept, over and over, a little at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

__all__ = ["Rounds"]


class Rounds:
    """One round looks once at every message of every group that it began with."""

    __slots__ = ("_group_id", "_groups", "_messages", "is_over", "is_whole")

    def __init__(self) -> None:
        self._groups: list[bytes] = []
        self._group_id = b""
        self._messages: Iterator[bytes] = iter(())
        self.is_over = True
        """Whether there is nothing left to look at."""
        self.is_whole = False
        """Whether a round is under way, and not merely groups that were added."""

    def begin(self, groups: Sequence[bytes]) -> None:
        """Begin a round through these groups, the last of them first."""
        self._groups = list(groups)
        self.is_over, self.is_whole = False, True

    def add(self, group_id: bytes) -> None:
        """Look at one group next, within the round or without one."""
        self._groups.append(group_id)
        self.is_over = False

    def step(
        self,
        count_max: int,
        messages: Callable[[bytes], Iterable[bytes]],
        look: Callable[[bytes, bytes], None],
    ) -> None:
        """Look at the next messages.

        Args:
            count_max: At so many at most, at least 1.
            messages: Returns those of a group, as they are when the round comes to it.
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
            self._messages = iter(list(messages(self._group_id)))
