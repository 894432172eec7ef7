import random

import pytest

from waystation.protocols.bhumi.messages import Status
from waystation.sdk.bhumi.sending.retry import Retry, Timeouts, Verdict, verdict_of_status

TIMEOUTS = Timeouts(wait_s=10, doubt_s=60, settle_s=2)


def retry(**options):
    return Retry(options.pop("timeouts", TIMEOUTS), random.Random(1), **options)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (Status.OK, Verdict.ANSWERED),
        (Status.NOT_CONNECTED, Verdict.OFFLINE),
        (Status.BAD_PREIMAGE, Verdict.SPENT),
        (Status.TIMEOUT, Verdict.UNCERTAIN),
        (Status.GONE, Verdict.GONE),
        (5, Verdict.UNCERTAIN),
        (255, Verdict.UNCERTAIN),
    ],
)
def test_status_means(status, outcome):
    """Only 1 and 2 say that nothing was delivered; what this version does not know leaves a request in doubt."""
    assert verdict_of_status(int(status)) is outcome


@pytest.mark.parametrize(
    ("outcome", "elapsed_s", "verdict"),
    [
        (Verdict.ANSWERED, 0, Verdict.ANSWERED),
        (Verdict.OFFLINE, 9.9, None),
        (Verdict.OFFLINE, 10, Verdict.OFFLINE),
        (Verdict.UNREACHABLE, 9.9, None),
        (Verdict.UNREACHABLE, 10, Verdict.UNREACHABLE),
        (Verdict.UNCERTAIN, 59.9, None),
        (Verdict.UNCERTAIN, 60, Verdict.UNCERTAIN),
        (Verdict.GONE, 59.9, None),
        (Verdict.GONE, 60, Verdict.UNCERTAIN),
        (Verdict.SPENT, 0, None),
    ],
)
def test_first_try(outcome, elapsed_s, verdict):
    """Each outcome is given its own timeouts; None means that there is another try."""
    then = retry().after(outcome, elapsed_s)

    assert then is verdict if verdict else isinstance(then, float)


@pytest.mark.parametrize("outcome", [Verdict.OFFLINE, Verdict.UNREACHABLE])
def test_doubt_never_becomes_certainty(outcome):
    """Once a request may have been delivered, a later status 1 or a dead relay does not make it undelivered."""
    tries = retry(timeouts=Timeouts(wait_s=0, doubt_s=60))
    tries.after(Verdict.UNCERTAIN, 1)

    assert isinstance(tries.after(outcome, 2), float)
    assert tries.after(outcome, 60) is Verdict.UNCERTAIN
    assert tries.in_doubt


def test_a_former_process_leaves_doubt():
    """A request that is recovered counts as in doubt from the beginning."""
    assert isinstance(retry(in_doubt=True, timeouts=Timeouts()).after(Verdict.OFFLINE, 0), float)


def test_spent_settles():
    """Status 2 is final only when it has been said for the settling time."""
    tries = retry()

    assert isinstance(tries.after(Verdict.SPENT, 5), float)
    assert isinstance(tries.after(Verdict.SPENT, 6.9), float)
    assert tries.after(Verdict.SPENT, 7) is Verdict.SPENT


@pytest.mark.parametrize("elsewhere", [Verdict.OFFLINE, Verdict.UNREACHABLE])
def test_commit_settles_at_one_relay_whatever_others_say(elsewhere):
    """Who is at the second relay is not offline because the first has not got them; then the last word counts."""
    tries = retry(timeouts=Timeouts(wait_s=0, doubt_s=60, settle_s=2), relays_count=2)
    waits = [tries.after(outcome, 0.1 * number) for number, outcome in enumerate([elsewhere, Verdict.SPENT, elsewhere])]

    assert all(isinstance(wait, float) for wait in waits)
    assert isinstance(tries.after(elsewhere, 3.0), Verdict)


def test_every_relay_is_asked_once():
    """Without timeouts each relay still gets one try, at once."""
    tries = retry(timeouts=Timeouts(), relays_count=3)

    assert [tries.after(Verdict.OFFLINE, 0) for _ in range(3)] == [0.0, 0.0, Verdict.OFFLINE]
    assert tries.tries_count == 3


def test_relay_that_is_back_is_asked_soon():
    """NODE-BACK: the pauses that grew while a relay was away are not waited out once it answers."""
    tries = retry(in_doubt=True)
    for second in range(12):
        tries.after(Verdict.UNREACHABLE, second)

    assert tries.after(Verdict.OFFLINE, 20) <= 0.2
    assert max(tries.after(Verdict.OFFLINE, 21 + second) for second in range(9)) > 1.0


@pytest.mark.parametrize(
    ("before", "outcome", "elapsed_s", "left_s"),
    [(Verdict.UNREACHABLE, Verdict.UNREACHABLE, 59.5, 0.5), (Verdict.SPENT, Verdict.SPENT, 21.9, 0.1)],
)
def test_no_pause_goes_beyond_the_end(before, outcome, elapsed_s, left_s):
    """The last try comes when the time is over, not a whole pause later: those behind it wait for its end."""
    for seed in range(20):
        tries = Retry(TIMEOUTS, random.Random(seed), in_doubt=before is Verdict.UNREACHABLE)
        for _ in range(9):
            tries.after(before, 20)

        assert tries.after(outcome, elapsed_s) <= left_s + 1e-9
