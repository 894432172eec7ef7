"""Laws of store.writer_thread: one job after the other, and a hang is noticed."""

import asyncio
import threading

import pytest

from tests.server.build import eventually
from waystation.store import writer_thread
from waystation.store.writer_thread import WriterThread


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(writer_thread, "HUNG_S", 0.05)


def test_results_and_errors_come_back():
    """``run`` returns what the job returns and raises what it raises; nothing hangs afterwards."""

    async def story():
        writer = WriterThread(lambda: pytest.fail("nothing hangs"))
        found = await writer.run(divmod, 7, 2)
        with pytest.raises(ZeroDivisionError):
            await writer.run(divmod, 1, 0)
        writer.shutdown()
        return found

    assert asyncio.run(story()) == (3, 1)


def test_hang_is_told_once_and_ends_with_the_job():
    """It counts from when something last returned, also when nobody waits for the job any more."""

    async def story():
        gates, calls = [threading.Event(), threading.Event()], []
        writer = WriterThread(lambda: calls.append("hang"))
        jobs = [asyncio.create_task(writer.run(gate.wait)) for gate in gates]
        await eventually(lambda: writer.is_stuck)
        jobs[0].cancel()
        await asyncio.sleep(0)
        was_stuck = writer.is_stuck
        gates[0].set()
        await eventually(lambda: len(calls) == 2)
        writer.shutdown()
        gates[1].set()
        return was_stuck, await jobs[1], writer.is_stuck, calls

    assert asyncio.run(story()) == (True, True, False, ["hang", "hang"])
