"""Text for data values in the report: state reasons, policy actions and short ids.

The report's sections call it. An unknown value stays as it is, since a table may come from a newer version.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final

from waystation.rules.relay_state import Reason

__all__ = ["ACTIONS", "reason_text", "short_names"]

_REASONS: Final = {
    Reason.PROVED_GOOD: "its score proved good",
    Reason.NOT_GOOD_ENOUGH: "its score was not good enough on probation",
    Reason.LOW_SCORE: "its score stayed low",
    Reason.FAILURES: "failures in a row",
    Reason.VIOLATIONS: "integrity violations: it did what an honest relay could not have done",
    Reason.UNREACHABLE: "many failures in a row: it could not be reached",
    Reason.VERY_LOW_SCORE: "its score stayed very low",
    Reason.BAN_OVER: "its ban is over",
    Reason.SAMPLED: "it was untried for long and is tried again",
    Reason.FLAG_LIFTED: "it is good again",
}

ACTIONS: Final = {
    "pow": "{amount:,} more bits of proof of work",
    "rate": "at most {amount:,} messages a minute",
    "block": "blocked",
    "none": "none",
}
"""What a policy's rule does, with its amount."""

_SHORT: Final = 8
_TEXTS: Final = {reason.value: text for reason, text in _REASONS.items()}


def reason_text(reason: str | None) -> str:
    """Return why a relay came into its state; a reason that is not known stays as it is."""
    return "it was never moved" if reason is None else _TEXTS.get(reason, reason)


def short_names(ids: Collection[str]) -> dict[str, str]:
    """Return each id's first eight digits; all of them when another begins alike, so that none hides another."""
    counts = Counter(each[:_SHORT] for each in ids)
    return {each: each[:_SHORT] if counts[each[:_SHORT]] == 1 else each for each in ids}
