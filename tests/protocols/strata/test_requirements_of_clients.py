"""Row 42 of specs/strata.md 21: what scripted observations of a relay score, and through which states they lead.

The other rows about clients are tried where the client's machine and the SDK are.
"""

import pytest

from waystation.rules.relay_score import score
from waystation.rules.relay_state import (
    EVALUATION_S,
    Incident,
    Standing,
    State,
    evaluate,
    on_failure,
    on_success,
    on_violation,
)
from waystation.rules.relay_window import RelayWindow, counts, observations

WEEK_S = 604_800
NOW = 500_000 * 3_600 - 1  # the last second of an hour, so that the 168 hours are a whole week
MIB = 1_048_576


def watched(ok=50, fail=0, up_s=600_000, latency_ms=60.0):
    """Return a week in which the client wanted to be connected all the time."""
    window = RelayWindow()
    begun_s = NOW + 1 - WEEK_S
    window.record_wanted(begun_s, begun_s + up_s, connected=True)
    window.record_wanted(begun_s + up_s, NOW, connected=False)
    for succeeded, count in ((True, ok), (False, fail)):
        for _ in range(count):
            window.record_connect(succeeded, NOW)
    if latency_ms is not None:
        window.record_latency(latency_ms, NOW)
    return window


def after(window, name, *calls):
    """Return the window after ``record_<name>`` with each of these arguments."""
    for arguments in calls:
        getattr(window, f"record_{name}")(*arguments, NOW)
    return window


def flaky():
    """Return the week of a relay that comes and goes."""
    return after(watched(20, 30, 200_000, 120.0), "reconnect", *[()] * 5)


VALUES = {
    "fresh": (RelayWindow, 0.5),
    "good": (watched, 0.8761),
    "media": (lambda: after(watched(), "transfer", (4 * MIB, 1_000.0)), 0.8663),
    "slow": (lambda: watched(latency_ms=1_200.0), 0.5918),
    "flaky": (flaky, 0.4355),
    "throttled": (lambda: after(watched(), "incident", (Incident.RATE_LIMITED,)), 0.7561),
    "one violation": (lambda: after(watched(), "incident", (Incident.BAD_SIGNATURE,)), 0.5782),
    "two violations": (lambda: after(watched(), "incident", *[(Incident.BAD_PACKET_ID,)] * 2), 0.2803),
    "probes": (lambda: after(watched(), "probe", *[(True,)] * 12, *[(False,)] * 8), 0.5841),
    "dead": (lambda: watched(0, 20, 0, None), 0.2873),
}


@pytest.mark.parametrize("case", VALUES)
def test_row_42_observations_score_as_published(case):
    """What the events of a week come to is the value of section 18."""
    make, expected = VALUES[case]

    assert score(observations(make(), NOW)) == pytest.approx(expected, abs=5e-5)


class Client:
    """Plays observations of one relay against a clock, and writes down where they lead."""

    def __init__(self, *, pinned=False):
        self.now_s = NOW
        self.window = RelayWindow()
        self.standing = Standing(State.PROBATION, NOW, pinned=pinned)
        self.path = []

    def _move(self, step):
        self.standing, change = step
        if change is not None:
            self.path.append(change.after)

    def minutes(self, count, latency_ms=20.0):
        """Let minutes pass in which a request succeeds, or with None fails."""
        for _ in range(count):
            self.window.record_connect(latency_ms is not None, self.now_s)
            if latency_ms is None:
                self._move(on_failure(self.standing, self.now_s))
            else:
                self.standing = on_success(self.standing)
                self.window.record_latency(latency_ms, self.now_s)
            self.wait(EVALUATION_S)

    def wait(self, seconds):
        """Let time pass, and look at the relay at its end."""
        self.now_s += seconds
        found = counts(self.window, self.standing.cleared_s, self.now_s)
        self._move(evaluate(self.standing, score(observations(self.window, self.now_s)), found, self.now_s))

    def lie(self, times):
        """Let the relay pass on so many tampered packets."""
        for _ in range(times):
            self.window.record_incident(Incident.BAD_SIGNATURE, self.now_s)
            count = counts(self.window, self.standing.cleared_s, self.now_s).violations
            self._move(on_violation(self.standing, Incident.BAD_SIGNATURE, count, self.now_s))


def test_row_42_observations_lead_through_every_state_and_back():
    """On probation, trusted, failing, trusted again, lying, banned, on probation again, trusted again."""
    client = Client()
    client.minutes(10)
    client.minutes(3, None)
    client.minutes(10)
    client.lie(3)
    client.wait(3_599)
    banned = client.standing.state
    client.wait(1)
    client.wait(3 * 86_400)  # what it did weighs less and less
    client.minutes(10)

    assert banned is State.BLACKLISTED
    assert client.path == [
        State.ACTIVE,
        State.BACKUP,
        State.ACTIVE,
        State.BLACKLISTED,
        State.PROBATION,
        State.ACTIVE,
    ]


def test_row_42_low_scores_demote_and_unreachable_relays_are_banned():
    """A relay that grows slow and fails now and then becomes a backup; one that is gone is left alone."""
    client = Client()
    client.minutes(10)
    for _ in range(20):
        client.minutes(2, None)
        client.minutes(1, 2_000.0)
    slow = client.path[-1]
    client.minutes(10, None)

    assert (slow, client.path) == (State.BACKUP, [State.ACTIVE, State.BACKUP, State.BLACKLISTED])
    assert client.standing.banned_until_s == client.now_s - EVALUATION_S + 3_600


def test_row_42_a_pinned_relay_is_flagged_and_never_banned():
    """Whatever it does, the user's own choice is only marked."""
    client = Client(pinned=True)
    client.minutes(10)
    client.lie(5)
    client.minutes(20, None)

    assert State.BLACKLISTED not in client.path
    assert client.standing.flagged is not None
