"""Laws of sdk.merk.outgoing."""

import asyncio

from waystation.sdk.merk import outgoing
from waystation.sdk.merk.outgoing import Outgoing


def run(scenario):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(10):
            return await scenario()

    return asyncio.run(bounded())


async def hold(gate, size, entered, leave):
    """Send a frame that is under way until ``leave``."""
    async with gate.room(size):
        entered.append(size)
        await leave.wait()


def test_frames_wait_for_room_in_their_order(monkeypatch):
    """Neither count nor bytes go beyond their bound; a small frame does not pass a large one that waits."""
    monkeypatch.setattr(outgoing, "UNDER_WAY_BYTES_MAX", 100)

    async def scenario():
        gate, entered, leave = Outgoing(3), [], asyncio.Event()
        tasks = [asyncio.create_task(hold(gate, size, entered, leave)) for size in (60, 60, 1)]
        await asyncio.wait(tasks, timeout=0.05)
        before = list(entered)
        leave.set()
        await asyncio.gather(*tasks)
        return before, entered

    assert run(scenario) == ([60], [60, 60, 1])


def test_frame_larger_than_the_bound_goes_alone(monkeypatch):
    """What no room would ever be enough for is not held back for ever."""
    monkeypatch.setattr(outgoing, "UNDER_WAY_BYTES_MAX", 100)

    async def scenario():
        gate, entered, leave = Outgoing(3), [], asyncio.Event()
        leave.set()
        await hold(gate, 1_000, entered, leave)
        return entered

    assert run(scenario) == [1_000]


def test_caller_who_gives_up_leaves_no_room_taken():
    """A cancelled send frees its place, whether it waited or was under way."""

    async def scenario():
        gate, entered, leave = Outgoing(1), [], asyncio.Event()
        tasks = [asyncio.create_task(hold(gate, size, entered, leave)) for size in (1, 2)]
        await asyncio.wait(tasks, timeout=0.02)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        leave.set()
        await hold(gate, 3, entered, leave)
        return entered

    assert run(scenario) == [1, 3]
