"""What a run found: one line per fault and protocol, and every law that did not hold."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from soak.ledger import Window

__all__ = ["Report", "Seen", "Trial"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one protocol did about one fault."""

    acknowledged: int
    """Messages that were sent and acknowledged while it lasted."""
    words: Counter[str]
    """Other ends of messages that were sent while it lasted."""
    disconnected: bool
    """Whether a client lost its connection, or did not get one."""
    back_s: float | None
    """From the end of the fault to the first acknowledgement of a message sent after it; None for not in time."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault."""

    fault: str
    window: Window
    """While it lasted."""
    seen: dict[str, Seen]
    """By protocol."""
    node_ended: bool = False
    """Whether the node was gone at the end of it."""


@dataclass(slots=True)
class Report:
    """A whole run; ``str`` of it is a table."""

    protocols: Sequence[str]
    trials: list[Trial] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """By protocol: messages with each claim."""
    failures: list[str] = field(default_factory=list)
    """Each law that did not hold, with what broke it."""
    figures: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return all of it in types that JSON has."""
        return {
            "trials": [
                {
                    "fault": each.fault,
                    "lasted_s": round(each.window.end_s - each.window.begin_s, 1),
                    "node_ended": each.node_ended,
                }
                | {name: _row(seen) for name, seen in each.seen.items()}
                for each in self.trials
            ],
            "counts": self.counts,
            "failures": self.failures,
            "figures": self.figures,
        }

    def __str__(self) -> str:
        lines = []
        for fault in dict.fromkeys(each.fault for each in self.trials):
            tried = [each for each in self.trials if each.fault == fault]
            ended = sum(each.node_ended for each in tried)
            lines += [f"{fault}: {len(tried)} times" + (f", the node has ended {ended} times" if ended else "")]
            lines += [f"    {name:<8} {_cell([each.seen[name] for each in tried])}" for name in self.protocols]
        for name, row in self.counts.items():
            lines += [f"{name}: " + ", ".join(f"{what} {count}" for what, count in row.items())]
        return "\n".join([*lines, self.figures, *(f"FAILED: {each}" for each in self.failures)])


def _row(seen: Seen) -> dict[str, Any]:
    back_s = None if seen.back_s is None else round(seen.back_s, 2)
    return {
        "acknowledged": seen.acknowledged,
        "words": dict(seen.words),
        "disconnected": seen.disconnected,
        "back_s": back_s,
    }


def _cell(seen: Sequence[Seen]) -> str:
    """Return how many were acknowledged meanwhile, other ends, and the longest time until it went on."""
    words = sum((each.words for each in seen), Counter[str]())
    ends = "".join(f", {count} {word}" for word, count in words.items())
    backs = [each.back_s for each in seen]
    late = (
        f"{max((each for each in backs if each is not None), default=0):.1f} s" if None not in backs else "not at all"
    )
    return f"{sum(each.acknowledged for each in seen)} acknowledged meanwhile{ends}; again after {late}"
