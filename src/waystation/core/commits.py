"""One pending ``Commit`` effect of a machine, and its repetition when the store refuses the write.

The relays of LPRP, MERK, Strata and the BSP peer each keep one. ``begin`` takes changes for the store, ``committed``
and ``not_committed`` take the store's answer, and ``wake`` asks again later. It is for state that the machine keeps in
memory anyway and acknowledges to nobody before it is durable.
"""

from collections.abc import Sequence
from typing import Final

from waystation.core.effects import Commit
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Change, newest

__all__ = ["COMMIT_AGAIN_MS", "Commits"]

COMMIT_AGAIN_MS: Final = 1_000
"""After this long a machine asks again for changes that the store refused: as often as the node tries its disk."""


class Commits:
    """The commit that is under way, or that was refused."""

    __slots__ = ("_changes", "again_at", "is_refused", "is_under_way", "saved", "ticket")

    def __init__(self) -> None:
        """Start with nothing under way."""
        self._changes: tuple[Change, ...] = ()
        self.ticket = 0
        """Of the last commit that was asked for."""
        self.saved = 0
        """Of the last one that is on disk."""
        self.is_under_way = False
        self.is_refused = False
        """Whether there are changes that the store refused and that it has not been asked for again."""
        self.again_at: Instant | None = None
        """Until when nothing is asked for, None when something may be: a deadline of the machine."""

    @property
    def may_begin(self) -> bool:
        """Whether a commit may be asked for now."""
        return not self.is_under_way and self.again_at is None

    @property
    def is_settled(self) -> bool:
        """Whether everything that was asked for is on disk."""
        return not self.is_under_way and not self.is_refused

    def begin(self, changes: Sequence[Change], ticket: int = 0) -> Commit:
        """Return the commit of these changes, after those that were refused; ``ticket`` is 0 for the next number."""
        assert self.may_begin
        self.ticket = ticket or self.ticket + 1
        self._changes = newest((*self._changes, *changes)) if self.is_refused else tuple(changes)
        self.is_under_way, self.is_refused = True, False
        return Commit(self.ticket, self._changes)

    def committed(self, ticket: int) -> None:
        """Note that the changes are on disk."""
        assert self.is_under_way
        assert ticket == self.ticket
        self.saved = ticket
        self.is_under_way, self._changes = False, ()

    def not_committed(self, ticket: int, now: Instant) -> None:
        """Note that the store refused the changes; they are part of the next commit, ``COMMIT_AGAIN_MS`` later."""
        assert self.is_under_way
        assert ticket == self.ticket
        self.is_under_way, self.is_refused = False, True
        self.again_at = after_ms(now, COMMIT_AGAIN_MS)

    def wake(self, now: Instant) -> None:
        """Let a commit be asked for again once its time has come."""
        if self.again_at is not None and self.again_at <= now:
            self.again_at = None
