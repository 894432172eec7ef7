"""Laws of lprp.difficulty: every term of the demand in a table, alone and together."""

import math
import random

import pytest

from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.messages import Kind
from waystation.protocols.lprp.relay.difficulty import RATE_WINDOW_S, TARGETS, Difficulty, MovingCount
from waystation.protocols.lprp.settings import LprpSettings

SECOND = 1_000_000
NOW = Instant(1_000 * SECOND)
BASE = {Kind.RELAY: 16, Kind.LEASE: 20, Kind.WHITELIST: 16}
KINDS = list(Kind)
DEFAULTS = LprpSettings()


def demanded(difficulty, kind, occupancy=0.0, issued=0, now=NOW):
    return difficulty.bits(kind, occupancy=occupancy, issued=issued, now=now)


def busy(kind, count, settings=DEFAULTS):
    """Return a difficulty that has seen so many of one kind, evenly over the minute that ends now."""
    difficulty = Difficulty(settings)
    for index in range(count):
        difficulty.accepted(kind, Instant(NOW - (RATE_WINDOW_S - 1) * SECOND * (count - 1 - index) // count))
    return difficulty


@pytest.mark.parametrize("kind", KINDS)
def test_quiet_host_demands_the_base(kind):
    """Without traffic, fullness and history the demand is 16, 20 and 16 bits."""
    assert demanded(Difficulty(LprpSettings()), kind) == BASE[kind]


def test_each_kind_has_its_own_base():
    """The three settings do not get mixed up."""
    difficulty = Difficulty(
        LprpSettings(pow_base_bits_relay=8, pow_base_bits_lease=9, pow_base_bits_whitelist=10),
    )

    assert [demanded(difficulty, kind) for kind in (Kind.RELAY, Kind.LEASE, Kind.WHITELIST)] == [8, 9, 10]


def test_targets_are_those_of_the_text():
    """Relays, updates and leases cost more beyond 100, 10 and 1 a second."""
    assert {Kind.RELAY: 100, Kind.WHITELIST: 10, Kind.LEASE: 1} == TARGETS


@pytest.mark.parametrize(
    ("count", "more"),
    [(0, 0), (1, 0), (59, 0), (60, 0), (61, 1), (120, 1), (121, 2), (240, 2), (241, 3), (480, 3), (481, 4)],
)
def test_rate_of_leases(count, more):
    """Up to 60 leases a minute, the target, nothing is added; each doubling begun adds one bit."""
    assert demanded(busy(Kind.LEASE, count), Kind.LEASE) == 20 + more


@pytest.mark.parametrize(("count", "more"), [(600, 0), (601, 1), (1_200, 1), (1_201, 2), (2_400, 2), (2_401, 3)])
def test_rate_of_updates(count, more):
    """One, two and four times the target of ten a second add 0, 1 and 2 bits, and one update more the next."""
    assert demanded(busy(Kind.WHITELIST, count), Kind.WHITELIST) == 16 + more


@pytest.mark.parametrize(("count", "more"), [(6_000, 0), (6_001, 1), (12_000, 1), (12_001, 2), (24_000, 2)])
def test_rate_of_relays(count, more):
    """One, two and four times the target of a hundred a second add 0, 1 and 2 bits."""
    assert demanded(busy(Kind.RELAY, count), Kind.RELAY) == 16 + more


def test_rate_is_that_of_the_kind_alone():
    """A rush for leases makes neither relays nor updates dearer."""
    difficulty = busy(Kind.LEASE, 300)

    assert demanded(difficulty, Kind.RELAY) == 16
    assert demanded(difficulty, Kind.WHITELIST) == 16
    assert demanded(difficulty, Kind.LEASE) == 23


def test_rate_follows_the_formula():
    """For any count the term is ceil(log2(max(1, mean / target)))."""
    seed = 5
    rng = random.Random(seed)
    for _ in range(30):
        count = rng.randrange(1, 1_000)
        mean = count / RATE_WINDOW_S

        assert demanded(busy(Kind.LEASE, count), Kind.LEASE) == min(26, 20 + math.ceil(math.log2(max(1, mean)))), seed


def test_rush_is_forgotten_after_a_minute():
    """What was accepted counts for sixty seconds, its own second included."""
    difficulty = Difficulty(LprpSettings())
    for _ in range(240):
        difficulty.accepted(Kind.LEASE, NOW)

    assert demanded(difficulty, Kind.LEASE, now=Instant(NOW + 60 * SECOND - 1)) == 22
    assert demanded(difficulty, Kind.LEASE, now=Instant(NOW + 60 * SECOND)) == 20


@pytest.mark.parametrize(
    ("occupancy", "more"),
    [
        (0.0, 0),
        (0.25, 0),
        (0.5, 0),
        (0.5625, 0),
        (0.624, 0),
        (0.625, 2),
        (0.749, 2),
        (0.75, 4),
        (0.874, 4),
        (0.875, 6),
        (0.999, 6),
        (1.0, 8),
        (1.7, 8),
    ],
)
def test_fullness(occupancy, more):
    """From one half on each eighth adds two bits, so that a full table, or an overfull one, adds eight."""
    assert demanded(Difficulty(LprpSettings()), Kind.RELAY, occupancy=occupancy) == 16 + more


@pytest.mark.parametrize("room", [64, 1_000, 65_536])
def test_eighths_are_exact_for_every_size_of_table(room):
    """Five eighths of any table that can be divided so is five eighths, and one entry less is not."""
    difficulty = Difficulty(LprpSettings())
    reached = room * 5 // 8

    assert demanded(difficulty, Kind.RELAY, occupancy=reached / room) == 18
    assert demanded(difficulty, Kind.RELAY, occupancy=(reached - 1) / room) == 16


@pytest.mark.parametrize(
    ("issued", "more"),
    [
        (0, 0),
        (7, 0),
        (8, 1),
        (23, 1),
        (24, 2),
        (55, 2),
        (56, 3),
        (119, 3),
        (120, 4),
        (247, 4),
        (248, 5),
        (1_016, 7),
        (2_039, 7),
        (2_040, 8),
        (4_087, 8),
        (4_088, 9),
        (4_096, 9),
    ],
)
def test_challenges_of_the_prefix(issued, more):
    """The term is floor(log2(1 + issued / 8))."""
    assert demanded(Difficulty(LprpSettings()), Kind.RELAY, issued=issued) == 16 + more


def test_challenges_of_the_prefix_follow_the_formula():
    """For every number up to 4,096 the integer form equals the formula in exact fractions."""
    difficulty = Difficulty(LprpSettings(pow_base_bits_relay=0))
    for issued in range(4_097):
        bits = demanded(difficulty, Kind.RELAY, issued=issued)

        assert 2**bits * 8 <= 8 + issued < 2 ** (bits + 1) * 8


def test_terms_add_up():
    """Rate, fullness and prefix each add their own bits."""
    difficulty = busy(Kind.LEASE, 120, LprpSettings(pow_base_bits_lease=10))

    assert demanded(difficulty, Kind.LEASE, occupancy=0.75, issued=24) == 10 + 1 + 4 + 2


@pytest.mark.parametrize("base", [0, 16, 20, 25, 26])
def test_nobody_demands_more_than_26_bits(base):
    """However much comes together, a minute of search is the most, and the base the least."""
    difficulty = busy(Kind.LEASE, 3_840, LprpSettings(pow_base_bits_lease=base))

    assert demanded(difficulty, Kind.LEASE, occupancy=1.0, issued=1 << 20) == 26
    assert demanded(difficulty, Kind.LEASE) == min(26, base + 6)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_difficulty_is_the_base(kind):
    """Without pow_adaptive neither traffic nor fullness nor history changes the demand."""
    settings = LprpSettings(pow_adaptive=False, pow_base_bits_relay=8, pow_base_bits_lease=8, pow_base_bits_whitelist=8)
    difficulty = busy(kind, 6_500, settings)

    assert demanded(difficulty, kind, occupancy=1.0, issued=4_096) == 8


@pytest.mark.parametrize("seed", range(6))
def test_moving_count_agrees_with_a_dumb_model(seed):
    """Whatever the gaps, the count is that of all events in this slot and the others that fit before it."""
    rng = random.Random(seed)
    slots, slot_us = rng.choice([(1, 7), (8, 100), (60, 1_000)])
    now = Instant(rng.randrange(10**6))
    counted, events = MovingCount(slots, slot_us, now), []
    for _ in range(400):
        now = Instant(now + rng.choice([0, 1, slot_us // 2, slot_us, slot_us * slots - 1, slot_us * slots * 3]))
        if rng.random() < 0.7:
            count = rng.randrange(1, 4)
            counted.add(now, count)
            events.append((now // slot_us, count))
        alive = sum(count for slot, count in events if slot > now // slot_us - slots)

        assert counted.total(now) == alive, f"seed {seed}"


def test_moving_count_takes_no_step_per_slot_of_a_long_pause():
    """A pause of years costs no more than one round of the slots."""
    counted = MovingCount(60, 1, Instant(0))
    counted.add(Instant(5), 3)

    assert counted.total(after_ms(Instant(0), 10**12)) == 0
