"""Laws of the search for proofs of work in processes."""

import asyncio
import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.protocols.lprp.work import is_enough, solution_of
from waystation.sdk.lprp import solver
from waystation.sdk.lprp.solver import WorkPool

CHALLENGE = bytes(range(208))
OTHER = bytes(reversed(range(208)))
ENDLESS_BITS = 80
ENOUGH_HASHES = 1_000_000


def run(scenario):
    """Run a scenario with a pool of two processes, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(20):
            pool = WorkPool(2)
            try:
                return await scenario(pool)
            finally:
                pool.close()

    return asyncio.run(bounded())


def alive(pid):
    """Return whether a process is there and no zombie."""
    try:
        return stat(pid)[0] != "Z"
    except FileNotFoundError:
        return False


def stat(pid):
    """Return what the kernel tells of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def busy_s(pool):
    """Return the CPU seconds that the processes of a pool have used."""
    used = 0
    for pid in pids(pool):
        used += sum(map(int, stat(pid)[11:13]))
    return used / os.sysconf("SC_CLK_TCK")


def pids(pool):
    """Return the ids of the processes of a pool."""
    return [worker._process.pid for worker in pool._workers]


async def first_progress(search_of):
    """Start a search with ``search_of(on_progress)``; return it once processes have tried something."""
    tried = asyncio.Event()
    search = search_of(lambda progress: progress.hashes and tried.set())
    await tried.wait()
    return search


def test_found_counter_is_enough():
    """What a search finds has the bits, and lies at or behind the start."""

    async def scenario(pool):
        return [await pool.search(CHALLENGE, bits, start=1_000).found for bits in (0, 8, 14)]

    found = run(scenario)

    assert all(is_enough(CHALLENGE, solution_of(each), bits) for each, bits in zip(found, (0, 8, 14), strict=True))
    assert min(found) >= 1_000


def test_start_goes_on_behind_what_was_found():
    """A search from behind a find gives another one, as a host that wants more bits needs it."""

    async def scenario(pool):
        first = await pool.search(CHALLENGE, 10).found
        return first, await pool.search(CHALLENGE, 12, start=first + 1).found

    first, second = run(scenario)

    assert first < second
    assert is_enough(CHALLENGE, solution_of(second), 12)


def test_progress_comes_at_least_every_quarter_second():
    """Somebody who watches sees hashes grow, with a rate, and is never left alone for long."""
    told = []

    async def scenario(pool):
        began = asyncio.get_running_loop().time()
        search = pool.search(
            CHALLENGE, ENDLESS_BITS, on_progress=lambda each: told.append((asyncio.get_running_loop().time(), each))
        )
        while len(told) < 5:
            await asyncio.wait([search.found], timeout=0.02)
        return began

    began = run(scenario)
    times = [began, *(at for at, _ in told)]
    hashes = [progress.hashes for _, progress in told]

    # The median: one turn of a busy machine may come late.
    assert statistics.median(later - before for before, later in itertools.pairwise(times)) < 0.25
    assert hashes == sorted(hashes) and hashes[-1] > hashes[0]
    assert told[-1][1].rate > 10_000


def test_cancelled_search_leaves_the_processes_within_100_ms():
    """Nothing is computed any more a tenth of a second after a cancellation."""

    async def scenario(pool):
        search = await first_progress(lambda told: pool.search(CHALLENGE, ENDLESS_BITS, on_progress=told))
        search.found.cancel()
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.1)
        more_s = []
        for _ in range(5):
            before = busy_s(pool)
            await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.1)
            more_s.append(busy_s(pool) - before)
        return search.found.cancelled(), pool.searches_count, min(more_s)

    cancelled, searches_count, more_s = run(scenario)

    assert (cancelled, searches_count) == (True, 0)
    assert more_s < 0.05  # an endless search takes 0.1 s; the last block of a busy machine may end late


def test_cancelling_the_awaiting_task_cancels_the_search():
    """Who stops waiting stops the work."""

    async def scenario(pool):
        search = await first_progress(lambda told: pool.search(CHALLENGE, ENDLESS_BITS, on_progress=told))
        waiting = asyncio.ensure_future(asyncio.wait_for(search.found, 0.01))
        await asyncio.wait([waiting])
        return pool.searches_count

    assert run(scenario) == 0


def test_searches_share_the_processes_fairly():
    """A search that comes later gets as much as those before it."""

    async def scenario(pool):
        endless = [pool.search(CHALLENGE, ENDLESS_BITS), pool.search(OTHER, ENDLESS_BITS)]
        late = await first_progress(lambda told: pool.search(CHALLENGE, ENDLESS_BITS, on_progress=told))
        before = [each.progress().hashes for each in (*endless, late)]
        done = [0]
        while min(done) < ENOUGH_HASHES:  # so many that a process which the machine held up has made up for it
            await asyncio.wait([late.found], timeout=0.1)
            after = [each.progress().hashes for each in (*endless, late)]
            done = [later - earlier for earlier, later in zip(before, after, strict=True)]
        return done

    done = run(scenario)

    assert max(done) < 2 * min(done)


def test_short_search_does_not_wait_for_a_long_one():
    """An endless search does not keep others from ending."""

    async def scenario(pool):
        pool.search(CHALLENGE, ENDLESS_BITS)
        return await asyncio.wait_for(pool.search(OTHER, 12).found, 20)

    assert is_enough(OTHER, solution_of(run(scenario)), 12)


def test_too_many_searches_are_refused(monkeypatch):
    """The queue is bounded, and says so."""
    monkeypatch.setattr(solver, "SEARCHES_MAX", 2)

    async def scenario(pool):
        for _ in range(2):
            pool.search(CHALLENGE, ENDLESS_BITS)
        with pytest.raises(LocalError, match="2 searches"):
            pool.search(OTHER, 1)

    run(scenario)


def test_killed_process_costs_nothing_but_time():
    """What a killed process had goes to another one."""

    async def scenario(pool):
        search = await first_progress(lambda told: pool.search(CHALLENGE, 18, on_progress=told))
        for pid in pids(pool):
            os.kill(pid, signal.SIGKILL)
        return await search.found

    assert is_enough(CHALLENGE, solution_of(run(scenario)), 18)


@pytest.mark.parametrize("command", [("/nonexistent/program",), (sys.executable, "-c", "pass")], ids=["absent", "ends"])
def test_processes_that_cannot_be_kept_fail_the_search(command):
    """A machine that lets no process live gives an error, not a hang."""

    async def scenario():
        pool = WorkPool(1, command=command)
        with pytest.raises(HostError, match="process"):
            async with asyncio.timeout(10):
                await pool.search(CHALLENGE, 8).found
        pool.close()

    asyncio.run(scenario())


def test_idle_processes_end_and_come_again(monkeypatch):
    """A pool without work keeps nothing running, and works again afterwards."""
    monkeypatch.setattr(solver, "IDLE_S", 0.0)

    async def scenario(pool):
        await pool.search(CHALLENGE, 8).found
        there = pids(pool)
        while pool.workers_count:
            await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.02)
        return there, await pool.search(CHALLENGE, 8, start=7).found

    there, found = run(scenario)

    assert there and not any(alive(pid) for pid in there)
    assert is_enough(CHALLENGE, solution_of(found), 8)


def test_close_cancels_and_leaves_no_process():
    """After close nothing runs, and who waits is told."""

    async def scenario(pool):
        search = await first_progress(lambda told: pool.search(CHALLENGE, ENDLESS_BITS, on_progress=told))
        there = pids(pool)
        pool.close()
        pool.close()
        with pytest.raises(asyncio.CancelledError):
            await search.found
        return there

    there = run(scenario)

    assert len(there) == 2
    assert not any(alive(pid) for pid in there)


def test_processes_die_with_a_killed_parent():
    """SIGKILL of the program leaves nothing behind, although nobody could tidy up."""
    program = f"""
import asyncio
from waystation.sdk.lprp.solver import WorkPool

async def main():
    pool = WorkPool(2)
    tried = asyncio.Event()
    search = pool.search({CHALLENGE!r}, 80, on_progress=lambda each: each.hashes and tried.set())
    await tried.wait()
    print(*[worker._process.pid for worker in pool._workers], flush=True)
    await search.found

asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    orphans = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.communicate()
    ends_at = time.monotonic() + 3
    while any(alive(pid) for pid in orphans) and time.monotonic() < ends_at:
        os.sched_yield()

    assert len(orphans) == 2
    assert not any(alive(pid) for pid in orphans)
