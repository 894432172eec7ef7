"""Laws of the connection between a client machine and its host."""

import asyncio
import random

import pytest

from tests.sdk.lprp.build import NOBODY, QUICK, Events, HostServer, run
from tests.server.build import eventually
from waystation.core.errors import HostError
from waystation.sdk.connection import now
from waystation.sdk.lprp import LeaseGranted, LprpState, WorkEnded, Working, WorkPool
from waystation.sdk.lprp.connection import DurableClock, HostConnection


@pytest.fixture
def state(tmp_path):
    """An open folder."""
    state = LprpState(tmp_path)
    yield state
    state.close()


def connection(state, host, events, pool, **options):
    """Return a connection that does not wait long."""
    options = {"on_refused": lambda error: pytest.fail(str(error)), **options}
    return HostConnection(state, host, QUICK, events, pool=pool, rng=random.Random(1), **options)


def test_clock_writes_before_it_is_used_and_rarely(state):
    """Every time handed out is below the mark on the disk, which moves in steps."""
    clock = DurableClock(state, lambda error: pytest.fail(str(error)))
    start_ms = state.now_ms()
    marks = set()
    for step in range(1_000):
        time_ms = clock.next(start_ms + step)
        marks.add(state.clock_ms())
        assert time_ms <= state.clock_ms()

    assert len(marks) <= 5


def test_clocks_of_one_folder_share_no_time(state, tmp_path):
    """Two programs that send at the same moments never write the same time, and each one's times rise."""
    other = LprpState(tmp_path)
    clocks = [DurableClock(each, lambda error: pytest.fail(str(error))) for each in (state, other)]
    start_ms = state.now_ms()
    mine, others = ([clock.next(start_ms + step) for step in range(600)] for clock in clocks)
    for step in range(600, 900):
        mine.append(clocks[0].next(start_ms + step))
        others.append(clocks[1].next(start_ms + step))
    other.close()

    assert not set(mine) & set(others)
    assert mine == sorted(set(mine)) and others == sorted(set(others))


def test_clock_set_back_is_on_disk_too(state):
    """A clock that was a day ahead and is right again counts from now on, also after a restart."""
    clock = DurableClock(state, lambda error: pytest.fail(str(error)))
    day_ms = 86_400_000
    clock.next(state.now_ms() + day_ms)
    back_ms = clock.next(state.now_ms())

    assert back_ms <= state.clock_ms() < back_ms + day_ms


def test_clock_tells_a_disk_that_says_no_and_goes_on(state):
    """Nothing raises into the machine."""
    told = []
    clock = DurableClock(state, told.append)
    with state.transaction():
        state.run("DROP TABLE facts")

    assert clock.next(5_000_000_000_000) == 5_000_000_000_000
    assert isinstance(told[0], HostError)


def test_work_is_searched_for_and_told(state):
    """What the host demands is found in the pool, with progress and an end, and remembered."""
    events = Events()

    async def scenario():
        pool = WorkPool(1)
        async with HostServer() as server:
            way = connection(state, server.host, events, pool)
            await way.reach()
            way.machine.ask_lease(now())
            way.flush()
            await events.until(LeaseGranted)
            await way.aclose()
        pool.close()
        return state.bits(server.host.key)

    bits = run(scenario)
    (ended,) = events.of_type(WorkEnded)

    assert ended.failure == "" and ended.progress.hashes > 0
    assert {event.reference for event in events.of_type(Working)} <= {ended.reference}
    assert list(bits.values()) == [4]


def test_pool_that_cannot_work_fails_the_request_with_its_reason(state):
    """A machine on which no process can be started says so, and the request ends."""
    events = Events()

    async def scenario():
        pool = WorkPool(1, command=("/nonexistent/program",))
        async with HostServer() as server:
            way = connection(state, server.host, events, pool)
            await way.reach()
            way.machine.ask_lease(now())
            way.flush()
            (ended,) = await events.until(WorkEnded)
            await way.aclose()
            return ended.failure

    assert "no process" in run(scenario)


def test_new_socket_takes_over_from_the_old_one(state):
    """After a redial the host hears us from another port, and the old socket is closed."""
    events = Events()

    async def scenario():
        pool = WorkPool(1)
        async with HostServer() as server:
            way = connection(state, server.host, events, pool)
            await way.reach()
            way.machine.ask_lease(now())
            way.flush()
            await events.until(LeaseGranted)
            first, address = way.pipe, server.tenant(state.identity)["address"]
            await way.reach()
            while server.tenant(state.identity)["address"] == address:
                await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])
            await way.aclose()
            pool.close()
            return first.is_established and first is not way.pipe

    assert run(scenario)


def test_reconnect_makes_a_new_socket_now(state):
    """NODE-BACK: the host learns of it from a heartbeat that is not waited for."""
    events = Events()

    async def scenario():
        pool = WorkPool(1)
        async with HostServer() as server:
            way = connection(state, server.host, events, pool)
            await way.reach()
            way.machine.ask_lease(now())
            way.flush()
            await events.until(LeaseGranted)
            first, address = way.pipe, server.tenant(state.identity)["address"]
            way.reconnect()
            await eventually(lambda: server.tenant(state.identity)["address"] != address, "the heartbeat")
            await way.aclose()
            pool.close()
            return first is not way.pipe

    assert run(scenario)


def test_closed_connection_does_nothing_more(state):
    """Closing twice is fine, and a closed connection neither dials nor wakes."""

    async def scenario():
        way = connection(state, NOBODY, Events(), WorkPool(1))
        await way.reach()
        way.machine.hold_lease(now())
        way.flush()
        await way.aclose()
        await way.aclose()
        way.start()
        return way._dialling, way._pipes, way.closed, way.complaints

    assert run(scenario) == (None, {}, True, 0)
