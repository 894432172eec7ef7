"""Backtest report: the accepted events that a policy would have refused, as a check before it is enforced.

``jobs.backtest`` collates the counts, ``waystation pipeline backtest`` prints the result. The report names events by
reference only. Each rule is applied to all requested days, regardless of its validity period. A rule about a source
network cannot be tested, because accepted events are recorded without their network.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from waystation.rules.policy import PolicyRule, Subject

__all__ = ["EXAMPLES_MAX", "BacktestReport", "Example", "Item", "RuleResult", "collate"]

EXAMPLES_MAX: Final = 5
"""Refused events that are named for each rule: the first ones."""

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_HEADINGS: Final = ("rule", "subject", "action", "amount", "accepted", "would refuse", "share")


class Item(Enum):
    """What was accepted."""

    PACKET = "packet"
    """By its author."""
    WORK = "work"
    """By actor; work for a relay names no actor."""
    DELIVERY = "delivery"
    """By its recipient: who sent it is not known."""


class Example(NamedTuple):
    """One event that would have been refused."""

    event_id: str
    """32 hexadecimal digits: ``event_id`` of ``bronze.events``."""
    at: str
    """UTC, ISO 8601."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What one rule would have done."""

    rule: PolicyRule
    accepted: Mapping[str, int] = field(default_factory=dict)
    """What was accepted of its subject, by ``Item``."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """How much of that it would have refused, by ``Item``."""
    examples: tuple[Example, ...] = ()

    @property
    def is_tried(self) -> bool:
        """Whether recorded events can support this rule."""
        return self.rule.subject_kind == Subject.PEER.value

    def document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "rule": self.rule.rule,
            "subject_kind": self.rule.subject_kind,
            "subject_ref": self.rule.subject_ref.hex(),
            "action": self.rule.action.value,
            "amount": self.rule.amount,
            "mode": self.rule.mode.value,
            "tried": self.is_tried,
            "accepted": dict(self.accepted),
            "refused": dict(self.refused),
            "examples": [example._asdict() for example in self.examples],
        }

    def cells(self) -> tuple[str, ...]:
        """Return one line of the table."""
        accepted, refused = sum(self.accepted.values()), sum(self.refused.values())
        share = f"{100 * refused / accepted:.1f} %" if accepted else "-"
        counts = (f"{accepted:,}", f"{refused:,}", share) if self.is_tried else ("-", "-", "not tried")
        subject = f"{self.rule.subject_kind} {self.rule.subject_ref.hex()[:8]}"
        return (self.rule.rule, subject, self.rule.action.value, str(self.rule.amount), *counts)


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """What a whole policy would have done."""

    dates: tuple[datetime.date, ...]
    """Days that were looked at, oldest first."""
    results: tuple[RuleResult, ...]
    """One for each rule, in the order of the rules."""

    def document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "dates": [date.isoformat() for date in self.dates],
            "refused": sum(sum(result.refused.values()) for result in self.results),
            "rules": [result.document() for result in self.results],
        }

    def table(self) -> str:
        """Return a table as text; columns are as wide as they must be."""
        if not self.results:
            return "no rules"
        lines = [_HEADINGS, *(result.cells() for result in self.results)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
        return "\n".join(_aligned(line, widths) for line in lines)


def collate(
    dates: Sequence[datetime.date],
    rules: Sequence[PolicyRule],
    counts: Iterable[tuple[int, str, int, int]],
    examples: Iterable[tuple[int, bytes, int]],
) -> BacktestReport:
    """Put together what was counted.

    Args:
        dates: Days that were looked at.
        rules: The policy.
        counts: Number of the rule in ``rules``, ``Item``, how many were accepted, how many of them refused.
        examples: Number of the rule, event_id and time in microseconds since 1970, in any order.
    """
    accepted: list[dict[str, int]] = [{} for _ in rules]
    refused: list[dict[str, int]] = [{} for _ in rules]
    named: list[list[Example]] = [[] for _ in rules]
    for number, item, accepted_count, refused_count in sorted(counts):
        accepted[number][item], refused[number][item] = accepted_count, refused_count
    for number, event_id, at_us in sorted(examples, key=lambda example: (example[0], example[2], example[1])):
        at = _EPOCH + datetime.timedelta(microseconds=at_us)
        named[number].append(Example(event_id.hex(), at.isoformat()))
    return BacktestReport(
        tuple(dates),
        tuple(
            RuleResult(rule, accepted[number], refused[number], tuple(named[number][:EXAMPLES_MAX]))
            for number, rule in enumerate(rules)
        ),
    )


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    words = len(_HEADINGS) - 4  # words stand left, numbers right
    cells = [
        text.ljust(width) if column < words else text.rjust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
