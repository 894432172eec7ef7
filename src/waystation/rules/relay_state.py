"""State machine of one relay at a client: four states, evaluated every 60 s and moved by failures at once.

::

"Good" is a score of at least 0.65 in three consecutive evaluations. "Poor" is a score below 0.50 in two. Scores between
the two change nothing, which avoids flapping. Each ban lasts twice as long as the one before, at most 7 days. A relay
that the user has pinned is flagged instead of banned. Functions are pure: each takes a ``Standing`` and returns the
next one, most with the ``Change`` for the application (RFC-0004 7; thresholds: specs/strata.md 18).

"Good" is a score of at least 0.65 in three consecutive evaluations, "poor" below 0.50 in two; scores between change
nothing, which avoids flapping. Strata's client and relay and the pipeline's replay call it: each function takes a
``Standing`` and returns the next one, most with the ``Change`` for the application. Each ban lasts twice as long as the
one before, at most 7 days; a relay that the user pinned is flagged instead (RFC-0004 7; thresholds: specs/strata.md
18).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from waystation.core.errors import LocalError

__all__ = [
    "BAN_MAX_S",
    "EVALUATION_S",
    "VIOLATIONS_WINDOW_S",
    "Change",
    "Counts",
    "Incident",
    "Reason",
    "Standing",
    "State",
    "evaluate",
    "on_failure",
    "on_success",
    "on_violation",
    "pin",
    "sample",
    "standing_from_plain",
    "standing_to_plain",
    "unpin",
]

# Every number below: specs/strata.md 18.
EVALUATION_S: Final = 60
"""Seconds from one evaluation to the next."""
BAN_MAX_S: Final = 7 * 86_400
"""The longest ban."""
VIOLATIONS_WINDOW_S: Final = 86_400
"""Violations count towards a ban for this long."""
_GOOD: Final = 0.65
_GOOD_RUNNING: Final = 3
_POOR: Final = 0.50
_POOR_RUNNING: Final = 2
_VERY_LOW: Final = 0.15
_VERY_LOW_RUNNING: Final = 10
_OBSERVATIONS_MIN: Final = 5
_TRIAL_S: Final = 300
_ACTIVE_MIN_S: Final = 60
_FAILURES_BACKUP: Final = 3
_FAILURES_BAN: Final = 10
_VIOLATIONS_BAN: Final = 3
_BAN_FIRST_S: Final = 3_600
_CLEAN_S: Final = 30 * 86_400


class State(Enum):
    """How far a relay is trusted with work."""

    PROBATION = "probation"
    """New, or back from a ban: few reads, never alone for a publish."""
    ACTIVE = "active"
    """Preferred for reads and publishes."""
    BACKUP = "backup"
    """Works, but is used when active relays do not suffice."""
    BLACKLISTED = "blacklisted"
    """Not connected to until the ban is over."""


class Incident(Enum):
    """What a relay can do that a client notes; only the first four are integrity violations."""

    BAD_PACKET_ID = "bad_packet_id"
    """The id is not the packet's, a declared provenance_downgrade undone."""
    BAD_SIGNATURE = "bad_signature"
    """The signature is not the author's, a declared provenance_downgrade undone."""
    EXPIRED_PACKET = "expired_packet"
    OUTSIDE_FILTER = "outside_filter"
    RATE_LIMITED = "rate_limited"
    MISSING_PACKET = "missing_packet"
    UNKNOWN_FIELD = "unknown_field"
    DUPLICATE = "duplicate"
    UNRESOLVABLE_AUTHOR = "unresolvable_author"

    @property
    def is_violation(self) -> bool:
        """Whether an honest relay could not have done it. Spec: strata.md 18."""
        return self in _VIOLATIONS


_VIOLATIONS: Final = (
    Incident.BAD_PACKET_ID,
    Incident.BAD_SIGNATURE,
    Incident.EXPIRED_PACKET,
    Incident.OUTSIDE_FILTER,
)


class Reason(Enum):
    """Why a standing changed."""

    PROVED_GOOD = "proved_good"
    NOT_GOOD_ENOUGH = "not_good_enough"
    LOW_SCORE = "low_score"
    FAILURES = "failures"
    VIOLATIONS = "violations"
    UNREACHABLE = "unreachable"
    VERY_LOW_SCORE = "very_low_score"
    BAN_OVER = "ban_over"
    SAMPLED = "sampled"
    FLAG_LIFTED = "flag_lifted"


_TEXTS: Final = {
    Reason.PROVED_GOOD: f"score at least {_GOOD} in {_GOOD_RUNNING} evaluations running",
    Reason.NOT_GOOD_ENOUGH: f"score below {_GOOD} after {_TRIAL_S} s on probation",
    Reason.LOW_SCORE: f"score below {_POOR} in {_POOR_RUNNING} evaluations running",
    Reason.FAILURES: f"{_FAILURES_BACKUP} failures or timeouts in a row",
    Reason.VIOLATIONS: f"{_VIOLATIONS_BAN} integrity violations within 24 h",
    Reason.UNREACHABLE: f"{_FAILURES_BAN} failures or timeouts in a row",
    Reason.VERY_LOW_SCORE: f"score below {_VERY_LOW} in {_VERY_LOW_RUNNING} evaluations running",
    Reason.BAN_OVER: "the ban is over",
    Reason.SAMPLED: "untried for long, taken from a bootstrap list again",
    Reason.FLAG_LIFTED: "good again, the flag is lifted",
}


class Counts(NamedTuple):
    """What an evaluation needs besides the score."""

    observations: int
    """Everything observed of the relay in the window."""
    violations: int
    """Integrity violations of the last 24 h, without those before ``Standing.cleared_s``."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of one relay with this client; times are whole Unix seconds."""

    state: State
    since_s: int
    """When the state began."""
    good_running: int = 0
    """Evaluations running with a score of at least 0.65, 0 to 3."""
    poor_running: int = 0
    """Evaluations running with a score below 0.50, 0 to 2."""
    very_low_running: int = 0
    """Evaluations running with a score below 0.15, 0 to 10; survives changes of state other than a ban."""
    failures_running: int = 0
    """Failures or timeouts since the last success, 0 to 10."""
    strikes: int = 0
    """Bans so far, less one for each clean 30 days."""
    clean_since_s: int = 0
    """The next strike falls 30 days after this: the last fall, violation or end of a ban."""
    banned_until_s: int = 0
    """No connect before this while blacklisted."""
    cleared_s: int = 0
    """Violations up to here are paid for by a ban."""
    pinned: bool = False
    """The user wants this relay, whatever it does."""
    flagged: Reason | None = None
    """Why a pinned relay would have been banned."""


class Change(NamedTuple):
    """One event for the application."""

    before: State
    after: State
    """Equal to ``before`` when a pinned relay was flagged or its flag lifted."""
    reason: Reason
    text: str
    """Part of a sentence for the user."""
    at_s: int


Step = tuple[Standing, Change | None]


def evaluate(standing: Standing, score: float, counts: Counts, now_s: int) -> Step:
    """Return the standing after one of the evaluations due every 60 s.

    Args:
        standing: Before.
        score: 0 to 1, of now.
        counts: Of now; ``relay_window.counts`` gives them.
        now_s: Unix seconds.
    """
    standing = _forgive(standing, now_s)
    if standing.state is State.BLACKLISTED:
        if now_s < standing.banned_until_s:
            return standing, None
        return _move(standing, State.PROBATION, Reason.BAN_OVER, now_s)
    standing = _count(standing, score)
    reason = _ban_reason(standing, counts)
    if reason is not None and standing.flagged is None:
        return _ban(standing, reason, now_s)
    if reason is None and standing.flagged is not None and standing.good_running >= _GOOD_RUNNING:
        return _lift(standing, now_s)
    if standing.state is State.ACTIVE:
        return _evaluate_active(standing, now_s)
    return _evaluate_candidate(standing, score, counts, now_s)


def on_failure(standing: Standing, now_s: int) -> Step:
    """Return the standing after a connect, handshake or request failed or timed out; a ban goes on unchanged."""
    if standing.state is State.BLACKLISTED:
        return standing, None
    failures = min(standing.failures_running + 1, _FAILURES_BAN)
    standing = replace(standing, failures_running=failures)
    if failures >= _FAILURES_BAN and standing.flagged is None:
        return _ban(standing, Reason.UNREACHABLE, now_s)
    if failures >= _FAILURES_BACKUP and standing.state is State.ACTIVE:
        return _move(standing, State.BACKUP, Reason.FAILURES, now_s)
    return standing, None


def on_success(standing: Standing) -> Standing:
    """Return the standing after a connect or request succeeded: failures are counted from zero again."""
    return replace(standing, failures_running=0)


def on_violation(standing: Standing, incident: Incident, violations: int, now_s: int) -> Step:
    """Return the standing after an incident; only integrity violations change it.

    The caller drops the packet and, at the first violation, closes the connection.

    Args:
        standing: Before.
        incident: What the relay did.
        violations: As in ``Counts``, this one included.
        now_s: Unix seconds.
    """
    if not incident.is_violation:
        return standing, None
    standing = replace(standing, clean_since_s=max(standing.clean_since_s, now_s))
    if violations < _VIOLATIONS_BAN or standing.flagged is not None or standing.state is State.BLACKLISTED:
        return standing, None
    return _ban(standing, Reason.VIOLATIONS, now_s)


def sample(standing: Standing, now_s: int) -> Step:
    """Return the standing of a relay that churn tries again; a ban and active service are not cut short."""
    if standing.state is not State.BACKUP:
        return standing, None
    return _move(standing, State.PROBATION, Reason.SAMPLED, now_s)


def pin(standing: Standing) -> Standing:
    """Return the standing of a relay that the user wants; a ban it has stays visible as its state."""
    return replace(standing, pinned=True)


def unpin(standing: Standing) -> Standing:
    """Return the standing of a relay like any other; the next evaluation judges it anew."""
    return replace(standing, pinned=False, flagged=None)


def standing_to_plain(standing: Standing) -> dict[str, Any]:
    """Return the standing as a dict of numbers and texts, as JSON takes it."""
    flagged = None if standing.flagged is None else standing.flagged.value
    return {**asdict(standing), "state": standing.state.value, "flagged": flagged}


def standing_from_plain(plain: Mapping[str, Any]) -> Standing:
    """Return what ``standing_to_plain`` was given; raises LocalError for anything else."""
    try:
        flagged = None if plain["flagged"] is None else Reason(plain["flagged"])
        return Standing(**{**plain, "state": State(plain["state"]), "flagged": flagged})
    except (KeyError, TypeError, ValueError) as error:
        raise LocalError(f"this is no standing of a relay: {error}") from error


def _forgive(standing: Standing, now_s: int) -> Standing:
    # Strata 18 does not define "clean"; ours: neither banned nor in violation.
    periods = min(max(now_s - standing.clean_since_s, 0) // _CLEAN_S, standing.strikes)
    if not periods:
        return standing
    later = standing.clean_since_s + periods * _CLEAN_S
    return replace(standing, strikes=standing.strikes - periods, clean_since_s=later)


def _count(standing: Standing, score: float) -> Standing:
    good = min(standing.good_running + 1, _GOOD_RUNNING) if score >= _GOOD else 0
    poor = min(standing.poor_running + 1, _POOR_RUNNING) if score < _POOR else 0
    very_low = min(standing.very_low_running + 1, _VERY_LOW_RUNNING) if score < _VERY_LOW else 0
    return replace(standing, good_running=good, poor_running=poor, very_low_running=very_low)


def _ban_reason(standing: Standing, counts: Counts) -> Reason | None:
    if counts.violations >= _VIOLATIONS_BAN:
        return Reason.VIOLATIONS
    if standing.failures_running >= _FAILURES_BAN:
        return Reason.UNREACHABLE
    return Reason.VERY_LOW_SCORE if standing.very_low_running >= _VERY_LOW_RUNNING else None


def _evaluate_active(standing: Standing, now_s: int) -> Step:
    if standing.poor_running >= _POOR_RUNNING and now_s - standing.since_s >= _ACTIVE_MIN_S:
        return _move(standing, State.BACKUP, Reason.LOW_SCORE, now_s)
    return standing, None


def _evaluate_candidate(standing: Standing, score: float, counts: Counts, now_s: int) -> Step:
    if counts.observations < _OBSERVATIONS_MIN or now_s - standing.since_s < _TRIAL_S:
        return standing, None
    if standing.good_running >= _GOOD_RUNNING:
        return _move(standing, State.ACTIVE, Reason.PROVED_GOOD, now_s)
    if standing.state is State.PROBATION and score < _GOOD:
        return _move(standing, State.BACKUP, Reason.NOT_GOOD_ENOUGH, now_s)
    return standing, None


def _move(standing: Standing, state: State, reason: Reason, now_s: int) -> Step:
    moved = replace(standing, state=state, since_s=now_s, good_running=0, poor_running=0)
    return moved, Change(standing.state, state, reason, _TEXTS[reason], now_s)


def _ban(standing: Standing, reason: Reason, now_s: int) -> Step:
    """Blacklist a relay, or flag it when it is pinned."""
    if standing.pinned:
        text = f"flagged, not blacklisted, because it is pinned: {_TEXTS[reason]}"
        return replace(standing, flagged=reason), Change(standing.state, standing.state, reason, text, now_s)
    strikes = standing.strikes + 1
    until_s = now_s + _ban_s(strikes)
    banned = replace(
        standing,
        very_low_running=0,
        failures_running=0,
        strikes=strikes,
        clean_since_s=until_s,
        banned_until_s=until_s,
        cleared_s=now_s,
    )
    return _move(banned, State.BLACKLISTED, reason, now_s)


def _ban_s(strikes: int) -> int:
    # The cap is reached long before the exponent is; without it the power itself would grow with every strike.
    return min(_BAN_FIRST_S << min(strikes - 1, BAN_MAX_S.bit_length()), BAN_MAX_S)


def _lift(standing: Standing, now_s: int) -> Step:
    change = Change(standing.state, standing.state, Reason.FLAG_LIFTED, _TEXTS[Reason.FLAG_LIFTED], now_s)
    return replace(standing, flagged=None), change
