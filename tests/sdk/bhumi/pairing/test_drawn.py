"""A relay that does anything, drawn from seeds: what applications did is judged, see ``law``."""

import asyncio
from collections import Counter

import pytest

from tests.sdk.bhumi.pairing.law import Scene

QUICK_SEEDS = 20
SEEDS = 1_000
AT_ONCE = 10


async def played(seeds, folder):
    """Play seeds, some at once; return the sentences of what was broken, and all outcomes of sends."""
    outcomes, broken, room = Counter(), [], asyncio.Semaphore(AT_ONCE)

    async def play(seed):
        async with room:
            scene = Scene(seed, folder / str(seed))
            try:
                broken.extend(await scene.play())
            except Exception as error:  # noqa: BLE001 - whatever a seed meets is told with its number
                broken.append(f"seed {seed}: {error!r}")
            outcomes.update(scene.outcomes)

    await asyncio.gather(*(play(seed) for seed in seeds))
    return broken, outcomes


def test_no_relay_makes_a_device_act(tmp_path):
    """Whatever the relay does, a handler is called for what a paired peer has sent, and once; pairs work afterwards."""
    broken, outcomes = asyncio.run(played(range(QUICK_SEEDS), tmp_path))

    assert broken == []
    assert outcomes["answered"] > QUICK_SEEDS
    assert outcomes["uncertain"] > QUICK_SEEDS


@pytest.mark.slow
def test_no_relay_makes_a_device_act_in_a_thousand_seeds(tmp_path):
    """The same law, for many seeds."""
    assert asyncio.run(played(range(QUICK_SEEDS, SEEDS), tmp_path))[0] == []
