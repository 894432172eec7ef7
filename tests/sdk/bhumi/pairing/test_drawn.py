"""A relay that does anything, drawn from seeds: what applications did is judged, see ``law``."""

import asyncio
from collections import Counter

import pytest

from tests.sdk.bhumi.pairing.law import Scene
from waystation.sdk.bhumi import Dialect
from waystation.sdk.bhumi.answers import Answers

QUICK_SEEDS = 8
SEEDS = 1_000
AT_ONCE = 8


async def played(seeds, folder, **options):
    """Play seeds, some at once; return the sentences of what was broken, and all outcomes of sends."""
    outcomes, broken, room = Counter(), [], asyncio.Semaphore(AT_ONCE)

    async def play(seed):
        async with room:
            scene = Scene(seed, folder / str(seed), **options)
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
def test_law_finds_a_sender_that_repeats(tmp_path):
    """Where every content may arrive twice, some relay soon sees to it that one does."""
    broken, _ = asyncio.run(played(range(QUICK_SEEDS), tmp_path, repeatable=True))

    assert [line for line in broken if "is handled 2 times" in line]


@pytest.mark.slow
def test_law_finds_a_device_that_takes_weaker_forms(tmp_path, monkeypatch):
    """A device that forgets what its peers were paired in soon acts for the relay."""
    monkeypatch.setattr(Answers, "_weakest_of", lambda *_: Dialect.NONE)
    broken, _ = asyncio.run(played(range(QUICK_SEEDS), tmp_path))

    assert [line for line in broken if "which it did not send" in line]


@pytest.mark.slow
def test_no_relay_makes_a_device_act_in_a_thousand_seeds(tmp_path):
    """The same law, for many seeds."""
    assert asyncio.run(played(range(QUICK_SEEDS, SEEDS), tmp_path))[0] == []
