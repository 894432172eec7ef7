"""The score of a relay: the values of specs/strata.md 18, its range and its directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.rules.relay_score import (
    RECONNECTS_COUNTED,
    Observations,
    availability,
    bootstrap,
    deductions,
    explain,
    integrity,
    latency,
    performance,
    score,
    throughput,
)

GOOD = Observations(ok=50, up_s=600_000, want_s=604_800, latency_ms=60)
VALUES = {
    "fresh with no data": (Observations(), 0.5),
    "good": (GOOD, 0.8761),
    "good with 4 MiB/s media": (GOOD._replace(bytes_per_s=4 * 2**20), 0.8663),
    "1200 ms": (GOOD._replace(latency_ms=1_200), 0.5918),
    "flaky": (GOOD._replace(ok=20, fail=30, up_s=200_000, latency_ms=120, reconnects=5), 0.4355),
    "throttled": (GOOD._replace(limited=True), 0.7561),
    "one violation now": (GOOD._replace(violations=1.0), 0.5782),
    "two violations now": (GOOD._replace(violations=2.0), 0.2803),
    "probes 12 found 8 missing": (GOOD._replace(found=12, missing=8), 0.5841),
    "dead": (Observations(fail=20, want_s=604_800), 0.2873),
}
COUNTS = st.integers(0, 10_000)
SHARES = st.floats(0, 1)
ANY = st.builds(
    Observations,
    ok=COUNTS,
    fail=COUNTS,
    up_s=st.integers(0, 700_000),
    want_s=st.integers(0, 700_000),
    latency_ms=st.none() | st.floats(0, 1e6),
    bytes_per_s=st.none() | st.floats(0, 1e12),
    boot=st.none() | SHARES,
    violations=st.floats(0, 100),
    found=COUNTS,
    missing=COUNTS,
    reconnects=COUNTS,
    recent_error=st.booleans(),
    limited=st.booleans(),
)
DIRECTIONS = {
    "ok": (COUNTS, True),
    "fail": (COUNTS, False),
    "up_s": (st.integers(0, 700_000), True),
    "want_s": (st.integers(3_600, 700_000), False),
    "latency_ms": (st.floats(0, 1e5), False),
    "bytes_per_s": (st.floats(0, 1e9), True),
    "boot": (SHARES, True),
    "violations": (st.floats(0, 5), False),
    "found": (COUNTS, True),
    "missing": (COUNTS, False),
    "reconnects": (st.integers(0, 20), False),
    "recent_error": (st.booleans(), False),
    "limited": (st.booleans(), False),
}
ROUNDING = 1e-12


@pytest.mark.parametrize("case", VALUES)
def test_published_value(case):
    """Each test value of the specification comes out to four decimals."""
    observations, expected = VALUES[case]

    assert round(score(observations), 4) == expected


@given(ANY)
def test_score_and_parts_stay_inside_their_range(observations):
    """Whatever was observed, the score and each part of it lie between 0 and 1."""
    parts = explain(observations)

    assert all(0 <= part <= 1 for part in parts if part is not None)
    assert parts.deductions <= 0.3 + ROUNDING


@pytest.mark.parametrize("name", DIRECTIONS)
@given(observations=ANY, data=st.data())
def test_score_follows_each_input_in_one_direction(name, observations, data):
    """More of a good thing never lowers the score, more of a bad one never raises it."""
    values, rising = DIRECTIONS[name]
    less, more = sorted((data.draw(values), data.draw(values)))
    change = score(observations._replace(**{name: more})) - score(observations._replace(**{name: less}))

    assert change >= -ROUNDING if rising else change <= ROUNDING


@pytest.mark.parametrize(("name", "rising"), [(name, rising) for name, (_, rising) in DIRECTIONS.items()])
def test_each_input_matters(name, rising):
    """No input is ignored: from a middling relay a better value gives a higher score."""
    middling = Observations(
        ok=5, fail=5, up_s=5_000, want_s=10_000, latency_ms=300, bytes_per_s=5e5, boot=0.5, violations=0.5,
        found=5, missing=5, reconnects=1,
    )  # fmt: skip
    value = getattr(middling, name)
    more = middling._replace(**{name: True if isinstance(value, bool) else value * 1.5})

    assert (score(more) > score(middling)) is rising
    assert score(more) != score(middling)


@given(ANY)
def test_explanation_adds_up(observations):
    """The parts give the score by the formula as it is printed, so that a page can show where it comes from."""
    parts = explain(observations)
    total = parts.integrity * (0.45 * parts.availability + 0.35 * parts.performance + 0.20 * parts.bootstrap)

    assert parts.score == score(observations) == pytest.approx(min(max(total - parts.deductions, 0), 1))
    assert parts[:7] == (
        availability(observations),
        latency(observations),
        throughput(observations),
        performance(observations),
        bootstrap(observations),
        integrity(observations),
        deductions(observations),
    )


@pytest.mark.parametrize(("want_s", "expected"), [(3_599, 0.75), (3_600, 0.45)])
def test_uptime_counts_from_an_hour_on(want_s, expected):
    """Below one wanted hour the connects stand in for the uptime."""
    assert availability(Observations(ok=2, want_s=want_s)) == pytest.approx(expected)


@pytest.mark.parametrize(("ms", "expected"), [(0, 1.0), (50, 1.0), (316.2278, 0.5), (2_000, 0.0), (9_999, 0.0)])
def test_latency_falls_with_the_logarithm(ms, expected):
    """50 ms is best, 2 s worst, and their geometric mean lies half-way."""
    assert latency(Observations(latency_ms=ms)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("speed", "expected"), [(0, 0.0), (65_536, 0.0), (2**16 * 2**3.5, 0.5), (2**23, 1.0), (2**40, 1.0)]
)
def test_throughput_rises_with_the_logarithm(speed, expected):
    """64 KiB/s is worst, 8 MiB/s best, and their geometric mean lies half-way."""
    assert throughput(Observations(bytes_per_s=speed)) == pytest.approx(expected)


def test_third_violation_leaves_nothing():
    """Three fresh violations make the integrity 0, and the score with it."""
    assert integrity(GOOD._replace(violations=3.0)) == score(GOOD._replace(violations=3.0)) == 0
    assert integrity(GOOD._replace(violations=2.9)) > 0


def test_reconnects_cost_up_to_five():
    """The sixth reconnect costs nothing more."""
    five = deductions(Observations(reconnects=RECONNECTS_COUNTED))

    assert five == pytest.approx(0.10) == deductions(Observations(reconnects=6))
    assert deductions(Observations(limited=True, recent_error=True)) == pytest.approx(0.20)
