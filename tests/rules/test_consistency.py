"""Laws of what a relay ought to hold, and of the bounds of a ratio."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.rules.consistency import (
    EXPECTED_MIN,
    SUSPICIOUS_MAX,
    Behaviour,
    Sighting,
    Terms,
    expected,
    ratio,
    tally,
    wilson_high,
    wilson_low,
)

HOUR_US = 3_600_000_000
TERMS = Terms(2, HOUR_US, 100 * HOUR_US)
TYPES = frozenset({"POST"})
BEHAVIOUR = Behaviour("a", TYPES, 91 * HOUR_US)

nodes = st.sampled_from("abcde")
behaviours = st.builds(Behaviour, relay=nodes, type_names=st.just(TYPES), since_us=st.integers(0, 101 * HOUR_US))
sightings = st.builds(
    Sighting,
    packet_id=st.binary(min_size=2, max_size=2),
    content_type=st.sampled_from(["POST", "MESSAGE"]),
    expires_at=st.none() | st.integers(0, 120 * 3_600),
    first_seen_us=st.integers(0, 101 * HOUR_US),
    nodes=st.frozensets(nodes, min_size=1),
)
counts = st.integers(0, 10**6).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


def seen(*by: str, **changed: object) -> Sighting:
    """Return a packet that these nodes stored ten hours before the end."""
    return Sighting(b"p", "POST", None, 90 * HOUR_US, frozenset(by))._replace(**changed)


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (0, 10, 0.0, 0.277533),
        (5, 10, 0.236593, 0.763407),
        (10, 10, 0.722467, 1.0),
        (95, 100, 0.888250, 0.978457),
    ],
)
def test_bounds_are_those_of_the_textbook(successes: int, total: int, low: float, high: float) -> None:
    """Known intervals come out to six digits, and nothing counted says nothing."""
    assert wilson_low(successes, total) == pytest.approx(low, abs=2e-6)
    assert wilson_high(successes, total) == pytest.approx(high, abs=2e-6)


@settings(max_examples=500)
@given(counts)
def test_bounds_hold_the_ratio(pair: tuple[int, int]) -> None:
    """The bounds lie in [0, 1] around the ratio, mirror each other, and have at most six digits."""
    successes, total = pair
    low, high = wilson_low(successes, total), wilson_high(successes, total)

    assert 0.0 <= low <= high <= 1.0
    assert total == 0 or low - 1e-6 <= successes / total <= high + 1e-6
    assert low == pytest.approx(1.0 - wilson_high(total - successes, total), abs=1.1e-6)
    assert (low, high) == (round(low, 6), round(high, 6))


@settings(max_examples=300)
@given(counts)
def test_bounds_solve_their_equation(pair: tuple[int, int]) -> None:
    """Each bound is as far from the ratio as 1.959964 of its own standard deviations."""
    successes, total = pair
    if total:
        for bound in (wilson_low(successes, total), wilson_high(successes, total)):
            away = abs(float(Fraction(successes, total)) - bound)
            allowed = 1.959964 * math.sqrt(bound * (1 - bound) / total)
            assert away == pytest.approx(allowed, abs=3e-3 / math.sqrt(total) + 2e-6)


def test_more_evidence_narrows() -> None:
    """The same ratio of ten times as many packets has narrower bounds."""
    assert wilson_low(900, 1_000) > wilson_low(90, 100) > wilson_low(9, 10)
    assert wilson_high(900, 1_000) < wilson_high(90, 100) < wilson_high(9, 10)


@pytest.mark.parametrize(
    ("packet", "wanted"),
    [
        (seen("b", "c"), True),
        (seen("a", "b", "c"), True),
        (seen("a", "b"), False),
        (seen("b"), False),
        (seen("b", "c", first_seen_us=99 * HOUR_US), True),
        (seen("b", "c", first_seen_us=99 * HOUR_US + 1), False),
        (seen("b", "c", first_seen_us=90 * HOUR_US - 1), False),
        (seen("b", "c", expires_at=91 * 3_600), True),
        (seen("b", "c", expires_at=91 * 3_600 - 1), False),
        (seen("b", "c", content_type="MESSAGE"), False),
    ],
)
def test_what_is_expected(packet: Sighting, wanted: bool) -> None:
    """Enough others, old enough, not before its time, alive at that age, of a known type; to the microsecond."""
    assert expected(packet, BEHAVIOUR, TERMS) is wanted


@settings(max_examples=200)
@given(st.lists(sightings, max_size=80), behaviours, st.randoms(use_true_random=False))
def test_tally_counts_each_packet_once(packets: list[Sighting], behaviour: Behaviour, rng) -> None:
    """Served and missing add up, whatever the order, and the smallest missing ids are named."""
    result = tally(packets, behaviour, TERMS)
    wanted = [packet for packet in packets if expected(packet, behaviour, TERMS)]
    missing = sorted(packet.packet_id for packet in wanted if behaviour.relay not in packet.nodes)
    shuffled = list(packets)
    rng.shuffle(shuffled)

    assert result.n_expected == len(wanted)
    assert result.n_expected - result.n_served == len(missing)
    assert list(result.suspicious) == missing[:SUSPICIOUS_MAX]
    assert tally(shuffled, behaviour, TERMS) == result


@settings(max_examples=200)
@given(sightings, behaviours)
def test_own_sighting_is_no_witness(packet: Sighting, behaviour: Behaviour) -> None:
    """Whether a relay stored a packet does not change whether it was expected to."""
    without, having = packet.nodes - {behaviour.relay}, packet.nodes | {behaviour.relay}

    assert expected(packet._replace(nodes=without), behaviour, TERMS) == expected(
        packet._replace(nodes=having), behaviour, TERMS
    )


def test_few_packets_have_no_ratio() -> None:
    """Below the least number there is neither ratio nor bound, from it on all three."""
    assert ratio(EXPECTED_MIN - 1, 0) == (None, None, None)
    assert ratio(EXPECTED_MIN, EXPECTED_MIN) == (1.0, wilson_low(30, 30), 1.0)
    assert ratio(30, 10).ratio == 0.333333
