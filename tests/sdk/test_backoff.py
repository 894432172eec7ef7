"""Laws of sdk.backoff."""

import random

from waystation.sdk.backoff import UNANSWERED_S, WAITED_S, Backoff


def test_backoff_doubles_to_its_cap():
    """Delays double, never exceed the cap, are at least half of their step, and begin anew after a success."""
    backoff = Backoff(random.Random(1), first_s=1, cap_s=8)
    delays = [backoff.next_s() for _ in range(6)]
    backoff.reset()

    for delay, step in zip([*delays, backoff.next_s()], [1, 2, 4, 8, 8, 8, 1], strict=True):
        assert step / 2 <= delay <= step


def test_try_without_an_answer_is_repeated_soon():
    """NODE-SILENCE: who has waited in vain tries again within 3 s; the step of those who get an answer goes on."""
    backoff = Backoff(random.Random(1), first_s=1, cap_s=60)
    soon = [backoff.next_s(WAITED_S) for _ in range(8)]

    assert max(soon) <= UNANSWERED_S
    assert backoff.next_s() > UNANSWERED_S
