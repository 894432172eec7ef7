"""Replay of recorded observations of one relay: its state, score and state changes at the time of each.

``pipeline.transforms.relay_history`` feeds it the journal's rows, oldest first; it reads no clock. A client evaluates a
relay every 60 s, but a journal only has the times of observations. The replay evaluates at the end of each minute with
an observation, and of the minute in which a ban ends. Minutes without an observation change nothing (PIPE-FOLD).
``until_s`` ends the replay and changes no state. Replays with different ends therefore agree on the period that both
cover (PIPE-UNTIL).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from waystation.rules.relay_observation import Observation, record
from waystation.rules.relay_score import Explanation, explain, score
from waystation.rules.relay_state import EVALUATION_S, Change, Counts, Reason, Standing, State, evaluate
from waystation.rules.relay_window import RelayWindow, counts, observations

__all__ = ["TIMES_MAX", "History", "RelayFold", "Transition", "fold"]

TIMES_MAX: Final = 1_000
"""Occurrences of one observation that are recorded; more equal ones of the same moment add nothing about a relay."""

_US_PER_S: Final = 1_000_000
_NONE_PENDING: Final = -1


class Transition(NamedTuple):
    """One change of state."""

    at_s: int
    before: State
    after: State
    reason: Reason
    score: float
    """At that moment."""
    observations: int
    """In the seven days before."""


@dataclass(frozen=True, slots=True)
class History:
    """What became of one relay."""

    standing: Standing
    explanation: Explanation
    """The score at the end, with its parts."""
    counts: Counts
    """At the end."""
    transitions: tuple[Transition, ...]
    """Oldest first."""

    @property
    def reason(self) -> Reason | None:
        """Why the state at the end began; None for a relay that was never moved."""
        return self.transitions[-1].reason if self.transitions else None


class RelayFold:
    """One relay while its observations are fed, oldest first."""

    __slots__ = ("_minute", "_transitions", "standing", "window")

    def __init__(self, standing: Standing, window: RelayWindow | None = None) -> None:
        """Begin with the state of a relay; without a window, nothing was observed yet."""
        self.standing = standing
        self.window = window if window is not None else RelayWindow()
        self._minute = _NONE_PENDING
        self._transitions: list[Transition] = []

    def feed(self, seen: Observation) -> None:
        """Take the next observation; what was due before it is evaluated first."""
        at_s = seen.at_us // _US_PER_S
        # Evaluations are due at full minutes, so only the first row of a minute can find one.
        minute = at_s // EVALUATION_S
        if minute != self._minute:
            self.pass_time(at_s)
            self._minute = minute
        for _ in range(min(seen.times, TIMES_MAX)):
            self.standing, change = record(self.window, self.standing, seen)
            if change is not None:
                self._note(change, score(observations(self.window, at_s)))

    def pass_time(self, now_s: int) -> None:
        """Evaluate what is due up to a moment."""
        while (due_s := self._due_s()) is not None and due_s <= now_s:
            if self._minute != _NONE_PENDING and due_s >= (self._minute + 1) * EVALUATION_S:
                self._minute = _NONE_PENDING
            self._evaluate(due_s)

    def history(self, until_s: int) -> History:
        """Return what became of the relay up to a moment that no observation reaches."""
        self.pass_time(until_s)
        found = counts(self.window, self.standing.cleared_s, until_s)
        return History(self.standing, explain(observations(self.window, until_s)), found, tuple(self._transitions))

    def _due_s(self) -> int | None:
        """Return when the next evaluation is due; None while nothing is pending."""
        due = [] if self._minute == _NONE_PENDING else [(self._minute + 1) * EVALUATION_S]
        if self.standing.state is State.BLACKLISTED:
            due.append(-(-self.standing.banned_until_s // EVALUATION_S) * EVALUATION_S)
        return min(due, default=None)

    def _evaluate(self, now_s: int) -> None:
        current = score(observations(self.window, now_s))
        found = counts(self.window, self.standing.cleared_s, now_s)
        self.standing, change = evaluate(self.standing, current, found, now_s)
        if change is not None:
            self._note(change, current)

    def _note(self, change: Change, current: float) -> None:
        seen = counts(self.window, self.standing.cleared_s, change.at_s).observations
        self._transitions.append(Transition(change.at_s, change.before, change.after, change.reason, current, seen))


def fold(seen: Iterable[Observation], until_s: int) -> History:
    """Return what became of a relay that was new, on probation, at its first observation.

    Args:
        seen: Every observation, ordered by ``at_us`` and ``order``; those at ``until_s`` or later do not count.
        until_s: Unix seconds.

    Cost: O(hours of the window) for each minute with observations.
    """
    state: RelayFold | None = None
    until_us = until_s * _US_PER_S
    for each in seen:
        if each.at_us >= until_us:
            break
        if state is None:
            state = RelayFold(Standing(State.PROBATION, each.at_us // _US_PER_S))
        state.feed(each)
    return (state or RelayFold(Standing(State.PROBATION, until_s))).history(until_s)
