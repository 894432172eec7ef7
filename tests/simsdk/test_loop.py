"""The virtual loop: time passes only where nothing else can happen."""

import asyncio
import time

import pytest

from tests.simsdk.build import run
from waystation.sim.schedule import LivelockError
from waystation.simsdk import loop as virtual
from waystation.simsdk.loop import StandstillError


def test_waiting_costs_nothing():
    """An hour passes at once, and not a second more."""

    async def story():
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()

    assert run(story) == pytest.approx(3_600, abs=1e-3)
    assert time.monotonic() - began < 60


def test_timers_ring_by_their_time():
    """What is due first happens first, whatever was set first."""

    async def story():
        rung = []
        for delay_s in (3, 1, 2):
            asyncio.get_running_loop().call_later(delay_s, rung.append, delay_s)
        await asyncio.sleep(4)
        return rung

    assert run(story) == [1, 2, 3]


def test_clock_is_past_a_deadline_of_whole_microseconds():
    """Who counts microseconds finds that a timer has not rung too early; else it would set it again for ever."""

    async def story():
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        early = []
        for due_us in (4_097_122, 8_123_457):
            rung.clear()
            loop.call_at(due_us / 1_000_000, rung.set)
            await rung.wait()
            early.append(int(loop.time() * 1_000_000) < due_us)
        return early

    assert run(story) == [False, False]


def test_waiting_for_ever_is_an_error():
    """Where everything waits and no timer is set, the run ends."""

    async def story():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StandstillError):
        run(story)


def test_time_that_cannot_go_on_is_an_error(monkeypatch):
    """A task that goes on and on in one instant ends the run."""
    monkeypatch.setattr(virtual, "TURNS_PER_INSTANT_MAX", 100)

    def again():
        asyncio.get_running_loop().call_soon(again)

    async def story():
        again()
        await asyncio.get_running_loop().create_future()

    with pytest.raises(LivelockError):
        run(story)
