"""The score and state of one upstream relay, computed by the same rules as a client's view of a relay.

``replication`` notes each observation of an upstream here and asks whether it is banned. Every observation is also
reported as a fact, so that the same score can be recomputed from the journal.

Spec: specs/strata.md 15 (peers that send malformed packets), 18.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from waystation.core.errors import LocalError
from waystation.core.facts import RelayObserved
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.strata.client.events import (
    AuthFailed,
    ChallengeRefused,
    Event,
    SubscriptionRefused,
    Violation,
)
from waystation.rules.relay_observation import FAILED, OK, Probe
from waystation.rules.relay_score import score
from waystation.rules.relay_state import (
    Incident,
    Standing,
    State,
    evaluate,
    on_failure,
    on_success,
    on_violation,
    standing_from_plain,
    standing_to_plain,
)
from waystation.rules.relay_window import RelayWindow, counts, observations, window_from_plain, window_to_plain

__all__ = ["INCIDENTS", "Report", "UpstreamScore", "UpstreamView", "failure_of"]

PROTOCOL: Final = "strata"

INCIDENTS: Final = {
    "packet_id": Incident.BAD_PACKET_ID,
    "malformed_packet": Incident.BAD_PACKET_ID,  # its id cannot be right, whatever it was
    "signature": Incident.BAD_SIGNATURE,
    "expired": Incident.EXPIRED_PACKET,
    "outside_filter": Incident.OUTSIDE_FILTER,
}
"""The incident of each ``reason`` of a ``Violation``."""


FAILURES_COUNTED_MAX: Final = 9  # in a row; the tenth would ban (specs/strata.md 18)


Report = Callable[[RelayObserved], None]
"""Takes an observation of an upstream."""


class UpstreamView(NamedTuple):
    """The status of an upstream, for display."""

    score: float
    """0 to 1."""
    state: str
    """``probation``, ``active``, ``backup`` or ``blacklisted``."""
    reads: bool
    """Whether it has authenticated us on an open connection."""
    trouble: str
    """The last failure, empty when nothing is wrong."""
    received_at: int | None
    """``received_at`` of the newest packet with a verdict, Unix seconds."""


class UpstreamScore:
    """Observations of one upstream and its state; times are Unix seconds."""

    def __init__(self, standing: Standing | None = None, window: RelayWindow | None = None) -> None:
        """Start from stored observations, or as a new upstream."""
        self.standing = standing if standing is not None else Standing(State.PROBATION, 0)
        self._window = window if window is not None else RelayWindow()
        self._wanted_since: int | None = None
        self._is_connected = False
        self._was_connected = False
        self._relay: bytes | str = ""
        self._report: Report | None = None

    @classmethod
    def load(cls, data: bytes) -> "UpstreamScore":
        """Return the score that ``dump`` wrote; b"" is a new upstream.

        Raises:
            LocalError: It is something else.
        """
        if not data:
            return cls()
        try:
            plain = msgspec.msgpack.decode(data, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise LocalError(f"this is no upstream score: {error}") from error
        if plain.keys() != {"standing", "window"}:
            raise LocalError("this is no upstream score: its parts have other names")
        return cls(standing_from_plain(plain["standing"]), window_from_plain(plain["window"]))

    def dump(self) -> bytes:
        """Return everything as bytes for the store."""
        plain = {"standing": standing_to_plain(self.standing), "window": window_to_plain(self._window)}
        return msgspec.msgpack.encode(plain)

    def report_to(self, report: Report, relay: bytes | str) -> None:
        """Report observations from now on under ``relay``: its key, or its name where that is no key."""
        self._report = report
        self._relay = relay

    def connected(self, now_s: int) -> None:
        """Note a new connection; AUTH decides later whether it is of use."""
        self._count_time(now_s)
        self._is_connected = True
        if self._was_connected:
            # Spec 18: reconn counts the reconnects of the last hour.
            self._window.record_reconnect(now_s)
            self._seen(Probe.RECONNECT)
        self._was_connected = True

    def disconnected(self, now_s: int) -> None:
        """Note the end of a connection."""
        self._count_time(now_s)
        self._is_connected = False

    def succeeded(self, latency_us: int, now_s: int) -> None:
        """Note AUTH_OK, so many microseconds after our AUTH."""
        self._window.record_connect(succeeded=True, now_s=now_s)
        # Spec 18: ms: moving average of answer times.
        self._window.record_latency(latency_us / 1_000, now_s)
        self._seen(Probe.CONNECT)
        self._seen(Probe.RTT, latency_us=latency_us)
        self.standing = on_success(self.standing)

    def failed(self, now_s: int) -> None:
        """Note a failed connection or AUTH.

        That alone never bans an upstream: the operator named it, and it may only be down (decision STRATA-REPLICA).
        """
        self._window.record_connect(succeeded=False, now_s=now_s)
        self._seen(Probe.CONNECT, FAILED)
        # Spec 18: 10 failures in a row ban; an upstream that the operator named never gets there by failures alone.
        if self.standing.failures_running < FAILURES_COUNTED_MAX:
            self.standing, _ = on_failure(self.standing, now_s)

    def violated(self, incident: Incident, now_s: int) -> None:
        """Note a violation of the upstream."""
        # Spec 18: V sums violations, each of them weighing less as it ages.
        self._window.record_incident(incident, now_s)
        self._seen(Probe.VALIDITY, FAILED, incident.value)
        counted = counts(self._window, self.standing.cleared_s, now_s)
        self.standing, _ = on_violation(self.standing, incident, counted.violations, now_s)

    def limited(self, retry_after_s: int, now_s: int) -> None:
        """Note that the upstream asked us to wait so many seconds."""
        self._window.record_incident(Incident.RATE_LIMITED, now_s)
        # Spec 18: limited is 1 within the last 10 minutes, or while a retry_after runs.
        self._window.record_retry_after(retry_after_s, now_s)
        self._seen(Probe.LIMITED, duration_us=retry_after_s * MICROSECONDS_PER_SECOND)

    def erred(self, now_s: int) -> None:
        """Note a message that makes no sense, or a refusal of what should be granted."""
        # Spec 18: error is 1 if within the last 10 minutes.
        self._window.record_error(now_s)
        self._seen(Probe.ERROR)

    def evaluate(self, now_s: int) -> None:
        """Evaluate the state again; due every 60 s."""
        self._count_time(now_s)
        counted = counts(self._window, self.standing.cleared_s, now_s)
        self.standing, _ = evaluate(self.standing, self.score(now_s), counted, now_s)

    def score(self, now_s: int) -> float:
        """Return the score, 0 (worst) to 1."""
        return score(observations(self._window, now_s))

    def _count_time(self, now_s: int) -> None:
        """Count the seconds since the last look as wanted, and as up while connected; during a ban none is wanted."""
        is_wanted = self.standing.state is not State.BLACKLISTED
        if is_wanted and self._wanted_since is not None and now_s > self._wanted_since:
            self._window.record_wanted(self._wanted_since, now_s, connected=self._is_connected)
            wanted_us = (now_s - self._wanted_since) * MICROSECONDS_PER_SECOND
            self._seen(Probe.SPAN, OK if self._is_connected else FAILED, duration_us=wanted_us)
        self._wanted_since = now_s

    def _seen(
        self,
        probe: Probe,
        outcome: str = OK,
        reason: str | None = None,
        *,
        latency_us: int | None = None,
        duration_us: int | None = None,
    ) -> None:
        if self._report is not None:
            fact = RelayObserved(PROTOCOL, self._relay, probe.value, outcome, reason, latency_us, None, duration_us)
            self._report(fact)


def failure_of(output: Event) -> str:
    """Return a failure in words, empty for every other event."""
    if isinstance(output, ChallengeRefused):
        return f"its challenge was not answered: {output.reason} (is relay_id in [[strata.upstreams]] its DID?)"
    if isinstance(output, AuthFailed):
        return f"it does not authenticate us: {output.code} {output.detail}".rstrip() + _hint(output.detail)
    if isinstance(output, SubscriptionRefused):
        return f"it refused our subscription: {output.code} {output.detail}".rstrip() + _hint(output.detail)
    return f"it sent what it must not: {output.reason}" if isinstance(output, Violation) else ""


def _hint(detail: str) -> str:
    lacking = detail in ("no_capability", "missing_capability")
    return " (is our DID in its strata.replicate_allow?)" if lacking else ""
