"""Updates one relay's entry in the table of scores from what the client observes.

``RelayPool`` has one for each relay. Every event of a relay's client goes through ``note``, which records it as a
journal's observations are recorded. ``evaluate`` updates the state every minute. Only violations defined in
specs/strata.md 18 count as such: rate limits, missing packets and unknown authors do not.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from waystation.core.contacts import Connected, Disconnected
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.strata.client.events import (
    Authenticated,
    AuthFailed,
    ChallengeRefused,
    Limited,
    ProtocolFault,
    Published,
    PublishUnknown,
    RelayError,
    ServerNamed,
    Violation,
)
from waystation.protocols.strata.relay.upstream_score import INCIDENTS
from waystation.rules.relay_entry import RelayEntry
from waystation.rules.relay_observation import FAILED, MISSING, OK, Observation, Probe, record
from waystation.rules.relay_score import score
from waystation.rules.relay_state import Change, Reason, Step, evaluate
from waystation.rules.relay_window import counts, observations

__all__ = ["Pinged", "RelayWatch"]


class Pinged(NamedTuple):
    """The relay answered a ping."""

    latency_ms: float


class RelayWatch:
    """The observer of one relay."""

    def __init__(
        self,
        entry: RelayEntry,
        clock: Callable[[], float],
        on_change: Callable[[str, Change], None],
        *,
        is_named: bool = False,
    ) -> None:
        """Observe on top of what is known.

        Args:
            entry: From the table, or a new one.
            clock: Unix seconds.
            on_change: Gets address and change whenever the state moves.
            is_named: Whether the program has named it: then it is not banned because it cannot be reached.
        """
        self._is_named = is_named
        self.entry = entry
        self._clock = clock
        self._on_change = on_change
        self._was_connected = False
        self._wanted_from: int | None = None
        self._up = False
        self._silent_s: int | None = None
        self.answered = False
        """Whether it has answered as a Strata relay while it was observed; any WebSocket takes a connection."""

    def note(self, event: object) -> None:
        """Learn from one event."""
        self.answered = self.answered or not isinstance(event, _BY_ANYBODY)
        if isinstance(event, Connected | Disconnected):
            self._note_connection(event)
        # Spec 18, ``ms``: the answer times of requests that succeeded.
        elif isinstance(event, Authenticated | Published):
            self._see(Probe.RTT, latency_us=event.latency_us)
        elif isinstance(event, Pinged):  # says nothing about requests, so it ends no row of failures
            self.entry.window.record_latency(event.latency_ms, int(self._clock()))
        elif isinstance(event, PublishUnknown):
            # Spec 18: a request without an answer is a failure; it may have succeeded all the same.
            self._note_silence()
        elif isinstance(event, Violation):
            # Spec 18, V: wrong id or signature, expired, or outside the filter.
            self._see(Probe.VALIDITY, FAILED, incident=INCIDENTS[event.reason])
        elif isinstance(event, Limited):
            # Spec 18, ``limited``: counts for as long as ``retry_after`` runs.
            self._see(Probe.LIMITED, duration_us=event.retry_after_s * MICROSECONDS_PER_SECOND)
        elif isinstance(event, RelayError | ProtocolFault | AuthFailed | ChallengeRefused):
            # Spec 18, ``error``: no violation, since an honest relay may fail.
            self._see(Probe.ERROR)
        elif isinstance(event, ServerNamed):
            # RFC-0009: the DID is pinned at first use.
            self.entry = replace(self.entry, relay_id=event.server_id)

    def note_probe(self, *, found: bool) -> None:
        """Learn the verdict of a consistency probe."""
        # Spec 18, ``found`` and ``missing``.
        self._see(Probe.KNOWN_HASH, OK if found else MISSING)

    def want(self) -> None:
        """From now on the client wants to be connected."""
        now_s = int(self._clock())
        # Spec 18, ``want``: only time in which a connection is wanted counts against a relay.
        self._wanted_from = now_s
        self.entry = replace(self.entry, last_tried_s=now_s)

    def evaluate(self) -> None:
        """Count the time since the last look, and move the state; due every 60 s."""
        now_s = int(self._clock())
        # Spec 18: looked at every 60 s; the time up to now belongs to the state before.
        self._count_time(now_s)
        current = score(observations(self.entry.window, now_s))
        self.entry = replace(self.entry, score=current)
        found = counts(self.entry.window, self.entry.standing.cleared_s, now_s)
        self._step(evaluate(self.entry.standing, current, found, now_s))

    def _see(self, probe: Probe, outcome: str = OK, **amounts: Any) -> None:
        at_us = int(self._clock()) * MICROSECONDS_PER_SECOND
        seen = Observation(at_us, b"", probe, outcome, **amounts)
        self._step(record(self.entry.window, self.entry.standing, seen))

    def _note_connection(self, event: Connected | Disconnected) -> None:
        now_s = int(self._clock())
        self._count_time(now_s)
        self._up = isinstance(event, Connected)
        if isinstance(event, Connected):
            self._see(Probe.CONNECT)
            if self._was_connected:
                # Spec 18, ``reconn``: the first connection of a run is none.
                self._see(Probe.RECONNECT)
            self._was_connected = True
            return
        # An established connection that ended is no failure to connect; ``up`` falls by itself.
        if event.up_s is None:
            self._see(Probe.CONNECT, FAILED)
        self.entry = replace(self.entry, last_tried_s=now_s)

    def _note_silence(self) -> None:
        """Count one failure for all packets that one silence or one lost connection has left unanswered."""
        now_s = int(self._clock())
        # ``abs``: after the clock was set back, silence counts again.
        if self._silent_s is None or abs(now_s - self._silent_s) >= _SILENCE_S:
            self._silent_s = now_s
            self._see(Probe.RTT, FAILED)

    def _count_time(self, now_s: int) -> None:
        if self._wanted_from is not None and now_s > self._wanted_from:
            self.entry.window.record_wanted(self._wanted_from, now_s, self._up)
            self._wanted_from = now_s

    def _step(self, step: Step) -> None:
        standing, change = step
        # NODE-SILENCE: a network that is away for minutes must not cost the program the relay that it has chosen.
        if self._is_named and not standing.pinned and change is not None and change.reason is Reason.UNREACHABLE:
            return
        self.entry = replace(self.entry, standing=standing)
        if change is not None:
            self._on_change(self.entry.url, change)


_SILENCE_S: Final = 10
"""Packets that were sent while a relay stood still run into their deadlines one after the other, as they were sent."""
_BY_ANYBODY: Final = (Connected, Disconnected, Pinged, PublishUnknown, ProtocolFault, AuthFailed)
"""Events that need no Strata relay at the other side."""
