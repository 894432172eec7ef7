"""Colours of the plots, readable on light and dark backgrounds; no information depends on colour alone.

The plot modules take them for series and states.
"""

from typing import Final

__all__ = ["CATEGORIES", "OTHER", "OUTCOMES", "REFUSALS", "SEVERE", "STATES"]

STATES: Final = {"active": "#2f9e6e", "backup": "#9aa0a6", "probation": "#e0a030", "blacklisted": "#d64550"}
"""A relay's states."""

OUTCOMES: Final = {
    "ok": "#2f9e6e",
    "cached": "#7cc8a8",
    "offline": "#e0a030",
    "timeout": "#e0702f",
    "bad_capability": "#d64550",
    "gone": "#9b72b0",
    "refused": "#a8485c",
    "unfinished": "#9aa0a6",
    "accepted": "#2f9e6e",
    "duplicate": "#9aa0a6",
}
"""Outcomes and the two verdicts that are no refusal, in the order they are stacked."""

REFUSALS: Final = ("#d64550", "#e0702f", "#e0a030", "#9b72b0", "#a8485c", "#4f83cc", "#a9825a", "#d58aa0")
"""Verdicts that say no, in the order of their names."""
SEVERE: Final = ("#d64550", "#e0a030", "#9b72b0", "#4f83cc", "#a9825a", "#d58aa0")
"""Rules of abuse, in the order of their names."""
CATEGORIES: Final = ("#4f83cc", "#e0702f", "#2f9e6e", "#9b72b0", "#e0a030", "#3aa6b0", "#d58aa0", "#a9825a", "#9aa0a6")
"""Things without a meaning of good or bad."""
OTHER: Final = "#4f83cc"
