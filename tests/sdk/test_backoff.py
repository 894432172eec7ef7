"""Laws of sdk.backoff."""

import random

from waystation.sdk.backoff import Backoff


def test_backoff_doubles_to_its_cap():
    """Delays double, never exceed the cap, are at least half of their step, and begin anew after a success."""
    backoff = Backoff(random.Random(1), first_s=1, cap_s=8)
    delays = [backoff.next_s() for _ in range(6)]
    backoff.reset()

    for delay, step in zip([*delays, backoff.next_s()], [1, 2, 4, 8, 8, 8, 1], strict=True):
        assert step / 2 <= delay <= step
