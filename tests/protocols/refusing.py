"""A store that refuses commits, for machines that must live with it."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from waystation.core.effects import Commit
from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.instant import Instant
from waystation.core.records import Change
from waystation.store.memory import MemoryStore

__all__ = ["RefusingStore", "commit_to"]


class RefusingStore(MemoryStore):
    """A memory store that takes nothing while it ``refuses``, or refuses at random."""

    def __init__(self, rng: random.Random | None = None, chance: float = 0.5) -> None:
        """Take everything at first; with ``rng`` each commit is refused with this chance."""
        super().__init__()
        self.refuses = False
        self._rng = rng
        self._chance = chance

    def commit(self, changes: Sequence[Change]) -> None:
        """Keep all changes, or none."""
        if self.refuses or (self._rng is not None and self._rng.random() < self._chance):
            raise StoreFault("the disk is full", StoreFaultKind.FULL)
        super().commit(changes)


def commit_to(store: Any, machine: Any, effect: Commit, now: Instant) -> Callable[[int, Instant], None]:
    """Let a store answer a commit of a machine; return the input that was called."""
    try:
        store.commit(effect.changes)
    except StoreFault:
        answer = machine.not_committed
    else:
        answer = machine.committed
    answer(effect.ticket, now)
    return answer
