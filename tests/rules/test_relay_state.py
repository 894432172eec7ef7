"""The states of a relay: each edge at its threshold and one step before it."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.errors import LocalError
from waystation.rules.relay_state import (
    BAN_MAX_S,
    EVALUATION_S,
    Counts,
    Incident,
    Reason,
    Standing,
    State,
    evaluate,
    on_failure,
    on_success,
    on_violation,
    pin,
    sample,
    standing_from_plain,
    standing_to_plain,
    unpin,
)

T0 = 1_700_000_000
DAY = 86_400
ENOUGH = Counts(observations=5, violations=0)
IN_USE = (State.PROBATION, State.ACTIVE, State.BACKUP)
VIOLATIONS = (Incident.BAD_PACKET_ID, Incident.BAD_SIGNATURE, Incident.EXPIRED_PACKET, Incident.OUTSIDE_FILTER)


def standing(state=State.PROBATION, **fields):
    return Standing(state, T0, **fields)


def evaluations(start, scores, first_s=T0 + EVALUATION_S, counts=ENOUGH):
    """Evaluate once a minute; return the standing after the last score and every change."""
    changes = []
    for index, score in enumerate(scores):
        start, change = evaluate(start, score, counts, first_s + index * EVALUATION_S)
        changes += [change] if change else []
    return start, changes


def failures(start, count, now_s=T0 + 1_000):
    changes = []
    for _ in range(count):
        start, change = on_failure(start, now_s)
        changes += [change] if change else []
    return start, changes


def edges(changes):
    return [(change.before, change.after, change.reason) for change in changes]


@pytest.mark.parametrize("state", [State.PROBATION, State.BACKUP])
@pytest.mark.parametrize(
    ("scores", "first_s", "observations", "moves"),
    [
        ([0.65] * 3, T0 + 180, 5, True),
        ([0.65] * 2, T0 + 240, 5, False),
        ([0.65] * 3, T0 + 179, 5, False),
        ([0.65] * 3, T0 + 180, 4, False),
    ],
    ids=["all met", "two running", "299 s", "four observations"],
)
def test_becomes_active_when_every_condition_is_met(state, scores, first_s, observations, moves):
    """Three scores of 0.65 running, five observations and 300 s make a relay active; one of them short does not."""
    after, changes = evaluations(standing(state), scores, first_s, Counts(observations, 0))

    assert edges(changes) == ([(state, State.ACTIVE, Reason.PROVED_GOOD)] if moves else [])
    assert after.state is (State.ACTIVE if moves else state)
    assert after.since_s == (T0 + 300 if moves else T0)


@pytest.mark.parametrize("scores", [[0.65, 0.65, 0.6499, 0.65, 0.65], [0.6499] * 9])
def test_good_scores_must_run(scores):
    """A score of 0.6499 in between starts the count of three again."""
    _, changes = evaluations(standing(State.BACKUP), scores, T0 + 600)

    assert not changes


@pytest.mark.parametrize(
    ("score", "now_s", "observations", "moves"),
    [
        (0.6499, T0 + 300, 5, True),
        (0.65, T0 + 300, 5, False),
        (0.6499, T0 + 299, 5, False),
        (0.6499, T0 + 300, 4, False),
    ],
)
def test_probation_ends_as_backup(score, now_s, observations, moves):
    """After 300 s and five observations a score below 0.65 makes a relay on probation a backup."""
    after, change = evaluate(standing(), score, Counts(observations, 0), now_s)

    assert edges([change] if change else []) == (
        [(State.PROBATION, State.BACKUP, Reason.NOT_GOOD_ENOUGH)] if moves else []
    )
    assert after.since_s == (now_s if moves else T0)


@pytest.mark.parametrize(
    ("scores", "first_s", "moves"),
    [
        ([0.4999] * 2, T0, True),
        ([0.4999] * 2, T0 - 1, False),
        ([0.4999], T0 + 999, False),
        ([0.4999, 0.5, 0.4999], T0 + 999, False),
        ([0.5] * 20, T0 + 999, False),
    ],
    ids=["two at 60 s", "two at 59 s", "one", "interrupted", "0.50"],
)
def test_active_falls_to_backup(scores, first_s, moves):
    """Two scores below 0.50 running, 60 s into the state, make an active relay a backup; less does not."""
    _, changes = evaluations(standing(State.ACTIVE), scores, first_s)

    assert edges(changes) == ([(State.ACTIVE, State.BACKUP, Reason.LOW_SCORE)] if moves else [])


@pytest.mark.parametrize("state", [State.ACTIVE, State.BACKUP])
@pytest.mark.parametrize("score", [0.50, 0.57, 0.6499])
def test_nothing_changes_between_the_thresholds(state, score):
    """From 0.50 up to below 0.65 a relay stays what it is, active or backup."""
    after, changes = evaluations(standing(state), [score] * 50)

    assert not changes and after.state is state


def test_border_does_not_flicker():
    """A score that swings from 0.49 to 0.66 every minute moves a relay not once."""
    for state in (State.ACTIVE, State.BACKUP):
        assert not evaluations(standing(state), [0.49, 0.66] * 60)[1]


def test_three_failures_demote_at_once():
    """The third failure in a row makes an active relay a backup, without waiting for an evaluation."""
    two, none = failures(standing(State.ACTIVE), 2, T0)
    three, changes = failures(two, 1, T0)

    assert not none and two.state is State.ACTIVE
    assert edges(changes) == [(State.ACTIVE, State.BACKUP, Reason.FAILURES)] and three.since_s == T0


@pytest.mark.parametrize("state", IN_USE)
def test_tenth_failure_bans(state):
    """Ten failures in a row blacklist from any state, nine do not."""
    nine, _ = failures(standing(state), 9)
    ten, changes = failures(nine, 1)

    assert nine.state is not State.BLACKLISTED
    assert edges(changes) == [(nine.state, State.BLACKLISTED, Reason.UNREACHABLE)]
    assert ten.banned_until_s == T0 + 1_000 + 3_600


def test_success_interrupts_failures():
    """After a success failures are counted from zero."""
    after, changes = failures(on_success(failures(standing(State.ACTIVE), 2)[0]), 2)
    backup, more = failures(on_success(failures(standing(State.BACKUP), 9)[0]), 9)

    assert not changes and not more
    assert (after.state, backup.state) == (State.ACTIVE, State.BACKUP)


@pytest.mark.parametrize("state", IN_USE)
@pytest.mark.parametrize("incident", VIOLATIONS)
def test_third_violation_bans(state, incident):
    """The third violation within 24 h blacklists at once, the second does not."""
    two, none = on_violation(standing(state), incident, 2, T0 + 5)
    three, change = on_violation(two, incident, 3, T0 + 6)

    assert none is None and two.state is state
    assert edges([change]) == [(state, State.BLACKLISTED, Reason.VIOLATIONS)]
    assert (three.banned_until_s, three.cleared_s) == (T0 + 6 + 3_600, T0 + 6)


@pytest.mark.parametrize("incident", [each for each in Incident if each not in VIOLATIONS])
def test_what_honest_relays_do_is_no_violation(incident):
    """Throttling, missing packets, unknown fields, duplicates and unknown authors change no standing."""
    before = standing(State.ACTIVE)

    assert on_violation(before, incident, 99, T0 + 6) == (before, None)
    assert not incident.is_violation


@pytest.mark.parametrize("state", IN_USE)
def test_evaluation_sees_violations_too(state):
    """An evaluation that finds three violations blacklists; with two it does not."""
    _, two = evaluate(standing(state), 0.6, Counts(3, 2), T0 + 10)
    _, three = evaluate(standing(state), 0.6, Counts(3, 3), T0 + 10)

    assert two is None
    assert edges([three]) == [(state, State.BLACKLISTED, Reason.VIOLATIONS)]


@pytest.mark.parametrize("state", IN_USE)
@pytest.mark.parametrize(
    ("scores", "banned"),
    [([0.1499] * 10, True), ([0.1499] * 9, False), ([0.1499] * 9 + [0.15], False), ([0.15] * 30, False)],
)
def test_ten_very_low_scores_ban(state, scores, banned):
    """Ten scores below 0.15 running blacklist from any state; nine, or 0.15 itself, do not."""
    after, changes = evaluations(standing(state), scores)

    assert (after.state is State.BLACKLISTED) is banned
    assert any(change.reason is Reason.VERY_LOW_SCORE for change in changes) is banned


def test_very_low_scores_count_across_a_demotion():
    """The ten scores may lie on both sides of the fall from active to backup."""
    _, changes = evaluations(standing(State.ACTIVE), [0.1] * 10)

    assert edges(changes) == [
        (State.ACTIVE, State.BACKUP, Reason.LOW_SCORE),
        (State.BACKUP, State.BLACKLISTED, Reason.VERY_LOW_SCORE),
    ]


@pytest.mark.parametrize(
    ("strikes", "ban_s"),
    [(0, 3_600), (1, 7_200), (2, 14_400), (7, 460_800), (8, BAN_MAX_S), (9, BAN_MAX_S), (10_000, BAN_MAX_S)],
)
def test_ban_doubles_up_to_seven_days(strikes, ban_s):
    """A ban lasts 3600 * 2^(strikes - 1) s, and never above seven days."""
    after, change = on_violation(standing(strikes=strikes), Incident.BAD_SIGNATURE, 3, T0)

    assert change is not None and after.strikes == strikes + 1
    assert after.banned_until_s == T0 + ban_s


def test_ban_ends_on_probation():
    """Until the last second of the ban nothing moves, then the relay is on probation with fresh counters."""
    banned, _ = failures(standing(State.BACKUP, very_low_running=9), 10, T0)
    early = evaluate(banned, 0.9, ENOUGH, T0 + 3_599)
    after, change = evaluate(banned, 0.9, ENOUGH, T0 + 3_600)

    assert early == (banned, None)
    assert edges([change]) == [(State.BLACKLISTED, State.PROBATION, Reason.BAN_OVER)]
    assert (after.since_s, after.failures_running, after.very_low_running, after.strikes) == (T0 + 3_600, 0, 0, 1)


def test_nothing_reaches_a_banned_relay():
    """Failures and violations noted late neither lengthen a ban nor count towards the next one."""
    banned, _ = failures(standing(State.BACKUP), 10, T0)

    assert failures(banned, 20, T0 + 5) == (banned, [])
    assert on_violation(banned, Incident.BAD_SIGNATURE, 3, T0 + 5) == (banned, None)


@pytest.mark.parametrize(("days", "strikes"), [(29, 3), (30, 2), (59, 2), (60, 1), (90, 0), (900, 0)])
def test_strikes_fall_by_one_per_clean_month(days, strikes):
    """Each 30 days after the end of the ban take one strike away."""
    before = standing(State.ACTIVE, strikes=3, clean_since_s=T0)

    assert evaluate(before, 0.6, ENOUGH, T0 + days * DAY)[0].strikes == strikes
    assert evaluate(before, 0.6, ENOUGH, T0 + 30 * DAY - 1)[0].strikes == 3


def test_strikes_fall_alike_however_often_we_look():
    """Daily evaluations and a single one forgive the same."""
    daily = standing(State.ACTIVE, strikes=3, clean_since_s=T0)
    for day in range(1, 71):
        daily, _ = evaluate(daily, 0.6, ENOUGH, T0 + day * DAY)

    assert daily.strikes == 1
    assert daily.clean_since_s == T0 + 60 * DAY


def test_violation_starts_the_month_again():
    """A single violation does not ban, but the clean days before it are lost."""
    stained, _ = on_violation(
        standing(State.ACTIVE, strikes=1, clean_since_s=T0), Incident.OUTSIDE_FILTER, 1, T0 + 29 * DAY
    )

    assert evaluate(stained, 0.6, ENOUGH, T0 + 31 * DAY)[0].strikes == 1
    assert evaluate(stained, 0.6, ENOUGH, T0 + 59 * DAY)[0].strikes == 0


def test_second_ban_of_a_story_is_longer():
    """A relay walks through every state and back, and its second ban lasts two hours."""
    relay, changes = evaluations(standing(), [0.8] * 5)
    relay, more = evaluations(relay, [0.4] * 2, T0 + 360)
    changes += more
    relay, more = evaluations(relay, [0.8] * 6, T0 + 480)
    changes += more
    relay, more = failures(relay, 10, T0 + 900)
    changes += more
    relay, change = evaluate(relay, 0.8, ENOUGH, T0 + 900 + 3_600)
    changes.append(change)
    relay, change = evaluate(relay, 0.6, ENOUGH, T0 + 900 + 3_900)
    changes.append(change)
    relay, change = on_violation(relay, Incident.BAD_PACKET_ID, 3, T0 + 5_000)
    changes.append(change)

    states = [State.PROBATION, State.ACTIVE, State.BACKUP, State.ACTIVE, State.BACKUP, State.BLACKLISTED]
    states += [State.PROBATION, State.BACKUP, State.BLACKLISTED]
    assert [(change.before, change.after) for change in changes] == list(pairwise(states))
    assert relay.banned_until_s == T0 + 5_000 + 7_200
    assert all(change.text for change in changes)


@pytest.mark.parametrize("state", IN_USE)
def test_pinned_relay_is_flagged_once(state):
    """What bans another relay flags a pinned one, in one change that says so, and its state stays."""
    before = pin(standing(state))
    after, change = on_violation(before, Incident.BAD_SIGNATURE, 3, T0 + 7)
    again, silent = on_violation(after, Incident.BAD_SIGNATURE, 4, T0 + 8)

    assert edges([change]) == [(state, state, Reason.VIOLATIONS)] and "pinned" in change.text
    assert after == replace(before, flagged=Reason.VIOLATIONS, clean_since_s=T0 + 7)
    assert silent is None and again.flagged is Reason.VIOLATIONS


STEPS = st.lists(st.tuples(st.sampled_from(["evaluate", "fail", "violate"]), st.floats(0, 1)), max_size=80)


@given(STEPS)
def test_pinned_relay_is_never_blacklisted(steps):
    """No order of bad scores, failures and violations blacklists a pinned relay."""
    relay = pin(standing())
    for index, (kind, value) in enumerate(steps):
        now_s = T0 + 60 * index
        if kind == "fail":
            relay, change = on_failure(relay, now_s)
        elif kind == "violate":
            relay, change = on_violation(relay, Incident.BAD_SIGNATURE, 3, now_s)
        else:
            relay, change = evaluate(relay, value / 8, Counts(9, 3), now_s)

        assert relay.state is not State.BLACKLISTED
        assert change is None or change.after is not State.BLACKLISTED


@given(STEPS)
def test_changes_and_standings_agree(steps):
    """A state differs from the one before if and only if a change says so, and every counter stays bounded."""
    relay = standing()
    for index, (kind, value) in enumerate(steps):
        before, now_s = relay, T0 + 60 * index
        relay, change = on_failure(relay, now_s) if kind == "fail" else evaluate(relay, value, ENOUGH, now_s)

        assert (relay.state is not before.state) == (change is not None)
        assert change is None or (change.before, change.after) == (before.state, relay.state)
        assert relay.good_running <= 3 and relay.poor_running <= 2
        assert relay.very_low_running <= 10 and relay.failures_running <= 10


def test_flagged_relay_still_moves():
    """A flag does not keep a pinned relay active: poor scores make it a backup."""
    flagged, _ = on_violation(pin(standing(State.ACTIVE)), Incident.BAD_SIGNATURE, 3, T0)
    _, changes = evaluations(flagged, [0.3] * 2, counts=Counts(9, 3))

    assert edges(changes) == [(State.ACTIVE, State.BACKUP, Reason.LOW_SCORE)]


def test_flag_is_lifted_when_good_again():
    """Three good scores running lift the flag, but not while what caused it lasts."""
    flagged, _ = on_violation(pin(standing(State.ACTIVE)), Incident.BAD_SIGNATURE, 3, T0)
    lasting, none = evaluations(flagged, [0.9] * 9, counts=Counts(9, 3))
    after, changes = evaluations(flagged, [0.9] * 3, counts=Counts(9, 2))

    assert not none and lasting.flagged is Reason.VIOLATIONS
    assert edges(changes) == [(State.ACTIVE, State.ACTIVE, Reason.FLAG_LIFTED)] and after.flagged is None


def test_unpinned_relay_is_judged_anew():
    """Without its pin a relay that was flagged for failures is banned by the next evaluation."""
    flagged, _ = failures(pin(standing(State.BACKUP)), 10)
    after, change = evaluate(unpin(flagged), 0.6, ENOUGH, T0 + 2_000)

    assert flagged.flagged is Reason.UNREACHABLE
    assert change.reason is Reason.UNREACHABLE and after.state is State.BLACKLISTED


@pytest.mark.parametrize("state", State)
def test_sampling_puts_only_backups_on_probation(state):
    """Churn tries a backup again; it ends no ban and no active service."""
    before = standing(state, banned_until_s=T0 + 99)
    after, change = sample(before, T0 + 5)

    assert after.state is (State.PROBATION if state is State.BACKUP else state)
    assert edges([change] if change else []) == (
        [(State.BACKUP, State.PROBATION, Reason.SAMPLED)] if state is State.BACKUP else []
    )


@pytest.mark.parametrize("flagged", [None, Reason.VIOLATIONS])
@pytest.mark.parametrize("state", State)
def test_standing_survives_json(state, flagged):
    """A standing comes back from JSON as it was."""
    before = Standing(state, T0, 1, 2, 3, 4, 5, 6, 7, 8, pinned=True, flagged=flagged)

    assert standing_from_plain(json.loads(json.dumps(standing_to_plain(before)))) == before


@pytest.mark.parametrize("broken", [{}, {"state": "green"}, {"surplus": 1}, {"flagged": "so"}])
def test_foreign_standing_is_refused(broken):
    """What is no standing is a LocalError, not a crash."""
    plain = {**standing_to_plain(standing()), **broken} if broken else {}

    with pytest.raises(LocalError, match="no standing"):
        standing_from_plain(plain)
