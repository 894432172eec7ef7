"""The fold over what was recorded of a relay: the client's own history, in any pieces."""

import random

import pytest

from waystation.core.contacts import Connected, Disconnected
from waystation.protocols.strata.client.events import Authenticated, Limited, PublishUnknown, RelayError, Violation
from waystation.protocols.strata.client.watch import RelayWatch
from waystation.rules.relay_entry import RelayEntry
from waystation.rules.relay_history import TIMES_MAX, RelayFold, fold
from waystation.rules.relay_observation import FAILED, MISSING, OK, Observation, Probe
from waystation.rules.relay_score import explain
from waystation.rules.relay_state import Incident, Reason, Standing, State
from waystation.rules.relay_window import observations, window_to_plain

T0 = 1_699_999_980
"""The first second of a minute."""
HOUR = 3_600
REASONS = {"signature": Incident.BAD_SIGNATURE, "expired": Incident.EXPIRED_PACKET}


def seen(offset_s, probe, outcome=OK, **amounts):
    """Return an observation so many seconds after T0."""
    return Observation(int((T0 + offset_s) * 1_000_000), b"", probe, outcome, **amounts)


def answered(first_s, last_s, latency_us=20_000):
    """Return an answer every 20 s."""
    return [seen(at_s, Probe.RTT, latency_us=latency_us) for at_s in range(first_s, last_s, 20)]


def forged(at_s, times=1):
    """Return packets with bad signatures."""
    return seen(at_s, Probe.VALIDITY, FAILED, incident=Incident.BAD_SIGNATURE, times=times)


def moves(history):
    """Return the changes as offset, state after and reason."""
    return [(each.at_s - T0, each.after, each.reason) for each in history.transitions]


SILENCE_S = 10


class Client:
    """A client's watch, fed like a journal: what it notes is what the journal keeps."""

    def __init__(self, rng):
        self.now_s = T0
        self.changes = []
        self.journal = []
        self.watch = RelayWatch(RelayEntry.new("ws://a/strata", T0), lambda: self.now_s, self._changed)
        self._rng = rng
        self._met = False
        self._silent_s = 0

    def _changed(self, _url, change):
        self.changes.append((change.at_s, change.before, change.after, change.reason))

    def _keep(self, probe, outcome=OK, **amounts):
        order = len(self.journal).to_bytes(4, "big")
        self.journal.append(Observation(self.now_s * 1_000_000, order, probe, outcome, **amounts))

    def act(self, mood):
        """Let something happen and keep it."""
        kind = self._rng.choices(range(7), [8 * mood, 9 - 9 * mood, 3 * mood, 2 - 2 * mood, 0.05, 0.2, 0.2])[0]
        if kind == 0:
            self.watch.note(Connected("r", 1.0))
            self._keep(Probe.CONNECT)
            if self._met:
                self._keep(Probe.RECONNECT)
            self._met = True
        elif kind == 1:
            self.watch.note(Disconnected("r", "no", None, 1.0))
            self._keep(Probe.CONNECT, FAILED)
        elif kind == 2:
            latency_us = self._rng.randrange(10**6)
            self.watch.note(Authenticated((), latency_us))
            self._keep(Probe.RTT, latency_us=latency_us)
        elif kind == 3:
            self.watch.note(PublishUnknown("m", b""))
            if self.now_s - self._silent_s >= SILENCE_S:  # one silence is one failure
                self._silent_s = self.now_s
                self._keep(Probe.RTT, FAILED)
        elif kind == 4:
            reason = self._rng.choice(list(REASONS))
            self.watch.note(Violation(reason, "", None))
            self._keep(Probe.VALIDITY, FAILED, incident=REASONS[reason])
        elif kind == 5:
            self.watch.note(Limited(30, None, None))
            self._keep(Probe.LIMITED, duration_us=30_000_000)
        else:
            self.watch.note(RelayError("internal", ""))
            self._keep(Probe.ERROR)

    def probe(self):
        """Ask for a packet that the relay ought to have."""
        found = self._rng.random() < 0.8
        self.watch.note_probe(found=found)
        self._keep(Probe.KNOWN_HASH, OK if found else MISSING)


@pytest.mark.parametrize("seed", range(12))
def test_history_is_that_of_the_client(seed) -> None:
    """A client that evaluates every minute and sees something in each has the same changes, standing and score."""
    rng = random.Random(seed)
    client = Client(rng)
    client.probe()
    for minute in range(400):
        mood = 0.95 if minute // 50 % 2 else 0.3
        for second in sorted(rng.sample(range(60), rng.randrange(1, 5))):
            client.now_s = T0 + minute * 60 + second
            client.act(mood)
        client.probe()
        client.now_s = T0 + minute * 60 + 60
        client.watch.evaluate()
    history = fold(client.journal, client.now_s)

    assert [each[:4] for each in history.transitions] == client.changes
    assert len(client.changes) > 1
    assert history.standing == client.watch.entry.standing
    assert history.explanation == explain(observations(client.watch.entry.window, client.now_s))


def test_relay_that_was_never_seen_is_on_probation() -> None:
    """Without observations there is nothing but the beginning."""
    history = fold([], T0)

    assert (history.standing, history.transitions, history.reason) == (Standing(State.PROBATION, T0), (), None)
    assert (history.explanation.score, history.counts) == (0.5, (0, 0))


def test_good_relay_becomes_active_after_its_trial() -> None:
    """Five minutes of good answers lead from probation to active, and the row says why and how good it was."""
    history = fold(answered(0, 900), T0 + 900)

    assert moves(history) == [(300, State.ACTIVE, Reason.PROVED_GOOD)]
    assert (history.transitions[0].before, history.transitions[0].observations) == (State.PROBATION, 15)
    assert (history.transitions[0].score >= 0.65, history.reason) == (True, Reason.PROVED_GOOD)


def test_minutes_without_observations_judge_nothing() -> None:
    """A relay that is looked at twice has two evaluations, however long lies between."""
    history = fold([seen(0, Probe.RTT, latency_us=1), seen(HOUR, Probe.RTT, latency_us=1)], T0 + 9 * HOUR)

    assert (history.standing.good_running, history.standing.state) == (2, State.PROBATION)


def test_tampering_relay_is_banned_at_once() -> None:
    """The third bad signature bans, in its own second, alone or three in one row."""
    singly = fold([*answered(0, 600), forged(600), forged(601), forged(602)], T0 + 700)
    at_once = fold([*answered(0, 600), forged(602, times=3)], T0 + 700)

    assert moves(singly)[-1] == moves(at_once)[-1] == (602, State.BLACKLISTED, Reason.VIOLATIONS)
    assert moves(fold([*answered(0, 600), forged(602, times=2)], T0 + 700))[-1][1] is State.ACTIVE


def test_ban_runs_out_though_nobody_looks() -> None:
    """An hour after the ban, at a full minute, the relay is on probation; a second before it is not."""
    observed = [*answered(0, 600), forged(602, times=3)]
    over_s = 602 + HOUR + 58  # the end of that minute

    assert moves(fold(observed, T0 + over_s))[-1] == (over_s, State.PROBATION, Reason.BAN_OVER)
    assert fold(observed, T0 + over_s - 1).standing.state is State.BLACKLISTED
    later = moves(fold([*observed, seen(2 * HOUR, Probe.RTT)], T0 + 3 * HOUR))
    assert later[2] == (over_s, State.PROBATION, Reason.BAN_OVER)


def test_one_row_may_change_a_state_twice() -> None:
    """Ten failures in one row are a fall to backup and a ban, as ten rows are."""
    good = answered(0, 600)
    gathered = fold([*good, seen(601, Probe.RTT, FAILED, times=10)], T0 + 660)
    singly = fold([*good, *[seen(601, Probe.RTT, FAILED)] * 10], T0 + 660)

    assert gathered == singly
    assert [each[1:] for each in moves(gathered)[1:]] == [
        (State.BACKUP, Reason.FAILURES),
        (State.BLACKLISTED, Reason.UNREACHABLE),
    ]


def test_occurrences_are_bounded() -> None:
    """A row that claims a great many costs no more than the limit."""
    history = fold([seen(0, Probe.CONNECT, times=10**15)], T0 + 60)

    assert history.counts.observations == TIMES_MAX


def test_flapping_relay_does_not_flicker() -> None:
    """A relay that fails every other minute for a day moves a handful of times, not hundreds."""
    observed = answered(0, 600)
    for minute in range(10, 24 * 60):
        outcome = OK if minute % 2 else FAILED
        observed.append(seen(minute * 60 + 5, Probe.CONNECT, outcome))
        observed.append(seen(minute * 60 + 50, Probe.SPAN, outcome, duration_us=60_000_000))
    history = fold(observed, T0 + 24 * HOUR)

    assert len(history.transitions) <= 4


def test_longer_fold_begins_with_the_shorter_one() -> None:
    """Ending a fold moves nothing: every change before its end is the same in one that ends later."""
    observed = [*answered(0, 600), forged(602, times=3), *answered(2 * HOUR, 2 * HOUR + 900)]
    whole = fold(observed, T0 + 5 * HOUR)
    for until_s in range(T0, T0 + 5 * HOUR, 610):
        part = fold(observed, until_s)

        assert part.transitions == tuple(each for each in whole.transitions if each.at_s <= until_s)


def test_fold_goes_on_from_what_it_kept() -> None:
    """A fold that is stopped and begun again with its standing and window ends as one that ran through."""
    observed = [*answered(0, 1_200), forged(1_201), forged(1_202), *answered(1_203, 3_000)]
    whole = RelayFold(Standing(State.PROBATION, T0))
    first = RelayFold(Standing(State.PROBATION, T0))
    for each in observed:
        whole.feed(each)
    for each in [each for each in observed if each.at_us < (T0 + 1_200) * 1_000_000]:
        first.feed(each)
    first.pass_time(T0 + 1_200)
    rest = RelayFold(first.standing, first.window)
    for each in [each for each in observed if each.at_us >= (T0 + 1_200) * 1_000_000]:
        rest.feed(each)

    assert rest.history(T0 + 3_000).standing == whole.history(T0 + 3_000).standing
    assert window_to_plain(rest.window) == window_to_plain(whole.window)
