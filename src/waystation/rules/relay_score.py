"""Score of one relay for one client: a number from 0 to 1, and the parts it is computed from.

Strata's and Bhumi's clients, relays that read from others, and the pipeline ask it. The score is the weighted sum of
availability, performance and bootstrap rating, times integrity, minus deductions for recent errors. A client keeps its
scores to itself: RFC-0004 7 has no consensus score. The pipeline calls the same functions on recorded observations. All
functions are pure and take ``Observations``. RFC-0004 gives no formula; ours is in specs/strata.md 18.
"""

import math
from typing import Final, NamedTuple

__all__ = [
    "RECONNECTS_COUNTED",
    "Explanation",
    "Observations",
    "availability",
    "bootstrap",
    "deductions",
    "explain",
    "integrity",
    "latency",
    "performance",
    "score",
    "throughput",
]

RECONNECTS_COUNTED: Final = 5
"""More reconnects than this in an hour make nothing worse."""

# Every number below: specs/strata.md 18.
_CONNECTS_WEIGHT: Final = 0.6
_UPTIME_WEIGHT: Final = 0.4
_WANTED_ENOUGH_S: Final = 3_600
_LATENCY_BEST_MS: Final = 50.0
_LATENCY_WORST_MS: Final = 2_000.0
_THROUGHPUT_WORST: Final = 65_536.0
_THROUGHPUT_BEST: Final = 8_388_608.0
_LATENCY_WEIGHT: Final = 0.7
_THROUGHPUT_WEIGHT: Final = 0.3
_UNKNOWN: Final = 0.5
_VIOLATION_COST: Final = 0.34
_PROBES_PRIOR: Final = 4
_AVAILABILITY_WEIGHT: Final = 0.45
_PERFORMANCE_WEIGHT: Final = 0.35
_BOOTSTRAP_WEIGHT: Final = 0.20
_LIMITED_COST: Final = 0.12
_ERROR_COST: Final = 0.08
_RECONNECT_COST: Final = 0.02


class Observations(NamedTuple):
    """What a client knows of a relay from the last seven days; the defaults are a relay it never met."""

    ok: int = 0
    """Connects whose handshake succeeded."""
    fail: int = 0
    """Connects or handshakes that failed or timed out."""
    up_s: int = 0
    """Seconds connected."""
    want_s: int = 0
    """Seconds the client wanted to be connected."""
    latency_ms: float | None = None
    """Moving average of ping, AUTH and publish-to-OK times in milliseconds; None without a sample."""
    bytes_per_s: float | None = None
    """Moving average of media transfers of at least 64 KiB; None without a sample."""
    boot: float | None = None
    """Mean score, 0 to 1, that bootstrap snapshots give the relay; None when none names it."""
    violations: float = 0.0
    """Sum of 2^(-age / 24 h) over the integrity violations."""
    found: int = 0
    """Consistency probes answered with the packet."""
    missing: int = 0
    """Consistency probes for which the packet was absent twice."""
    reconnects: int = 0
    """Reconnects in the last hour."""
    recent_error: bool = False
    """A protocol error other than rate_limited in the last ten minutes."""
    limited: bool = False
    """Inside a retry_after, or rate_limited in the last ten minutes."""


class Explanation(NamedTuple):
    """The parts of a score, each 0 to 1 and by the letter that specs/strata.md 18 gives it."""

    availability: float
    """A."""
    latency: float
    """L."""
    throughput: float | None
    """T; None without a sample."""
    performance: float
    """P, made of L and T."""
    bootstrap: float
    """B."""
    integrity: float
    """I, the factor over the weighted sum of A, P and B."""
    deductions: float
    """What is taken off at the end, 0 to 0.3."""
    score: float
    """S."""


def score(observations: Observations) -> float:
    """Return the score S, 0 (worst) to 1; a relay never met has 0.5."""
    return explain(observations).score


def explain(observations: Observations) -> Explanation:
    """Return the score with every part of it."""
    reach, speed, boot = availability(observations), performance(observations), bootstrap(observations)
    honest, less = integrity(observations), deductions(observations)
    weighted = _AVAILABILITY_WEIGHT * reach + _PERFORMANCE_WEIGHT * speed + _BOOTSTRAP_WEIGHT * boot
    return Explanation(
        availability=reach,
        latency=latency(observations),
        throughput=throughput(observations),
        performance=speed,
        bootstrap=boot,
        integrity=honest,
        deductions=less,
        score=_clamp(honest * weighted - less),
    )


def availability(observations: Observations) -> float:
    """Return A: how often connecting works, and for how much of the wanted time the connection is established."""
    connects = (observations.ok + 1) / (observations.ok + observations.fail + 2)
    enough = observations.want_s >= _WANTED_ENOUGH_S
    uptime = _clamp(observations.up_s / observations.want_s) if enough else connects
    return _CONNECTS_WEIGHT * connects + _UPTIME_WEIGHT * uptime


def latency(observations: Observations) -> float:
    """Return L: 1 up to 50 ms, 0 from 2 s on, falling with the logarithm between; 0.5 without a sample."""
    if observations.latency_ms is None:
        return _UNKNOWN
    slower = math.log(max(observations.latency_ms, _LATENCY_BEST_MS) / _LATENCY_BEST_MS)
    return 1 - _clamp(slower / math.log(_LATENCY_WORST_MS / _LATENCY_BEST_MS))


def throughput(observations: Observations) -> float | None:
    """Return T: 0 up to 64 KiB/s, 1 from 8 MiB/s on, rising with the logarithm between; None without a sample."""
    if observations.bytes_per_s is None:
        return None
    faster = math.log2(max(observations.bytes_per_s, _THROUGHPUT_WORST) / _THROUGHPUT_WORST)
    return _clamp(faster / math.log2(_THROUGHPUT_BEST / _THROUGHPUT_WORST))


def performance(observations: Observations) -> float:
    """Return P: latency, and three parts in ten of throughput when there is a sample of it."""
    quick, wide = latency(observations), throughput(observations)
    return quick if wide is None else _LATENCY_WEIGHT * quick + _THROUGHPUT_WEIGHT * wide


def bootstrap(observations: Observations) -> float:
    """Return B: how the bootstrap snapshots rate the relay, 0.5 when they do not."""
    return _UNKNOWN if observations.boot is None else _clamp(observations.boot)


def integrity(observations: Observations) -> float:
    """Return I: 1 without violations and missing packets; three fresh violations make it 0."""
    honest = 1 - _clamp(_VIOLATION_COST * observations.violations)
    present = observations.found + _PROBES_PRIOR
    return honest * present / (present + observations.missing)


def deductions(observations: Observations) -> float:
    """Return what throttling, errors and reconnects of the last minutes cost."""
    reconnects = min(observations.reconnects, RECONNECTS_COUNTED)
    limited, failed = int(observations.limited), int(observations.recent_error)
    return _LIMITED_COST * limited + _ERROR_COST * failed + _RECONNECT_COST * reconnects


def _clamp(value: float) -> float:
    return min(max(value, 0.0), 1.0)
