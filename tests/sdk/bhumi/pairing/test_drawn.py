"""The hostile relay of ``simsdk`` on real sockets: a seed fixes what is drawn, and the machine's timing the order."""

import asyncio
import time
from collections import Counter

import pytest

from waystation.core.instant import Instant
from waystation.sdk.bhumi import Dialect
from waystation.sdk.bhumi.answers import Answers
from waystation.sim.trace import Trace
from waystation.simsdk.bhumi.hostile_relay import HostileRelay
from waystation.simsdk.bhumi.scene import Scene
from waystation.simsdk.run import Judge
from waystation.transport.listen import Listener

QUICK_SEEDS = 8
SEEDS = 100
AT_ONCE = 8
HOSTILE_S = 3.0
ROUNDS_MIN = 6


async def played(seeds, folder, **options):
    """Play seeds, some at once; return the sentences of what was broken, and all outcomes of sends."""
    outcomes, broken, room = Counter(), [], asyncio.Semaphore(AT_ONCE)

    async def play(seed):
        async with room:
            relay = HostileRelay(seed)
            listener = Listener(relay, lambda _: True, lambda _: None, None)
            await listener.open("127.0.0.1", 0)
            judge = Judge(lambda: Instant(time.monotonic_ns() // 1_000), Trace())
            url, place = f"tcp://127.0.0.1:{listener.port}", folder / str(seed)
            limits = {"hostile_s": HOSTILE_S, "rounds_min": ROUNDS_MIN}
            scene = Scene(seed, place, relay, url, judge.observe, clock=time.time, **limits, **options)
            try:
                await scene.play()
            except Exception as error:  # noqa: BLE001 - whatever a seed meets is told with its number
                judge.fail("crash", repr(error))
            finally:
                listener.close()
                relay.stop()
            if judge.failure is not None:
                broken.append(f"seed {seed}: {judge.failure.invariant}: {judge.failure.detail}")
            outcomes.update(scene.outcomes)

    await asyncio.gather(*(play(seed) for seed in seeds))
    return broken, outcomes


def is_found(law, folder, **options):
    """Return whether a law is broken by one of many seeds: on sockets no single seed is sure to meet a mistake."""
    for first in range(0, SEEDS, QUICK_SEEDS):
        broken, _ = asyncio.run(played(range(first, first + QUICK_SEEDS), folder, **options))
        if any(law in line for line in broken):
            return True
    return False


def test_no_relay_makes_a_device_act(tmp_path):
    """Whatever the relay does, a handler is called for what a paired peer has sent, and once; pairs work afterwards."""
    broken, outcomes = asyncio.run(played(range(QUICK_SEEDS), tmp_path))

    assert broken == []
    assert outcomes["answered"] > 0
    assert outcomes["uncertain"] > 0


@pytest.mark.slow
def test_law_finds_a_sender_that_repeats(tmp_path):
    """Where every content may arrive twice, some relay soon sees to it that one does."""
    assert is_found("handled-once", tmp_path, repeatable=True)


@pytest.mark.slow
def test_law_finds_a_device_that_takes_weaker_forms(tmp_path, monkeypatch):
    """A device that forgets what its peers were paired in soon acts for the relay."""
    monkeypatch.setattr(Answers, "_weakest_of", lambda *_: Dialect.NONE)
    assert is_found("asked-for", tmp_path)


@pytest.mark.slow
def test_no_relay_makes_a_device_act_in_many_seeds(tmp_path):
    """The same law, for many seeds."""
    assert asyncio.run(played(range(QUICK_SEEDS, SEEDS), tmp_path))[0] == []
