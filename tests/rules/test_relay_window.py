"""The sliding window against a list that forgets nothing."""

import json
import random

import pytest

from waystation.core.errors import LocalError
from waystation.rules.relay_score import Observations
from waystation.rules.relay_state import Counts, Incident
from waystation.rules.relay_window import (
    HOURS_MAX,
    VIOLATIONS_MAX,
    RelayWindow,
    counts,
    observations,
    window_from_plain,
    window_to_plain,
)

HOUR = 3_600
DAY = 24 * HOUR
T0 = 472_222 * HOUR  # the first second of an hour in 2023
FIELDS = ("ok", "fail", "up_s", "want_s", "found", "missing", "reconnects")


class ListModel:
    """Keeps every event for ever and adds up by looking at each."""

    def __init__(self):
        self.events = []

    def sum_of(self, kind, now_s):
        first_hour = now_s // HOUR - HOURS_MAX + 1
        if kind in ("up_s", "want_s"):
            spans = [(at_s, end_s) for name, at_s, end_s in self.events if name == kind]
            return sum(max(0, end_s - max(at_s, first_hour * HOUR)) for at_s, end_s in spans)
        return sum(name == kind and first_hour <= at_s // HOUR for name, at_s, _ in self.events)

    def times_of(self, kind, now_s, span_s):
        return [at_s for name, at_s, _ in self.events if name == kind and now_s - at_s < span_s]

    def observed(self, now_s):
        sums = [self.sum_of(kind, now_s) for kind in FIELDS[:-1]]
        reconnects = len(self.times_of("reconnect", now_s, HOUR))
        violations = sum(2 ** (-(now_s - at_s) / DAY) for at_s in self.times_of("violation", now_s, 7 * DAY))
        return [*sums, min(reconnects, 5)], violations

    def counted(self, cleared_s, now_s):
        seen = sum(self.sum_of(kind, now_s) for kind in ("ok", "fail", "found", "missing", "sample"))
        return Counts(seen, sum(at_s > cleared_s for at_s in self.times_of("violation", now_s, DAY)))


def act(window, model, rng, now_s):
    """Do one random thing to both; return the time after it."""
    kind = rng.choice(["ok", "fail", "found", "missing", "sample", "reconnect", "violation", "want_s", "want_s"])
    spent_s = 0
    if kind in ("ok", "fail"):
        window.record_connect(kind == "ok", now_s)
    elif kind in ("found", "missing"):
        window.record_probe(kind == "found", now_s)
    elif kind == "sample":
        window.record_latency(rng.uniform(1, 900), now_s)
    elif kind == "reconnect":
        window.record_reconnect(now_s)
    elif kind == "violation":
        window.record_incident(Incident.BAD_SIGNATURE, now_s)
    else:
        spent_s, connected = rng.choice([1, 60, 5 * HOUR, 9 * DAY]), rng.random() < 0.5
        window.record_wanted(now_s, now_s + spent_s, connected)
        model.events += [("up_s", now_s, now_s + spent_s)] if connected else []
    model.events.append((kind, now_s, now_s + spent_s))
    return now_s + spent_s


@pytest.mark.parametrize("seed", range(6))
def test_sums_equal_those_of_a_list(seed):
    """Over random events and pauses the window gives what adding up a list of all of them gives."""
    rng, window, model, now_s = random.Random(seed), RelayWindow(), ListModel(), T0 + 17 * seed
    for step in range(60):
        now_s = act(window, model, rng, now_s) + rng.choice([0, 1, 59, HOUR // 2, HOUR, 11 * HOUR])
        if step % 4 and step < 55:
            continue
        seen, (sums, violations) = observations(window, now_s), model.observed(now_s)

        assert [getattr(seen, name) for name in FIELDS] == sums
        assert seen.violations == pytest.approx(violations)
        assert counts(window, now_s - HOUR, now_s) == model.counted(now_s - HOUR, now_s)
        assert len(window.buckets) <= HOURS_MAX


def test_empty_window_is_a_relay_never_met():
    """Nothing recorded gives the defaults of Observations, and counts of zero."""
    assert observations(RelayWindow(), T0) == Observations()
    assert counts(RelayWindow(), 0, T0) == Counts(0, 0)


def test_hour_leaves_after_seven_days():
    """A count is in the window for 168 hours and no longer."""
    window = RelayWindow()
    window.record_connect(True, T0)

    assert observations(window, T0 + 168 * HOUR - 1).ok == 1
    assert observations(window, T0 + 168 * HOUR).ok == 0


def test_memory_is_bounded():
    """A year of everything keeps 168 buckets, the last violations and five reconnects."""
    window = RelayWindow()
    for hour in range(0, 365 * 24, 3):
        window.record_connect(True, T0 + hour * HOUR)
        window.record_wanted(T0 + hour * HOUR, T0 + (hour + 3) * HOUR, True)
        window.record_reconnect(T0 + hour * HOUR)
    for second in range(3 * VIOLATIONS_MAX):
        window.record_incident(Incident.BAD_PACKET_ID, T0 + second)

    assert len(window.buckets) <= HOURS_MAX
    assert window.violations_s == list(range(T0 + 2 * VIOLATIONS_MAX, T0 + 3 * VIOLATIONS_MAX))
    assert len(window.reconnects_s) == 5


def test_wanted_span_is_split_by_the_hour():
    """A span over an hour's end leaves the window piece by piece."""
    window = RelayWindow()
    window.record_wanted(T0 + HOUR - 10, T0 + HOUR + 30, True)

    assert [observations(window, T0 + 168 * HOUR + late_s).up_s for late_s in (-1, 0, HOUR)] == [40, 30, 0]


def test_endless_span_costs_a_window():
    """A client that slept for years records no more than seven days."""
    window = RelayWindow()
    window.record_wanted(0, T0 + 5, False)

    assert observations(window, T0 + 5).want_s == 167 * HOUR + 5
    assert len(window.buckets) == HOURS_MAX


def test_violation_halves_every_day():
    """A violation weighs 1 now, a half after 24 h, and nothing after seven days."""
    window = RelayWindow()
    window.record_incident(Incident.OUTSIDE_FILTER, T0)
    weights = [observations(window, T0 + age_s).violations for age_s in (0, DAY, 2 * DAY, 7 * DAY - 1, 7 * DAY)]

    assert weights == pytest.approx([1, 0.5, 0.25, 2**-7, 0], abs=1e-5)


def test_paid_violations_count_no_more():
    """Counts leave out what lies 24 h back and what a ban has paid for."""
    window = RelayWindow()
    for age_s in (0, 10, 20):
        window.record_incident(Incident.EXPIRED_PACKET, T0 + age_s)

    assert counts(window, 0, T0 + 20).violations == 3
    assert counts(window, T0 + 10, T0 + 20).violations == 1
    assert [counts(window, 0, T0 + DAY + late_s).violations for late_s in (-1, 0, 10, 20)] == [3, 2, 1, 0]


@pytest.mark.parametrize("incident", [each for each in Incident if not each.is_violation])
def test_what_honest_relays_do_weighs_nothing(incident):
    """Throttling shows as limited; missing packets, unknown fields, duplicates and the like not at all."""
    window = RelayWindow()
    window.record_incident(incident, T0)

    assert observations(window, T0) == Observations(limited=incident is Incident.RATE_LIMITED)
    assert counts(window, 0, T0) == Counts(0, 0)


def test_averages_move_by_a_fifth():
    """The first sample is the average; each later one moves it by a fifth of the way."""
    window = RelayWindow()
    for latency_ms in (100, 200, 20):
        window.record_latency(latency_ms, T0)
    for duration_ms in (1_000, 500):
        window.record_transfer(1_000_000, duration_ms, T0)
    seen = observations(window, T0)

    assert seen.latency_ms == pytest.approx(100)
    assert seen.bytes_per_s == pytest.approx(1_200_000)
    assert counts(window, 0, T0).observations == 5


def test_averages_are_forgotten_with_the_window():
    """Seven days after the last sample there is none, and the next one starts afresh."""
    window = RelayWindow()
    window.record_latency(100, T0)
    window.record_transfer(65_536, 1_000, T0)
    last, gone = observations(window, T0 + 7 * DAY - 1), observations(window, T0 + 7 * DAY)
    window.record_latency(500, T0 + 7 * DAY)

    assert (last.latency_ms, last.bytes_per_s) == (100, 65_536)
    assert (gone.latency_ms, gone.bytes_per_s) == (None, None)
    assert observations(window, T0 + 7 * DAY).latency_ms == 500


@pytest.mark.parametrize(("size_bytes", "duration_ms"), [(65_535, 10), (65_536, 0)])
def test_small_transfers_are_no_sample(size_bytes, duration_ms):
    """Less than 64 KiB, or no measurable duration, says nothing of throughput."""
    window = RelayWindow()
    window.record_transfer(size_bytes, duration_ms, T0)

    assert observations(window, T0) == Observations()


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (lambda window: window.record_error(T0), "recent_error"),
        (lambda window: window.record_incident(Incident.RATE_LIMITED, T0), "limited"),
        (lambda window: window.record_retry_after(600, T0), "limited"),
    ],
    ids=["error", "rate_limited", "retry_after"],
)
def test_trouble_lasts_ten_minutes(record, field):
    """An error and a throttling are recent for 600 s; a retry_after holds as long as it says."""
    window = RelayWindow()
    record(window)

    assert [getattr(observations(window, T0 + age_s), field) for age_s in (0, 599, 600)] == [True, True, False]


def test_retry_after_is_capped():
    """A relay that asks for a pause of a century is limited for a week."""
    window = RelayWindow()
    window.record_retry_after(10**10, T0)

    assert observations(window, T0 + 7 * DAY - 1).limited
    assert not observations(window, T0 + 7 * DAY).limited


def test_boot_is_the_mean_of_the_snapshots():
    """The snapshots' scores are averaged; without any there is none."""
    window = RelayWindow()
    window.record_boot([0.2, 0.8, 0.8])
    mean = observations(window, T0).boot
    window.record_boot([])

    assert mean == pytest.approx(0.6)
    assert observations(window, T0).boot is None


def test_clock_set_back_loses_only_the_future():
    """Events of a time that is now to come do not count, and those of the past do."""
    window = RelayWindow()
    window.record_connect(True, T0)
    window.record_connect(True, T0 + 3 * DAY)
    window.record_incident(Incident.BAD_SIGNATURE, T0 + 3 * DAY)
    window.record_error(T0 + 3 * DAY)
    window.record_connect(False, T0 + DAY)

    assert observations(window, T0 + DAY) == Observations(ok=1, fail=1)
    assert len(window.buckets) == 2


@pytest.mark.parametrize("seed", range(3))
def test_window_survives_json(seed):
    """A window comes back from JSON with everything it had, and goes on alike."""
    rng, window, now_s = random.Random(seed), RelayWindow(), T0
    for _ in range(60):
        now_s = act(window, ListModel(), rng, now_s) + 600
    window.record_transfer(10**6, 333, now_s)
    window.record_boot([0.1])
    window.record_error(now_s)
    again = window_from_plain(json.loads(json.dumps(window_to_plain(window))))
    for each in (window, again):
        each.record_latency(77, now_s + 50)
        each.record_retry_after(90, now_s + 50)

    assert observations(again, now_s + 60) == observations(window, now_s + 60)
    assert window_to_plain(again) == window_to_plain(window)


@pytest.mark.parametrize(
    "broken",
    [
        {"format": 2},
        {"buckets": 7},
        {"buckets": [[1, 2]]},
        {"buckets": [[hour, 0, 0, 0, 0, 0, 0, 0] for hour in range(HOURS_MAX + 1)]},
        {"violations_s": ["x"]},
        {"latency_ms": "x"},
        {"retry_until_s": None},
        None,
    ],
    ids=["format", "no rows", "short row", "too many rows", "no time", "text", "no number", "nothing"],
)
def test_foreign_window_is_refused(broken):
    """What is no window is a LocalError, not a crash."""
    plain = {} if broken is None else {**window_to_plain(RelayWindow()), **broken}

    with pytest.raises(LocalError, match="relay window"):
        window_from_plain(plain)
