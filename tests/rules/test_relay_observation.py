"""Each observation of a relay does to window and standing what the client does when it happens."""

from dataclasses import replace
from itertools import pairwise

import pytest

from waystation.core.contacts import Connected, Disconnected
from waystation.protocols.strata.client.events import Authenticated, Limited, PublishUnknown, RelayError, Violation
from waystation.protocols.strata.client.watch import Pinged, RelayWatch
from waystation.rules.relay_entry import RelayEntry
from waystation.rules.relay_observation import FAILED, MISSING, OK, OUTCOMES, Observation, Probe, record
from waystation.rules.relay_state import Incident, Standing, State
from waystation.rules.relay_window import RelayWindow, observations, window_to_plain

T0 = 1_700_000_000
NEW = Standing(State.PROBATION, T0)
SAID = {
    (Probe.CONNECT, OK),
    (Probe.CONNECT, FAILED),
    (Probe.RECONNECT, OK),
    (Probe.SPAN, OK),
    (Probe.SPAN, FAILED),
    (Probe.RTT, OK),
    (Probe.RTT, FAILED),
    (Probe.BLOB, OK),
    (Probe.KNOWN_HASH, OK),
    (Probe.KNOWN_HASH, MISSING),
    (Probe.VALIDITY, FAILED),
    (Probe.LIMITED, OK),
    (Probe.ERROR, OK),
    (Probe.SELF_SEND, OK),
    (Probe.SELF_SEND, FAILED),
}
FULL = {"incident": Incident.BAD_SIGNATURE, "latency_us": 70_000, "bytes": 65_536, "duration_us": 2_000_000}


def seen(probe, outcome=OK, at_us=T0 * 1_000_000, **amounts):
    """Return an observation."""
    return Observation(at_us, b"", probe, outcome, **amounts)


def after(*observed, standing=NEW):
    """Return window and standing after some observations."""
    window = RelayWindow()
    for each in observed:
        standing, _ = record(window, standing, each)
    return window, standing


EVENTS = [
    ((Connected("r", 1.0),), (seen(Probe.CONNECT),)),
    ((Connected("r", 1.0), Connected("r", 1.0)), (seen(Probe.CONNECT), seen(Probe.RECONNECT), seen(Probe.CONNECT))),
    ((Disconnected("r", "no", None, 1.0),) * 3, (seen(Probe.CONNECT, FAILED),) * 3),
    ((Authenticated((), 250_000),), (seen(Probe.RTT, latency_us=250_000),)),
    ((Authenticated((), 9_000),), (seen(Probe.SELF_SEND, latency_us=9_000),)),
    ((Pinged(12.5),), (seen(Probe.RTT, latency_us=12_500),)),
    ((PublishUnknown("m", b""),) * 2, (seen(Probe.RTT, FAILED),)),  # one silence is one failure
    ((PublishUnknown("m", b""),), (seen(Probe.SELF_SEND, FAILED),)),
    (
        (Violation("signature", "", None),) * 3,
        (seen(Probe.VALIDITY, FAILED, incident=Incident.BAD_SIGNATURE),) * 3,
    ),
    ((Limited(40, None, None),), (seen(Probe.LIMITED, duration_us=40_000_000),)),
    ((RelayError("internal", ""),), (seen(Probe.ERROR),)),
]


@pytest.mark.parametrize(("events", "observed"), EVENTS)
def test_observation_is_what_the_client_makes_of_its_event(events, observed) -> None:
    """Window and standing are those of a client's watch that was told the same."""
    watch = RelayWatch(RelayEntry.new("ws://a/strata", T0), lambda: T0, lambda _url, _change: None)
    for event in events:
        watch.note(event)
    window, standing = after(*observed)

    assert window_to_plain(window) == window_to_plain(watch.entry.window)
    assert standing == watch.entry.standing


def test_probe_verdicts_are_counted() -> None:
    """A packet that was there and one that was missing twice count as the client's own probes do."""
    watch = RelayWatch(RelayEntry.new("ws://a/strata", T0), lambda: T0, lambda _url, _change: None)
    watch.note_probe(found=True)
    watch.note_probe(found=False)
    window, _ = after(seen(Probe.KNOWN_HASH), seen(Probe.KNOWN_HASH, MISSING))

    assert window_to_plain(window) == window_to_plain(watch.entry.window)


def test_spans_that_follow_each_other_lose_no_second() -> None:
    """Spans cut anywhere inside seconds add up to the whole, connected or not."""
    ends_us = [T0 * 1_000_000 + offset for offset in (0, 700_000, 59_999_999, 60_000_000, 3_599_500_000)]
    spans = [
        seen(Probe.SPAN, OK if number % 2 else FAILED, end_us, duration_us=end_us - start_us)
        for number, (start_us, end_us) in enumerate(pairwise(ends_us))
    ]
    found = observations(after(*spans)[0], T0 + 3_600)

    assert (found.want_s, found.up_s) == (3_599, 59 + 3_539)


def test_transfer_gives_throughput() -> None:
    """Bytes over the time they took; a small one says nothing."""
    large = seen(Probe.BLOB, bytes=1_000_000, duration_us=500_000)
    small = seen(Probe.BLOB, bytes=65_535, duration_us=1)

    assert observations(after(large, small)[0], T0).bytes_per_s == 2_000_000.0


@pytest.mark.parametrize("probe", Probe)
@pytest.mark.parametrize("outcome", [*OUTCOMES, "other"])
def test_only_outcomes_that_a_probe_can_have_say_something(probe, outcome) -> None:
    """Every other pair of probe and outcome leaves window and standing as they are."""
    standing = replace(NEW, failures_running=2)
    window, moved = after(seen(probe, outcome, **FULL), standing=standing)
    is_same = (window_to_plain(window), moved) == (window_to_plain(RelayWindow()), standing)

    assert is_same == ((probe, outcome) not in SAID)


@pytest.mark.parametrize(("probe", "outcome"), sorted(SAID, key=str))
def test_observation_without_amounts_is_taken(probe, outcome) -> None:
    """A row that lacks its amount is counted as far as it can be, and breaks nothing."""
    window, standing = after(seen(probe, outcome))
    found = observations(window, T0)

    assert (found.latency_ms, found.bytes_per_s, found.want_s, found.violations) == (None, None, 0, 0.0)
    assert standing.state is State.PROBATION


def test_what_is_no_violation_is_not_counted_as_one() -> None:
    """A missing packet or an unknown author is nothing that an honest relay could not have done."""
    for incident in Incident:
        window, _ = after(seen(Probe.VALIDITY, FAILED, incident=incident))

        assert observations(window, T0).violations == float(incident.is_violation)
