"""Collects the events of one time slot for every node, and keeps events that belong to a later slot.

The generators put events in, the writer takes each slot out. Generators use true time. A node with a fast clock writes
its own time; ``hour`` maps a moment to the hour that the node's records will show.
"""

from collections.abc import Callable
from typing import NamedTuple

from waystation.journal.archive import ArchivedPacket
from waystation.journal.events import Event
from waystation.sim.workload.plan import HOUR_US, SECOND_US, Plan
from waystation.sim.workload.truth import Truth

__all__ = ["Stage"]

_Hook = Callable[[], None]


class _Waiting(NamedTuple):
    node: int
    event: Event | ArchivedPacket
    done: _Hook | None
    lost: _Hook | None


class Stage:
    """One slot after the other; ``out`` and ``archived`` hold what each node records in it."""

    def __init__(self, plan: Plan, truth: Truth) -> None:
        self.plan = plan
        self.truth = truth
        self.slot = -1
        self.begin_us = self.end_us = plan.start_us
        self.out: list[list[Event]] = [[] for _ in plan.nodes]
        self.archived: list[list[ArchivedPacket]] = [[] for _ in plan.nodes]
        self._waiting: list[_Waiting] = []

    def advance(self) -> None:
        """Go on to the next slot: empty the lists and put in what waited for it."""
        self.slot += 1
        self.begin_us, self.end_us = self.end_us, self.end_us + self.plan.slot_us
        self.out = [[] for _ in self.plan.nodes]
        self.archived = [[] for _ in self.plan.nodes]
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self.later(*each)

    def later(
        self, node: int, event: Event | ArchivedPacket, done: _Hook | None = None, lost: _Hook | None = None
    ) -> None:
        """Let a node record something at its time, in this slot or a later one.

        Args:
            node: Who.
            event: What.
            done: Called once it is recorded.
            lost: Called when the node is killed before it could be; without it, a kill does not prevent it.
        """
        if event.ts_us >= self.end_us:
            self._waiting.append(_Waiting(node, event, done, lost))
            return
        if isinstance(event, ArchivedPacket):
            self.archived[node].append(event)
        else:
            self.out[node].append(event)
        if done is not None:
            done()

    def kill(self, node: int) -> None:
        """Forget what a node meant to record after this slot."""
        self._drop(lambda each: each.node == node)

    def close(self) -> None:
        """Nothing follows: what still waits is never recorded."""
        assert all(each.lost is not None for each in self._waiting)
        self._drop(lambda _: True)

    def hour(self, node: int, at_us: int) -> int:
        """Return the hour, in Unix seconds, that a moment has on a node's clock."""
        return (at_us + self.plan.nodes[node].skew_us) // HOUR_US * (HOUR_US // SECOND_US)

    def _drop(self, concerns: Callable[[_Waiting], bool]) -> None:
        kept = []
        for each in self._waiting:
            if each.lost is not None and concerns(each):
                each.lost()
            else:
                kept.append(each)
        self._waiting = kept
