"""Laws of strata.repute: what one upstream's conduct does to its score and its standing, and what a restart keeps."""

import msgspec
import pytest

from waystation.core.errors import LocalError
from waystation.protocols.strata.repute import Repute
from waystation.rules.relay_state import Incident, State

T0 = 1_700_000_000
DAY = 86_400


def good(until_s=T0):
    """Return the repute of an upstream that has let us in ten times and has always been there."""
    repute = Repute()
    repute.connected(until_s - 7_200)
    for number in range(10):
        repute.succeeded(60_000, until_s - 7_200 + number)
    repute.evaluate(until_s)
    return repute


def test_an_upstream_never_met_is_on_probation_in_the_middle():
    """Nothing is known, so nothing speaks for or against it (specs/strata.md 18: 0.5)."""
    repute = Repute.load(b"")

    assert (repute.score(T0), repute.standing.state) == (0.5, State.PROBATION)


def test_what_is_dumped_loads_again():
    """Score, standing and strikes outlive the process."""
    repute = good()
    repute.violated(Incident.BAD_SIGNATURE, T0)
    again = Repute.load(repute.dump())

    assert again.standing == repute.standing
    assert again.score(T0 + 100) == repute.score(T0 + 100)
    assert again.dump() == repute.dump()


@pytest.mark.parametrize(
    "data",
    [b"\xc1", b"\x80", b"\x90", msgspec.msgpack.encode({"standing": {}, "window": {}}), Repute().dump()[:-1]],
)
def test_other_bytes_are_refused(data):
    """A record of something else is no quality of anybody."""
    with pytest.raises(LocalError):
        Repute.load(data)


@pytest.mark.parametrize("incident", [each for each in Incident if each.is_violation])
def test_a_violation_costs_most_and_heals_in_days(incident):
    """One lowers the score at once; a week later it is forgotten."""
    repute = good()
    before = repute.score(T0)
    repute.violated(incident, T0)
    after = repute.score(T0)

    assert after == pytest.approx(before * 0.66, rel=0.05)
    assert after < repute.score(T0 + DAY) < before


def test_three_violations_in_a_day_ban_for_an_hour_then_two():
    """Each ban is twice as long as the one before; violations paid for by a ban do not count again."""
    repute, bans, now = good(), [], T0
    for _ in range(2):
        for _ in range(3):
            repute.violated(Incident.BAD_PACKET_ID, now)
        bans.append(repute.standing.banned_until_s - now)
        now = repute.standing.banned_until_s
        repute.evaluate(now)

    assert bans == [3_600, 7_200]
    assert repute.standing.state is State.PROBATION


def test_time_counts_while_wanted():
    """An upstream that is away half of the time is worth less than one that stays."""
    steady, flaky = good(), good()
    flaky.disconnected(T0)
    for repute in (steady, flaky):
        repute.evaluate(T0 + 7_200)

    assert flaky.score(T0 + 7_200) < steady.score(T0 + 7_200)


def test_a_ban_is_not_absence():
    """While we do not want to be connected, the upstream's being away says nothing."""
    repute = good()
    repute.disconnected(T0)
    for _ in range(3):
        repute.violated(Incident.BAD_SIGNATURE, T0)
    before = Repute.load(repute.dump())
    repute.evaluate(T0 + 3_000)

    assert repute.score(T0 + 3_000) == before.score(T0 + 3_000)


def test_connecting_again_and_again_costs():
    """The first connection is none too many; each later one within an hour lowers the score a little."""
    repute, scores = good(), []
    for number in range(4):
        repute.connected(T0 + number)
        scores.append(repute.score(T0 + 5))

    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4


def test_limits_and_errors_cost_for_ten_minutes():
    """An upstream that makes us wait, or talks nonsense, is worth less until that is ten minutes past."""
    repute = good()
    before = repute.score(T0)
    repute.limited(30, T0)
    limited = repute.score(T0)
    repute.erred(T0)
    both = repute.score(T0)

    assert before - limited == pytest.approx(0.12)
    assert limited - both == pytest.approx(0.08)
    assert repute.score(T0 + 601) == pytest.approx(before, abs=0.01)


def test_a_long_pause_counts_until_it_is_over():
    """``retry_after`` beyond the ten minutes keeps the upstream limited."""
    repute = good()
    repute.limited(3_000, T0)

    assert repute.score(T0 + 3_001) - repute.score(T0 + 2_999) == pytest.approx(0.12, abs=0.01)


def test_good_conduct_makes_it_active():
    """Three good evaluations running, with enough observed, and probation is over."""
    repute = Repute()
    repute.connected(T0)
    for number in range(6):
        repute.succeeded(50_000, T0 + number)
    states = []
    for minute in range(4):
        repute.evaluate(T0 + 400 + 60 * minute)
        states.append(repute.standing.state)

    assert states == [State.PROBATION, State.PROBATION, State.ACTIVE, State.ACTIVE]


def test_failures_lower_the_score_and_never_ban():
    """An upstream that is down looks bad, and is dialled all the same."""
    repute = Repute()
    for _ in range(40):
        repute.failed(T0)

    assert repute.standing.state is State.PROBATION
    assert repute.score(T0) < Repute().score(T0)
