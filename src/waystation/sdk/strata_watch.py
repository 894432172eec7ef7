"""What a client learns about one relay while it uses it, turned into the relay's entry in the table of scores.

Every event of a ``RelayClient`` goes through ``note``; every minute ``evaluate`` moves the state. Only what
specs/strata.md 18 calls a violation counts as one: being limited, missing packets and unknown authors do not.
"""

from collections.abc import Callable
from dataclasses import replace

from waystation.protocols.strata.client_events import (
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
from waystation.protocols.strata.repute import INCIDENTS
from waystation.rules.relay_score import score
from waystation.rules.relay_state import (
    Change,
    Incident,
    Standing,
    evaluate,
    on_failure,
    on_success,
    on_violation,
)
from waystation.rules.relay_window import counts, observations
from waystation.sdk.relay_scores import RelayEntry
from waystation.sdk.strata_connection import Connected, Disconnected, Pinged

__all__ = ["RelayWatch"]


class RelayWatch:
    """The observer of one relay."""

    def __init__(self, entry: RelayEntry, clock: Callable[[], float], on_change: Callable[[str, Change], None]) -> None:
        """Observe on top of what is known.

        Args:
            entry: From the table, or a new one.
            clock: Unix seconds.
            on_change: Gets address and change whenever the state moves.
        """
        self.entry = entry
        self._clock = clock
        self._on_change = on_change
        self._was_connected = False
        self._wanted_from: int | None = None
        self._up = False
        self.answered = False
        """Whether the relay has answered while it was observed."""

    def note(self, event: object) -> None:
        """Learn from one event."""
        now_s = int(self._clock())
        self.answered = self.answered or isinstance(event, Connected | Violation)
        if isinstance(event, Connected | Disconnected):
            self._note_connection(event, now_s)
        elif isinstance(event, Authenticated | Published):
            self.entry.window.record_latency(event.latency_us / 1_000, now_s)
            self._stand(on_success(self.entry.standing))
        elif isinstance(event, Pinged):
            self.entry.window.record_latency(event.latency_ms, now_s)
        elif isinstance(event, PublishUnknown):
            self._step(on_failure(self.entry.standing, now_s))
        elif isinstance(event, Violation):
            incident = INCIDENTS[event.reason]
            self.entry.window.record_incident(incident, now_s)
            count = counts(self.entry.window, self.entry.standing.cleared_s, now_s).violations
            self._step(on_violation(self.entry.standing, incident, count, now_s))
        elif isinstance(event, Limited):
            self.entry.window.record_incident(Incident.RATE_LIMITED, now_s)
            self.entry.window.record_retry_after(event.retry_after_s, now_s)
        elif isinstance(event, RelayError | ProtocolFault | AuthFailed | ChallengeRefused):
            self.entry.window.record_error(now_s)
        elif isinstance(event, ServerNamed):
            self.entry = replace(self.entry, relay_id=event.server_id)

    def note_probe(self, *, found: bool) -> None:
        """Learn the verdict of a consistency probe."""
        self.entry.window.record_probe(found, int(self._clock()))

    def want(self) -> None:
        """From now on the client wants to be connected."""
        now_s = int(self._clock())
        self._wanted_from = now_s
        self.entry = replace(self.entry, last_tried_s=now_s)

    def evaluate(self) -> None:
        """Count the time since the last look, and move the state; due every 60 s."""
        now_s = int(self._clock())
        self._count_time(now_s)
        current = score(observations(self.entry.window, now_s))
        self.entry = replace(self.entry, score=current)
        found = counts(self.entry.window, self.entry.standing.cleared_s, now_s)
        self._step(evaluate(self.entry.standing, current, found, now_s))

    def _note_connection(self, event: Connected | Disconnected, now_s: int) -> None:
        self._count_time(now_s)
        if isinstance(event, Connected):
            self.entry.window.record_connect(True, now_s)
            if self._was_connected:
                self.entry.window.record_reconnect(now_s)
            self._was_connected = self._up = True
            self._stand(on_success(self.entry.standing))
            return
        if event.up_s is None:
            self.entry.window.record_connect(False, now_s)
            self._step(on_failure(self.entry.standing, now_s))
        self._up = False
        self.entry = replace(self.entry, last_tried_s=now_s)

    def _count_time(self, now_s: int) -> None:
        if self._wanted_from is not None and now_s > self._wanted_from:
            self.entry.window.record_wanted(self._wanted_from, now_s, self._up)
            self._wanted_from = now_s

    def _stand(self, standing: Standing) -> None:
        self.entry = replace(self.entry, standing=standing)

    def _step(self, step: tuple[Standing, Change | None]) -> None:
        standing, change = step
        self._stand(standing)
        if change is not None:
            self._on_change(self.entry.url, change)
