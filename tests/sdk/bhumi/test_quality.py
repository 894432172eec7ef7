"""Laws of sdk.bhumi_quality: what was observed of a relay decides on its place in the order, and on nothing else."""

import random

import pytest

from waystation.protocols.bhumi.extension_messages import QaVerdict
from waystation.rules.relay_state import State
from waystation.sdk.bhumi.quality import RelayQuality, neutral_score
from waystation.sdk.bhumi.relay_book import NEUTRAL_SCORE, RelayBook

HERE = "tcp://127.0.0.1:1"
THERE = "tcp://127.0.0.1:2"


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self):
        self.now_s = 1_000_000

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    """A clock of one's own."""
    return Clock()


@pytest.fixture
def quality(tmp_path, clock):
    """A fresh view."""
    view = RelayQuality(tmp_path, clock=clock)
    yield view
    view.close()


def test_relay_never_met_is_neutral(quality):
    """Nothing observed, nothing thought."""
    assert (quality.score(HERE), neutral_score(HERE)) == (NEUTRAL_SCORE, NEUTRAL_SCORE)
    assert (quality.entry(HERE), quality.entries()) == (None, [])


def test_quick_relay_beats_slow_relay(quality):
    """The time to the greeting counts."""
    for _ in range(3):
        quality.connected(HERE, 0.02)
        quality.connected(THERE, 1.5)

    assert quality.score(HERE) > NEUTRAL_SCORE > quality.score(THERE) - 0.2
    assert quality.score(HERE) > quality.score(THERE)


def test_unreachable_relay_falls(quality):
    """Failures make a relay worse than one never met, and ten running ban it."""
    quality.failed(HERE)
    first = quality.score(HERE)
    for _ in range(9):
        quality.failed(HERE)

    assert first < NEUTRAL_SCORE
    assert quality.entry(HERE).standing.state is State.BLACKLISTED
    assert quality.score(HERE) == 0


def test_dropped_connections_cost_little(quality):
    """A connection that broke is counted, and is no failure."""
    quality.connected(HERE, 0.02)
    before = quality.score(HERE)
    quality.dropped(HERE)

    assert before - 0.05 < quality.score(HERE) < before
    assert quality.entry(HERE).standing.failures_running == 0


def test_lying_relay_is_banned(quality, clock):
    """Three wrong answers in a day and the relay is not chosen any more, until its ban is over."""
    for _ in range(3):
        quality.probed(HERE, QaVerdict.WRONG, 0.01)
    banned = quality.entry(HERE).standing.state, quality.score(HERE)
    clock.now_s += 3_601
    quality.connected(HERE, 0.02)

    assert banned == (State.BLACKLISTED, 0)
    assert quality.entry(HERE).standing.state is State.PROBATION
    assert quality.score(HERE) > 0


def test_verdicts_in_their_order(quality):
    """Good is better than slow, slow better than unreachable or wrong."""
    addresses = {verdict: f"tcp://127.0.0.1:{verdict + 10}" for verdict in QaVerdict}
    for verdict, address in addresses.items():
        for _ in range(2):
            quality.probed(address, verdict, 0.05 if verdict is QaVerdict.OK else 30.0)
    scores = {verdict: quality.score(address) for verdict, address in addresses.items()}

    assert scores[QaVerdict.OK] > NEUTRAL_SCORE > scores[QaVerdict.SLOW]
    assert scores[QaVerdict.SLOW] > scores[QaVerdict.WRONG]
    assert NEUTRAL_SCORE > scores[QaVerdict.UNREACHABLE] > scores[QaVerdict.WRONG]


def test_refused_probe_is_no_observation(quality):
    """What was not tried says nothing."""
    quality.probed(HERE, QaVerdict.REFUSED, 0.0)

    assert quality.entries() == []


def test_view_outlives_the_program(tmp_path, clock):
    """What was learnt is there next time."""
    first = RelayQuality(tmp_path, clock=clock)
    first.connected(HERE, 0.02)
    before = first.score(HERE)
    first.close()
    second = RelayQuality(tmp_path, clock=clock)
    after = second.score(HERE), [entry.url for entry in second.entries()]
    second.close()

    assert after == (before, [HERE])


def test_book_follows_the_view(tmp_path, quality, clock):
    """The banned relay comes last in the order of the book, the good one before it."""
    book = RelayBook(tmp_path, clock=clock)
    for address in (HERE, THERE):
        book.add_seed(address)
    for _ in range(3):
        quality.probed(HERE, QaVerdict.WRONG, 0.01)
        quality.probed(THERE, QaVerdict.OK, 0.01)
    order = [entry.address for entry in book.order(quality.score, random.Random(1))]
    book.close()

    assert order == [THERE, HERE]


def test_memory_of_evaluations_is_bounded(quality, clock):
    """Only relays looked at in the last minute are remembered as looked at."""
    for number in range(50):
        quality.connected(f"tcp://127.0.0.1:{number + 1}", 0.01)
    clock.now_s += 60
    quality.connected(HERE, 0.01)

    assert len(quality._evaluated_s) == 1
