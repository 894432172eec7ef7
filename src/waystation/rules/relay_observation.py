"""Observations of a relay, and the effect of each one on its statistics window and its state.

Strata's client, relays that watch others, and the pipeline's replay call it: a window of statistics, the relay's
standing (state and ban) and one observation go in, the next standing comes out. A live client records what it observes.
A journal stores the same observations as rows. ``record`` takes either, so a replayed journal gives the same state as
the client.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from waystation.rules.relay_state import Incident, Standing, Step, on_failure, on_success, on_violation
from waystation.rules.relay_window import RelayWindow, counts

__all__ = ["FAILED", "MISSING", "OK", "OUTCOMES", "Observation", "Probe", "record"]

OK: Final = "ok"
FAILED: Final = "failed"
MISSING: Final = "missing"
OUTCOMES: Final = (OK, FAILED, MISSING)
"""Every outcome that an observation can have."""

_US_PER_S: Final = 1_000_000
_US_PER_MS: Final = 1_000


class Probe(Enum):
    """What was looked at."""

    CONNECT = "connect"
    """A connect with its handshake: ok or failed."""
    RECONNECT = "reconnect"
    """A lost connection was made again: ok; its outcome is a ``CONNECT`` of its own."""
    SPAN = "span"
    """A time in which a connection was wanted and established (ok) or not (failed); observed at its end."""
    RTT = "rtt"
    """A request: answered (ok), or not in time (failed)."""
    BLOB = "blob"
    """A transfer: ok."""
    KNOWN_HASH = "known_hash"
    """A packet that the relay ought to have: ok, or missing."""
    VALIDITY = "validity"
    """What an honest relay could not have done: failed."""
    LIMITED = "limited"
    """The relay asked for a pause: ok."""
    ERROR = "error"
    """A protocol error other than being limited: ok."""
    SELF_SEND = "self_send"
    """A message to oneself by way of the relay: arrived (ok), or not in time (failed)."""


class Observation(NamedTuple):
    """One observation, or several equal ones of the same moment."""

    at_us: int
    """Unix microseconds; for a span, its end."""
    order: bytes
    """Distinguishes observations of one moment; smaller is earlier."""
    probe: Probe
    outcome: str
    """One of ``OUTCOMES``."""
    incident: Incident | None = None
    """For ``VALIDITY``."""
    latency_us: int | None = None
    """For ``RTT`` and ``SELF_SEND`` that were answered."""
    bytes: int | None = None
    """For ``BLOB``."""
    duration_us: int | None = None
    """For ``BLOB`` and ``SPAN``; for ``LIMITED``, how long the pause is to be."""
    times: int = 1


def record(window: RelayWindow, standing: Standing, seen: Observation) -> Step:
    """Record one occurrence of an observation in the window and return the standing after it.

    The caller repeats it for ``seen.times``: each occurrence may change the standing. A probe with an outcome that it
    cannot have, or without its amount, means nothing that it would need them for.
    """
    recorder = _RECORDERS.get((seen.probe.value, seen.outcome))
    return (standing, None) if recorder is None else recorder(window, standing, seen, seen.at_us // _US_PER_S)


def _connected(window: RelayWindow, standing: Standing, _seen: Observation, now_s: int) -> Step:
    window.record_connect(True, now_s)
    return _succeeded(standing), None


def _not_connected(window: RelayWindow, standing: Standing, _seen: Observation, now_s: int) -> Step:
    window.record_connect(False, now_s)
    return on_failure(standing, now_s)


def _reconnected(window: RelayWindow, standing: Standing, _seen: Observation, now_s: int) -> Step:
    window.record_reconnect(now_s)
    return standing, None


def _spent(window: RelayWindow, standing: Standing, seen: Observation, now_s: int) -> Step:
    # Both ends are cut to whole seconds, so that spans which follow each other neither overlap nor lose a second.
    start_s = (seen.at_us - (seen.duration_us or 0)) // _US_PER_S
    window.record_wanted(start_s, now_s, seen.outcome == OK)
    return standing, None


def _answered(window: RelayWindow, standing: Standing, seen: Observation, now_s: int) -> Step:
    if seen.latency_us is not None:
        window.record_latency(seen.latency_us / _US_PER_MS, now_s)
    return _succeeded(standing), None


def _not_answered(_window: RelayWindow, standing: Standing, _seen: Observation, now_s: int) -> Step:
    return on_failure(standing, now_s)


def _transferred(window: RelayWindow, standing: Standing, seen: Observation, now_s: int) -> Step:
    window.record_transfer(seen.bytes or 0, (seen.duration_us or 0) / _US_PER_MS, now_s)
    return standing, None


def _probed(window: RelayWindow, standing: Standing, seen: Observation, now_s: int) -> Step:
    window.record_probe(seen.outcome == OK, now_s)
    return standing, None


def _violated(window: RelayWindow, standing: Standing, seen: Observation, now_s: int) -> Step:
    if seen.incident is None or not seen.incident.is_violation:
        return standing, None
    window.record_incident(seen.incident, now_s)
    return on_violation(standing, seen.incident, counts(window, standing.cleared_s, now_s).violations, now_s)


def _limited(window: RelayWindow, standing: Standing, seen: Observation, now_s: int) -> Step:
    window.record_incident(Incident.RATE_LIMITED, now_s)
    window.record_retry_after((seen.duration_us or 0) // _US_PER_S, now_s)
    return standing, None


def _erred(window: RelayWindow, standing: Standing, _seen: Observation, now_s: int) -> Step:
    window.record_error(now_s)
    return standing, None


def _succeeded(standing: Standing) -> Standing:
    # Most observations are successes after successes, and a standing that stays equal need not be made again.
    return on_success(standing) if standing.failures_running else standing


# By values, not by members: an Enum hashes in Python, and this is looked up for every row of a journal.
_RECORDERS: Final[dict[tuple[str, str], Callable[[RelayWindow, Standing, Observation, int], Step]]] = {
    (Probe.CONNECT.value, OK): _connected,
    (Probe.CONNECT.value, FAILED): _not_connected,
    (Probe.RECONNECT.value, OK): _reconnected,
    (Probe.SPAN.value, OK): _spent,
    (Probe.SPAN.value, FAILED): _spent,
    (Probe.RTT.value, OK): _answered,
    (Probe.RTT.value, FAILED): _not_answered,
    (Probe.BLOB.value, OK): _transferred,
    (Probe.KNOWN_HASH.value, OK): _probed,
    (Probe.KNOWN_HASH.value, MISSING): _probed,
    (Probe.VALIDITY.value, FAILED): _violated,
    (Probe.LIMITED.value, OK): _limited,
    (Probe.ERROR.value, OK): _erred,
    (Probe.SELF_SEND.value, OK): _answered,
    (Probe.SELF_SEND.value, FAILED): _not_answered,
}
