"""Laws of sdk.backoff: pauses that double and spread, and how soon a client is back (NODE-BACK)."""

import asyncio
import random
from collections import Counter

import pytest

from waystation.sdk.backoff import CAP_S, FIRST_S, STABLE_S, Backoff, Pause

BACK_WITHIN_S = 10.0
LAST_SYN_S = 3.0
"""From the last SYN of a dial that hangs, at 7 s, to its end at 10 s."""


def test_backoff_doubles_to_its_cap():
    """Steps double, never exceed the cap, are no shorter than half the first, and begin anew after a success."""
    backoff = Backoff(random.Random(1), first_s=1, cap_s=8)
    delays = [backoff.next_s() for _ in range(6)]
    backoff.reset()

    for delay, step in zip([*delays, backoff.next_s()], [1, 2, 4, 8, 8, 8, 1], strict=True):
        assert 0.5 <= delay <= step


def test_longest_pause_and_a_dial_that_hangs_leave_a_second():
    """Whoever waits longest is back ten seconds after the network is."""
    assert CAP_S + LAST_SYN_S < BACK_WITHIN_S


@pytest.mark.parametrize("seed", range(20))
def test_client_is_back_in_time_after_flapping(seed):
    """Three minutes of a relay that lives 4 to 9 s and is away 1 to 20 s: it waits no longer than the longest pause."""
    rng = random.Random(seed)
    backoff, now, try_at, late = Backoff(rng), 0.0, 0.0, []
    while now < 180:
        comes_at = now + rng.uniform(1, 20)
        while try_at < comes_at:
            try_at += backoff.next_s()
        late.append(try_at - comes_at)
        now = comes_at + rng.uniform(4, 9)
        if now - try_at >= STABLE_S:
            backoff.reset()
        try_at = max(try_at, now) + backoff.next_s()

    assert max(late) <= CAP_S


def test_herd_comes_back_over_seconds():
    """Of five thousand clients that wait for one relay no more than a tenth tries in the same quarter of a second."""
    tries = Counter()
    for seed in range(5_000):
        backoff = Backoff(random.Random(seed))
        at = 0.0
        while at < 30:
            at += backoff.next_s()
        tries[int(at * 4)] += 1

    assert max(tries.values()) <= 500
    assert len(tries) >= 20


def test_first_step_is_short():
    """A relay that was restarted has its clients back in half a second, spread over half of that."""
    delays = [Backoff(random.Random(seed)).next_s() for seed in range(1_000)]

    assert FIRST_S / 2 <= min(delays) < max(delays) <= FIRST_S


def test_pause_ends_early_when_it_is_told_to():
    """``end`` ends the wait under way or the next one, once."""

    async def story():
        pause = Pause()
        waiting = asyncio.create_task(pause.wait(60))
        await asyncio.sleep(0)
        pause.end()
        async with asyncio.timeout(20):
            await waiting
            pause.end()
            await pause.wait(60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await pause.wait(60)
        await pause.wait(0.001)

    asyncio.run(story())
