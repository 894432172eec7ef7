"""What one life of a simulated node still has to do."""

from collections import deque
from dataclasses import dataclass, field

from waystation.core.effects import Close, Effect
from waystation.core.instant import Instant
from waystation.core.records import Change
from waystation.sim.node_end import NodeEnd

__all__ = ["Outbox"]


@dataclass(slots=True)
class Outbox:
    """Everything between a node's effects and the world; a crash forgets all of it."""

    behind: dict[str, deque[Effect | int]] = field(default_factory=dict)
    """Effects that wait for records, by protocol; a number stands for the record that has it."""
    uncommitted: list[Change] = field(default_factory=list)
    commits: deque[tuple[int, str, int]] = field(default_factory=deque)
    """Number of the last change, protocol and ticket of each ``Commit`` that is not answered."""
    appended: int = 0
    committed: int = 0
    outgoing: dict[NodeEnd, list[bytes]] = field(default_factory=dict)
    receipts: list[NodeEnd] = field(default_factory=list)
    closing: list[Close] = field(default_factory=list)
    turn_number: int | None = None
    timer_number: int | None = None
    timer_at: Instant | None = None
    progress_number: int | None = None
