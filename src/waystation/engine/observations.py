"""Aggregates observations of other relays that those relays could repeat at will.

The recorder passes what relays report about others, and writes the rows that come out. Observations that the node
causes itself, such as its own connects, are written at once. Violations, throttling and errors are caused by the other
relay. The first of a kind in a second is written at once. Repeats in the same wall-clock second become one more row,
with the time of the last. A reader that counts in whole seconds, as ``rules.relay_window`` does, gets the same result
as from single rows.
"""

from collections.abc import Callable
from typing import Final

from waystation.core.facts import RelayObserved
from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND, Instant
from waystation.rules.relay_observation import Probe

__all__ = ["KINDS_MAX", "OBSERVATIONS_GATHER_MS", "Observations"]

OBSERVATIONS_GATHER_MS: Final = 1_000
KINDS_MAX: Final = 1_024
"""Kinds of observations that are gathered at a time; one more, and all are written. An operator names fewer relays."""

_CAUSED_BY_RELAY: Final = frozenset({Probe.VALIDITY.value, Probe.LIMITED.value, Probe.ERROR.value})

_Kind = tuple[str, bytes | str, str, str, str | None]
"""Protocol, relay, probe, outcome, reason."""


class _Gathered:
    """What followed the first observation of one kind in one second; the first is written."""

    __slots__ = ("duration_us", "second", "times", "wall_us")

    def __init__(self, second: int) -> None:
        self.second = second
        self.times = 0
        self.wall_us = 0
        self.duration_us: int | None = None


class Observations:
    """Passes on what was seen of other relays, and sums up what they repeat."""

    def __init__(self, write: Callable[[RelayObserved, int], None]) -> None:
        """Start with nothing gathered; ``write`` takes each fact and its time, microseconds UTC."""
        self._write = write
        self._gathered: dict[_Kind, _Gathered] = {}
        self._due: Instant | None = None

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        return self._due

    def wake(self, now: Instant) -> None:
        """Write what was gathered long enough."""
        if self._due is not None and self._due <= now:
            self.flush()

    def flush(self) -> None:
        """Write everything that was gathered."""
        gathered, self._gathered = self._gathered, {}
        self._due = None
        for kind, others in gathered.items():
            self._write_others(kind, others)

    def add(self, fact: RelayObserved, now: Instant, wall_us: int) -> None:
        """Write or gather one observation; ``wall_us`` is ``now`` in microseconds UTC."""
        if fact.probe in _CAUSED_BY_RELAY:
            kind = (fact.protocol, fact.relay, fact.probe, fact.outcome, fact.reason)
            second = wall_us // MICROSECONDS_PER_SECOND
            others = self._gathered.get(kind)
            if others is not None and others.second == second:
                others.times += fact.times
                others.wall_us = wall_us
                others.duration_us = fact.duration_us
                return
            self._begin(kind, others, second, now)
        self._write(fact, wall_us)

    def _begin(self, kind: _Kind, before: _Gathered | None, second: int, now: Instant) -> None:
        """Gather what follows of this kind in another second."""
        if before is not None:
            self._write_others(kind, before)
        elif len(self._gathered) >= KINDS_MAX:
            self.flush()
        self._gathered[kind] = _Gathered(second)
        if self._due is None:
            self._due = Instant(now + OBSERVATIONS_GATHER_MS * MICROSECONDS_PER_MS)

    def _write_others(self, kind: _Kind, others: _Gathered) -> None:
        if others.times:
            protocol, relay, probe, outcome, reason = kind
            fact = RelayObserved(
                protocol, relay, probe, outcome, reason, duration_us=others.duration_us, times=others.times
            )
            self._write(fact, others.wall_us)
