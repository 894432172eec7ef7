import random

import pytest

from waystation.protocols.bhumi.messages import Status
from waystation.sdk.bhumi_retry import Backoff, Outcome, Patience, Retry, Verdict, outcome_of_status

PATIENCE = Patience(wait_s=10, doubt_s=60, settle_s=2)


def retry(**options):
    return Retry(options.pop("patience", PATIENCE), random.Random(1), **options)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (Status.OK, Outcome.ANSWERED),
        (Status.NOT_CONNECTED, Outcome.OFFLINE),
        (Status.BAD_PREIMAGE, Outcome.SPENT),
        (Status.TIMEOUT, Outcome.IN_DOUBT),
        (Status.GONE, Outcome.IN_DOUBT),
        (5, Outcome.IN_DOUBT),
        (255, Outcome.IN_DOUBT),
    ],
)
def test_status_means(status, outcome):
    """Only 1 and 2 say that nothing was delivered; what this version does not know leaves a request in doubt."""
    assert outcome_of_status(int(status)) is outcome


@pytest.mark.parametrize(
    ("outcome", "elapsed_s", "verdict"),
    [
        (Outcome.ANSWERED, 0, Verdict.ANSWERED),
        (Outcome.OFFLINE, 9.9, None),
        (Outcome.OFFLINE, 10, Verdict.OFFLINE),
        (Outcome.NOT_SENT, 9.9, None),
        (Outcome.NOT_SENT, 10, Verdict.UNREACHABLE),
        (Outcome.IN_DOUBT, 59.9, None),
        (Outcome.IN_DOUBT, 60, Verdict.UNCERTAIN),
        (Outcome.SPENT, 0, None),
    ],
)
def test_first_try(outcome, elapsed_s, verdict):
    """Each outcome is given its own patience; None means that there is another try."""
    then = retry().after(outcome, elapsed_s)

    assert then is verdict if verdict else isinstance(then, float)


@pytest.mark.parametrize("outcome", [Outcome.OFFLINE, Outcome.NOT_SENT])
def test_doubt_never_becomes_certainty(outcome):
    """Once a request may have been delivered, a later status 1 or a dead relay does not make it undelivered."""
    tries = retry(patience=Patience(wait_s=0, doubt_s=60))
    tries.after(Outcome.IN_DOUBT, 1)

    assert isinstance(tries.after(outcome, 2), float)
    assert tries.after(outcome, 60) is Verdict.UNCERTAIN
    assert tries.in_doubt


def test_a_former_process_leaves_doubt():
    """A request that is recovered counts as in doubt from the beginning."""
    assert isinstance(retry(in_doubt=True, patience=Patience()).after(Outcome.OFFLINE, 0), float)


def test_spent_settles():
    """Status 2 is final only when it has been said for the settling time."""
    tries = retry()

    assert isinstance(tries.after(Outcome.SPENT, 5), float)
    assert isinstance(tries.after(Outcome.SPENT, 6.9), float)
    assert tries.after(Outcome.SPENT, 7) is Verdict.SPENT


@pytest.mark.parametrize("elsewhere", [Outcome.OFFLINE, Outcome.NOT_SENT])
def test_commit_settles_at_one_relay_whatever_others_say(elsewhere):
    """Who is at the second relay is not offline because the first has not got them; then the last word counts."""
    tries = retry(patience=Patience(wait_s=0, doubt_s=60, settle_s=2), relays_count=2)
    waits = [tries.after(outcome, 0.1 * number) for number, outcome in enumerate([elsewhere, Outcome.SPENT, elsewhere])]

    assert all(isinstance(wait, float) for wait in waits)
    assert isinstance(tries.after(elsewhere, 3.0), Verdict)


def test_every_relay_is_asked_once():
    """Without patience each relay still gets one try, at once."""
    tries = retry(patience=Patience(), relays_count=3)

    assert [tries.after(Outcome.OFFLINE, 0) for _ in range(3)] == [0.0, 0.0, Verdict.OFFLINE]
    assert tries.tries_count == 3


def test_backoff_doubles_to_its_cap():
    """Delays double, never exceed the cap, are at least half of their step, and begin anew after a success."""
    backoff = Backoff(random.Random(1), first_s=1, cap_s=8)
    delays = [backoff.next_s() for _ in range(6)]
    backoff.reset()

    for delay, step in zip([*delays, backoff.next_s()], [1, 2, 4, 8, 8, 8, 1], strict=True):
        assert step / 2 <= delay <= step
