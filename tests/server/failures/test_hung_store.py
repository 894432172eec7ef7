"""Laws of server.commit about a store that does not return (NODE-HUNG)."""

import asyncio

import pytest

from tests.server.build import eventually
from tests.server.failures.build_commit import GatedStore, Told
from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.records import Record
from waystation.store import writer_thread


def hanging(monkeypatch):
    """Let a store hang after 50 ms, and return it with what it told."""
    monkeypatch.setattr(writer_thread, "HUNG_S", 0.05)
    store = GatedStore()
    return store, Told(store)


def test_store_that_hangs_refuses_all_but_what_is_under_way(monkeypatch):
    """NODE-HUNG: what waits and what comes is refused at once; what is under way has its own answer in the end."""
    store, told = hanging(monkeypatch)

    async def story():
        told.ask(1)
        told.commits.flush()
        await asyncio.sleep(0)
        told.ask(2)
        told.ask()
        await eventually(lambda: told.commits.is_stuck)
        told.ask(3, owner="other")
        told.commits.flush()
        await eventually(lambda: len(told.answers) == 3)
        told.ask(owner="other")
        meanwhile, view = list(told.answers), told.commits.health.view()
        await told.commits.probe()
        still = told.commits.health.fault
        store.gate.set()
        await eventually(lambda: len(told.answers) == 5)
        await told.commits.probe()
        told.ask(4)
        await told.commits.close()
        return meanwhile, view["kind"], still, told.answers

    meanwhile, kind, still, answers = asyncio.run(story())

    assert meanwhile == [(2, False), (0, False), (3, False)]
    assert (kind, still.kind) == ("hung", StoreFaultKind.HUNG)
    assert answers == [*meanwhile, (1, True), (0, True), (4, True)]
    assert told.commits.health.fault is None


def test_who_waits_for_a_record_is_told_when_the_store_hangs(monkeypatch):
    """A ban does not wait for as long as the disk likes: it is owed, and what came after it is not undone by it."""
    store, told = hanging(monkeypatch)
    older, newer = Record("bans", b"1", b"older"), Record("bans", b"1", b"newer")

    async def story():
        refusals = []
        for each in (older, newer):
            try:
                await told.commits.write(each)
            except StoreFault as fault:
                refusals.append(fault.kind)
        store.gate.set()
        await eventually(lambda: not told.commits.is_stuck)
        await told.commits.probe()
        await told.commits.close()
        return refusals, store.get("bans", b"1")

    assert asyncio.run(story()) == ([StoreFaultKind.HUNG] * 2, b"newer")


def test_node_that_ends_leaves_a_store_that_hangs(monkeypatch):
    """``close`` and a fold return although the writer does not."""
    store, told = hanging(monkeypatch)

    async def story():
        told.ask(1)
        told.commits.flush()
        with pytest.raises(StoreFault, match="not returned"):
            await told.commits.fold()
        async with asyncio.timeout(20):
            await told.commits.close()
        before = list(told.answers)
        store.gate.set()
        return before

    assert asyncio.run(story()) == []
