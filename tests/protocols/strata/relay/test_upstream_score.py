"""Laws of strata.upstream_score: how one upstream's conduct moves its score and state, and what a restart keeps."""

import msgspec
import pytest

from waystation.core.errors import LocalError
from waystation.protocols.strata.relay.upstream_score import UpstreamScore
from waystation.rules.relay_state import Incident, State

T0 = 1_700_000_000
DAY = 86_400


def good(until_s=T0):
    """Return the score of an upstream that has authenticated us ten times and has always been there."""
    upstream_score = UpstreamScore()
    upstream_score.connected(until_s - 7_200)
    for number in range(10):
        upstream_score.succeeded(60_000, until_s - 7_200 + number)
    upstream_score.evaluate(until_s)
    return upstream_score


def test_an_upstream_never_met_is_on_probation_in_the_middle():
    """Nothing is known, so nothing speaks for or against it (specs/strata.md 18: 0.5)."""
    upstream_score = UpstreamScore.load(b"")

    assert (upstream_score.score(T0), upstream_score.standing.state) == (0.5, State.PROBATION)


def test_what_is_dumped_loads_again():
    """Score, standing and strikes outlive the process."""
    upstream_score = good()
    upstream_score.violated(Incident.BAD_SIGNATURE, T0)
    again = UpstreamScore.load(upstream_score.dump())

    assert again.standing == upstream_score.standing
    assert again.score(T0 + 100) == upstream_score.score(T0 + 100)
    assert again.dump() == upstream_score.dump()


@pytest.mark.parametrize(
    "data",
    [b"\xc1", b"\x80", b"\x90", msgspec.msgpack.encode({"standing": {}, "window": {}}), UpstreamScore().dump()[:-1]],
)
def test_other_bytes_are_refused(data):
    """A record of something else is no quality of anybody."""
    with pytest.raises(LocalError):
        UpstreamScore.load(data)


@pytest.mark.parametrize("incident", [each for each in Incident if each.is_violation])
def test_a_violation_costs_most_and_heals_in_days(incident):
    """One lowers the score at once; a week later it is forgotten."""
    upstream_score = good()
    before = upstream_score.score(T0)
    upstream_score.violated(incident, T0)
    after = upstream_score.score(T0)

    assert after == pytest.approx(before * 0.66, rel=0.05)
    assert after < upstream_score.score(T0 + DAY) < before


def test_three_violations_in_a_day_ban_for_an_hour_then_two():
    """Each ban is twice as long as the one before; violations paid for by a ban do not count again."""
    upstream_score, bans, now = good(), [], T0
    for _ in range(2):
        for _ in range(3):
            upstream_score.violated(Incident.BAD_PACKET_ID, now)
        bans.append(upstream_score.standing.banned_until_s - now)
        now = upstream_score.standing.banned_until_s
        upstream_score.evaluate(now)

    assert bans == [3_600, 7_200]
    assert upstream_score.standing.state is State.PROBATION


def test_time_counts_while_wanted():
    """An upstream that is away half of the time is worth less than one that stays."""
    steady, flaky = good(), good()
    flaky.disconnected(T0)
    for upstream_score in (steady, flaky):
        upstream_score.evaluate(T0 + 7_200)

    assert flaky.score(T0 + 7_200) < steady.score(T0 + 7_200)


def test_a_ban_is_not_absence():
    """While we do not want to be connected, the upstream's being away says nothing."""
    upstream_score = good()
    upstream_score.disconnected(T0)
    for _ in range(3):
        upstream_score.violated(Incident.BAD_SIGNATURE, T0)
    before = UpstreamScore.load(upstream_score.dump())
    upstream_score.evaluate(T0 + 3_000)

    assert upstream_score.score(T0 + 3_000) == before.score(T0 + 3_000)


def test_connecting_again_and_again_costs():
    """The first connection is none too many; each later one within an hour lowers the score a little."""
    upstream_score, scores = good(), []
    for number in range(4):
        upstream_score.connected(T0 + number)
        scores.append(upstream_score.score(T0 + 5))

    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4


def test_limits_and_errors_cost_for_ten_minutes():
    """An upstream that makes us wait, or talks nonsense, is worth less until that is ten minutes past."""
    upstream_score = good()
    before = upstream_score.score(T0)
    upstream_score.limited(30, T0)
    limited = upstream_score.score(T0)
    upstream_score.erred(T0)
    both = upstream_score.score(T0)

    assert before - limited == pytest.approx(0.12)
    assert limited - both == pytest.approx(0.08)
    assert upstream_score.score(T0 + 601) == pytest.approx(before, abs=0.01)


def test_a_long_pause_counts_until_it_is_over():
    """``retry_after`` beyond the ten minutes keeps the upstream limited."""
    upstream_score = good()
    upstream_score.limited(3_000, T0)

    assert upstream_score.score(T0 + 3_001) - upstream_score.score(T0 + 2_999) == pytest.approx(0.12, abs=0.01)


def test_good_conduct_makes_it_active():
    """Three good evaluations running, with enough observed, and probation is over."""
    upstream_score = UpstreamScore()
    upstream_score.connected(T0)
    for number in range(6):
        upstream_score.succeeded(50_000, T0 + number)
    states = []
    for minute in range(4):
        upstream_score.evaluate(T0 + 400 + 60 * minute)
        states.append(upstream_score.standing.state)

    assert states == [State.PROBATION, State.PROBATION, State.ACTIVE, State.ACTIVE]


def test_failures_lower_the_score_and_never_ban():
    """An upstream that is down looks bad, and is dialled all the same."""
    upstream_score = UpstreamScore()
    for _ in range(40):
        upstream_score.failed(T0)

    assert upstream_score.standing.state is State.PROBATION
    assert upstream_score.score(T0) < UpstreamScore().score(T0)
