"""What the recorder makes of what was seen of other relays.

What follows from our own doing (a connection that we made, a span in which we wanted one) is one event at once, since
we bound how often we do it. What the other side brings about (a violation, a throttling, an error) is its own to
repeat: the first of a kind is written at once, and what follows within the same second of the wall clock is one more
row, which bears the time of the last. So a reader who counts in whole seconds, as ``rules.relay_window`` does, sees the
same as if each had a row of its own.

A relay is told by its identifier, as its own journal names it: what relays do is public, and nothing here says on whose
behalf one was asked.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from waystation.core import facts
from waystation.core.ids import NODE_ID_BYTES, node_id_of
from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND, Instant
from waystation.journal import events
from waystation.journal.events import Event
from waystation.rules.relay_observation import Probe

__all__ = ["KINDS_MAX", "OBSERVATIONS_GATHER_MS", "RelayRecords", "relay_id_of"]

OBSERVATIONS_GATHER_MS: Final = 1_000
KINDS_MAX: Final = 1_024
"""Kinds of observations that are gathered at a time; one more, and all are written. An operator names fewer relays."""

_BROUGHT_ABOUT_BY_THEM: Final = frozenset({Probe.VALIDITY.value, Probe.LIMITED.value, Probe.ERROR.value})

_Kind = tuple[str, bytes | str, str, str, str | None]
"""Protocol, relay, probe, outcome, reason."""


def relay_id_of(relay: bytes | str) -> str:
    """Return how tables call a relay: 16 hexadecimal digits of its key, or of the SHA-256 of its name.

    Args:
        relay: 32-byte public key, or the name of a relay whose key is not known.
    """
    if isinstance(relay, bytes):
        return node_id_of(relay)
    return sha256(relay.encode()).digest()[:NODE_ID_BYTES].hex()


class _Gathered:
    """What came of one kind in one second behind the first, which is written."""

    __slots__ = ("duration_us", "second", "times", "wall_us")

    def __init__(self, second: int) -> None:
        self.second = second
        self.times = 0
        self.wall_us = 0
        self.duration_us: int | None = None


class RelayRecords:
    """Turns what was seen of other relays into events; the recorder's hand for it."""

    def __init__(self, append: Callable[[Event], None] | None) -> None:
        """Start with nothing gathered; ``append`` takes each event, None takes none."""
        self._append = append
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

    def observed(self, fact: facts.RelayObserved, now: Instant, wall_us: int) -> None:
        """A relay was seen to do something; ``wall_us`` is ``now`` in microseconds UTC."""
        if self._append is None:
            return
        if fact.probe in _BROUGHT_ABOUT_BY_THEM:
            kind = (fact.protocol, fact.relay, fact.probe, fact.outcome, fact.reason)
            second = wall_us // MICROSECONDS_PER_SECOND
            others = self._gathered.get(kind)
            if others is not None and others.second == second:
                others.times += fact.times
                others.wall_us = wall_us
                others.duration_us = fact.duration_us
                return
            self._begin(kind, others, second, now)
        self._append(events.RelayObserved(wall_us, fact.protocol, relay_id_of(fact.relay), *fact[2:]))

    def _begin(self, kind: _Kind, before: _Gathered | None, second: int, now: Instant) -> None:
        """Gather what comes of this kind in another second."""
        if before is not None:
            self._write_others(kind, before)
        elif len(self._gathered) >= KINDS_MAX:
            self.flush()
        self._gathered[kind] = _Gathered(second)
        if self._due is None:
            self._due = Instant(now + OBSERVATIONS_GATHER_MS * MICROSECONDS_PER_MS)

    def _write_others(self, kind: _Kind, others: _Gathered) -> None:
        if not others.times:
            return
        assert self._append is not None
        protocol, relay, probe, outcome, reason = kind
        told = (probe, outcome, reason, None, None, others.duration_us, others.times)
        self._append(events.RelayObserved(others.wall_us, protocol, relay_id_of(relay), *told))
