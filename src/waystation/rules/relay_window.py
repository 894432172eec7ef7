"""Sliding window of observations of one relay over the last seven days, in bounded memory.

A client or relay keeps one for each relay that it knows: ``record_*`` put events in, ``observations`` gives what
``relay_score`` computes from. Counters are kept in 168 hourly buckets, and the oldest hour is dropped as a whole.
Violations and reconnects keep their times, because the score weighs them by age; both lists are bounded. Latency and
throughput are moving averages, ignored seven days after their last sample. Times are Unix seconds, because the window
survives a restart. After the clock is set back, observations with a future time do not count.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from waystation.core.errors import LocalError
from waystation.rules.relay_score import RECONNECTS_COUNTED, Observations
from waystation.rules.relay_state import VIOLATIONS_WINDOW_S, Counts, Incident

__all__ = [
    "HOURS_MAX",
    "MEDIA_BYTES_MIN",
    "VIOLATIONS_MAX",
    "RelayWindow",
    "counts",
    "observations",
    "window_from_plain",
    "window_to_plain",
]

HOURS_MAX: Final = 168
"""Hours in a window, the one that runs included: seven days (RFC-0004 7)."""
VIOLATIONS_MAX: Final = 64
"""Violations whose time is kept; three fresh ones already make the integrity 0, so older ones above this may go."""
MEDIA_BYTES_MIN: Final = 65_536
"""Smaller transfers measure latency, not throughput (specs/strata.md 18)."""

_HOUR_S: Final = 3_600
_WINDOW_S: Final = HOURS_MAX * _HOUR_S
_ALPHA: Final = 0.2  # specs/strata.md 18
_HALF_LIFE_S: Final = 86_400  # specs/strata.md 18: V = sum of 2^(-age / 24 h)
_RECENT_S: Final = 600  # specs/strata.md 18: "in the last 10 min"
_RECONNECTS_S: Final = 3_600  # specs/strata.md 18: "in the last hour"
_RETRY_AFTER_MAX_S: Final = _WINDOW_S  # ours: no relay makes itself limited for longer than we remember it
_NEVER: Final = -1
_FORMAT: Final = 1
_OK, _FAIL, _UP, _WANT, _FOUND, _MISSING, _SAMPLES = range(7)
_COLUMNS_COUNT: Final = 7
_LISTS: Final = ("buckets", "violations_s", "reconnects_s")


class RelayWindow:
    """The sliding window of one relay; it only records, ``observations`` and ``counts`` read it."""

    __slots__ = (
        "boot",
        "buckets",
        "bytes_per_s",
        "bytes_per_s_at_s",
        "error_at_s",
        "latency_at_s",
        "latency_ms",
        "limited_at_s",
        "reconnects_s",
        "retry_until_s",
        "violations_s",
    )

    def __init__(self) -> None:
        self.buckets: dict[int, list[int]] = {}
        """Hour since 1970 to ok, fail, up seconds, wanted seconds, found, missing, samples; at most 168."""
        self.latency_ms = 0.0
        self.latency_at_s = _NEVER
        self.bytes_per_s = 0.0
        self.bytes_per_s_at_s = _NEVER
        self.boot: float | None = None
        self.violations_s: list[int] = []
        """Times of integrity violations, oldest first, at most ``VIOLATIONS_MAX``."""
        self.reconnects_s: list[int] = []
        """Times of the last reconnects, oldest first, at most five: the score counts no more."""
        self.error_at_s = _NEVER
        self.limited_at_s = _NEVER
        self.retry_until_s = _NEVER

    def record_connect(self, succeeded: bool, now_s: int) -> None:
        """Record the outcome of a connect with its handshake."""
        self._bucket(now_s)[_OK if succeeded else _FAIL] += 1

    def record_reconnect(self, now_s: int) -> None:
        """Record that a lost connection had to be made again; its outcome is recorded separately."""
        self.reconnects_s = [*self.reconnects_s, now_s][-RECONNECTS_COUNTED:]

    def record_wanted(self, start_s: int, end_s: int, connected: bool) -> None:
        """Record a span in which the client wanted to be connected, and whether it was.

        Args:
            start_s: First second; spans must not overlap.
            end_s: The second after the last one.
            connected: For the whole span.

        Cost: O(hours of the span), at most 168.
        """
        at_s = max(start_s, (end_s // _HOUR_S - HOURS_MAX + 1) * _HOUR_S)
        while at_s < end_s:
            next_s = min(end_s, (at_s // _HOUR_S + 1) * _HOUR_S)
            bucket = self._bucket(at_s, end_s)
            bucket[_WANT] += next_s - at_s
            bucket[_UP] += next_s - at_s if connected else 0
            at_s = next_s

    def record_latency(self, latency_ms: float, now_s: int) -> None:
        """Record how long a ping, an AUTH or a publish took to be answered, in milliseconds."""
        self._bucket(now_s)[_SAMPLES] += 1
        known = _is_within(self.latency_at_s, now_s, _WINDOW_S)
        self.latency_ms = _average(self.latency_ms, latency_ms) if known else latency_ms
        self.latency_at_s = now_s

    def record_transfer(self, size_bytes: int, duration_ms: float, now_s: int) -> None:
        """Record a transfer of media; one below ``MEDIA_BYTES_MIN`` or without a duration is ignored."""
        if size_bytes < MEDIA_BYTES_MIN or duration_ms <= 0:
            return
        self._bucket(now_s)[_SAMPLES] += 1
        known = _is_within(self.bytes_per_s_at_s, now_s, _WINDOW_S)
        measured = size_bytes * 1_000 / duration_ms
        self.bytes_per_s = _average(self.bytes_per_s, measured) if known else measured
        self.bytes_per_s_at_s = now_s

    def record_probe(self, found: bool, now_s: int) -> None:
        """Record the verdict of a consistency probe: the packet was there, or absent twice."""
        self._bucket(now_s)[_FOUND if found else _MISSING] += 1

    def record_incident(self, incident: Incident, now_s: int) -> None:
        """Record a violation or a throttling; every other incident leaves no trace in the score."""
        if incident.is_violation:
            kept = [at_s for at_s in self.violations_s if _is_within(at_s, now_s, _WINDOW_S)]
            self.violations_s = [*kept, now_s][-VIOLATIONS_MAX:]
        elif incident is Incident.RATE_LIMITED:
            self.limited_at_s = now_s

    def record_retry_after(self, seconds: int, now_s: int) -> None:
        """Record that the relay asked for a pause, in seconds."""
        self.retry_until_s = now_s + min(seconds, _RETRY_AFTER_MAX_S)

    def record_error(self, now_s: int) -> None:
        """Record a protocol error other than rate_limited."""
        self.error_at_s = now_s

    def record_boot(self, scores: Iterable[float]) -> None:
        """Record the ratings of the snapshots, 0 to 1 each; none removes the record."""
        given = list(scores)
        self.boot = sum(given) / len(given) if given else None

    def _bucket(self, at_s: int, now_s: int | None = None) -> list[int]:
        now_hour = (at_s if now_s is None else now_s) // _HOUR_S
        hour = at_s // _HOUR_S
        if hour not in self.buckets:
            # Only here can the window grow, so only here must the hours that fell out of it go.
            self.buckets = {each: self.buckets[each] for each in self.buckets if 0 <= now_hour - each < HOURS_MAX}
            self.buckets[hour] = [0] * _COLUMNS_COUNT
        return self.buckets[hour]


_SCALARS: Final = tuple(name for name in RelayWindow.__slots__ if name not in _LISTS)


def observations(window: RelayWindow, now_s: int) -> Observations:
    """Return the observations of the window now, as the score takes them.

    Cost: O(hours kept).
    """
    sums = _sums(window, now_s)
    limited = _is_within(window.limited_at_s, now_s, _RECENT_S) or _is_pausing(window, now_s)
    return Observations(
        ok=sums[_OK],
        fail=sums[_FAIL],
        up_s=sums[_UP],
        want_s=sums[_WANT],
        latency_ms=window.latency_ms if _is_within(window.latency_at_s, now_s, _WINDOW_S) else None,
        bytes_per_s=window.bytes_per_s if _is_within(window.bytes_per_s_at_s, now_s, _WINDOW_S) else None,
        boot=window.boot,
        violations=sum(2.0 ** (-(now_s - at_s) / _HALF_LIFE_S) for at_s in _recent(window.violations_s, now_s)),
        found=sums[_FOUND],
        missing=sums[_MISSING],
        reconnects=len(_recent(window.reconnects_s, now_s, _RECONNECTS_S)),
        recent_error=_is_within(window.error_at_s, now_s, _RECENT_S),
        limited=limited,
    )


def counts(window: RelayWindow, cleared_s: int, now_s: int) -> Counts:
    """Return what ``relay_state.evaluate`` needs besides the score.

    Args:
        window: Of the relay.
        cleared_s: ``Standing.cleared_s``: violations up to then count no more.
        now_s: Unix seconds.
    """
    sums = _sums(window, now_s)
    seen = sum(sums[column] for column in (_OK, _FAIL, _FOUND, _MISSING, _SAMPLES))
    unpaid = [at_s for at_s in _recent(window.violations_s, now_s, VIOLATIONS_WINDOW_S) if at_s > cleared_s]
    return Counts(observations=seen, violations=len(unpaid))


def window_to_plain(window: RelayWindow) -> dict[str, Any]:
    """Return the window as a dict of numbers and lists, as JSON takes it."""
    plain = {name: getattr(window, name) for name in RelayWindow.__slots__}
    rows = [[hour, *bucket] for hour, bucket in sorted(window.buckets.items())]
    return {**plain, "format": _FORMAT, "buckets": rows}


def window_from_plain(plain: Mapping[str, Any]) -> RelayWindow:
    """Return what ``window_to_plain`` was given; raises LocalError for anything else."""
    window = RelayWindow()
    try:
        if plain["format"] != _FORMAT:
            raise LocalError(f"the relay window has format {plain['format']}, {_FORMAT} is expected")
        for name in _SCALARS:
            setattr(window, name, plain[name] if name == "boot" and plain[name] is None else plain[name] + 0)
        window.buckets = {int(hour): [int(count) for count in bucket] for hour, *bucket in plain["buckets"]}
        window.violations_s = [int(at_s) for at_s in plain["violations_s"]][-VIOLATIONS_MAX:]
        window.reconnects_s = [int(at_s) for at_s in plain["reconnects_s"]][-RECONNECTS_COUNTED:]
    except (KeyError, TypeError, ValueError) as error:
        raise LocalError(f"this is no relay window: {error}") from error
    if len(window.buckets) > HOURS_MAX or any(len(bucket) != _COLUMNS_COUNT for bucket in window.buckets.values()):
        raise LocalError("this is no relay window: its buckets have another shape")
    return window


def _sums(window: RelayWindow, now_s: int) -> list[int]:
    now_hour = now_s // _HOUR_S
    kept = [bucket for hour, bucket in window.buckets.items() if 0 <= now_hour - hour < HOURS_MAX]
    return [sum(bucket[column] for bucket in kept) for column in range(_COLUMNS_COUNT)]


def _recent(times_s: Iterable[int], now_s: int, span_s: int = _WINDOW_S) -> list[int]:
    return [at_s for at_s in times_s if _is_within(at_s, now_s, span_s)]


def _is_within(at_s: int, now_s: int, span_s: int) -> bool:
    return at_s != _NEVER and 0 <= now_s - at_s < span_s


def _is_pausing(window: RelayWindow, now_s: int) -> bool:
    return 0 < window.retry_until_s - now_s <= _RETRY_AFTER_MAX_S


def _average(before: float, sample: float) -> float:
    return before + _ALPHA * (sample - before)
