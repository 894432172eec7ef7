"""What a client remembers of one relay: its state and ban (standing), its score, and statistics of seven days.

Strata's ``RelayPool`` keeps one for each relay and ``sdk.relay_scores`` saves them; ``candidate`` gives what
``relay_choice`` chooses by.
"""

from dataclasses import dataclass
from typing import Final, Self

from waystation.rules.relay_choice import Candidate
from waystation.rules.relay_state import Standing, State
from waystation.rules.relay_window import RelayWindow

__all__ = ["RelayEntry"]

_NEW_SCORE: Final = 0.5  # specs/strata.md 18: fresh with no data


@dataclass(frozen=True, slots=True)
class RelayEntry:
    """One relay; times are whole Unix seconds."""

    url: str
    relay_id: str | None
    """DID of the relay, pinned on first use; None before."""
    standing: Standing
    score: float
    """0 to 1, as of the last save."""
    window: RelayWindow
    last_tried_s: int | None = None
    """When a connect was tried last; None for never."""
    updated_s: int = 0
    """When the entry was saved; the table sets it."""

    @classmethod
    def new(cls, url: str, now_s: int) -> Self:
        """Return the entry of a relay never met: on probation, with nothing observed."""
        return cls(url, None, Standing(State.PROBATION, now_s), _NEW_SCORE, RelayWindow())

    @property
    def candidate(self) -> Candidate:
        """The relay as ``relay_choice`` takes it."""
        return Candidate(self.url, self.standing.state, self.score, self.standing.pinned, self.last_tried_s)
