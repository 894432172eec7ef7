"""Commits of the relay that no packet waits for: what retention and replication change (STRATA-REFUSED).

The relay calls it behind the packets of a turn; one commit is under way at a time. What the store refuses is asked for
again with what is newer. Until then retention rests, so that little gathers.
"""

from waystation.core.commits import Commits
from waystation.core.effects import Commit
from waystation.core.instant import Instant
from waystation.protocols.strata.relay.replication import Replication
from waystation.protocols.strata.relay.retention import Retention

__all__ = ["Chores"]


class Chores:
    """The commits that no packet waits for."""

    def __init__(self, retention: Retention, replication: Replication) -> None:
        """Write the changes of these."""
        self._retention = retention
        self._replication = replication
        self._commits = Commits()

    def commit(self, ticket: int) -> Commit | None:
        """Return what is to be written, under this ticket; None when there is nothing, or not now."""
        if not self._commits.may_begin:
            return None
        changes = [*self._retention.changes(), *self._replication.changes()]
        # STRATA-REFUSED: after a refusal also without news, or the old changes would wait for some.
        return self._commits.begin(changes, ticket) if changes or self._commits.is_refused else None

    def committed(self, ticket: int) -> bool:
        """Take a report that changes are on disk; return whether they are ours."""
        is_ours = self._commits.is_under_way and ticket == self._commits.ticket
        if is_ours:
            self._commits.committed(ticket)
        return is_ours

    def not_committed(self, ticket: int, now: Instant) -> bool:
        """Take a report that the store refused changes; return whether they are ours."""
        is_ours = self._commits.is_under_way and ticket == self._commits.ticket
        if is_ours:
            self._commits.not_committed(ticket, now)
        return is_ours

    def wake(self, now: Instant, wall_s: int) -> None:
        """Run the retention that is due."""
        self._commits.wake(now)
        # Retention would gather more changes in memory for a store that takes none.
        if not self._commits.is_refused:
            self._retention.wake(now, wall_s)

    def deadlines(self) -> list[Instant]:
        """Return when ``wake`` is due."""
        again_at = self._commits.again_at
        return self._retention.deadlines() if again_at is None else [again_at]
