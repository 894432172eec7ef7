"""Laws of what server.commit owes: the disk ends with what was said last, whatever it refused before (NODE-REFUSED)."""

import asyncio
import contextlib

import pytest

from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.records import Record
from waystation.server.commit import GroupCommit
from waystation.server.failures.log import FailureLog
from waystation.server.hub import monotonic_now
from waystation.server.store_health import StoreHealth
from waystation.store.memory import MemoryStore

MIB = 1_048_576
BAN, LIFTED = Record("bans", b"x", b"ban"), Record("bans", b"x", None)
FULL = StoreFault("the disk is full", StoreFaultKind.FULL)


class Faulty(MemoryStore):
    """A store whose next commits raise what the test says, None for none."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = list(faults)

    def commit(self, records):
        """Raise the next fault, or keep the records."""
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        super().commit(records)


def commits_over(store, free_mib=1_000):
    """Return a GroupCommit, and a function that sets the free space of its disk, whose floor is 64 MiB."""
    disk = [free_mib * MIB]
    health = StoreHealth(lambda: disk[0], 64)

    def set_free(mib):
        disk[0] = mib * MIB

    return GroupCommit(store, FailureLog(monotonic_now), health), set_free


def test_ban_that_is_lifted_below_the_floor_does_not_come_back():
    """The ban is owed and its lifting has room: when the floor is left, the older record is not written over it."""

    async def story():
        store = MemoryStore()
        commits, set_free = commits_over(store, free_mib=10)
        await commits.probe()
        with pytest.raises(StoreFault):
            await commits.write(BAN)
        await commits.write(LIFTED)
        set_free(1_000)
        await commits.probe()
        await commits.close()
        return commits.health.fault, store.get("bans", b"x")

    assert asyncio.run(story()) == (None, None)


def test_what_is_owed_below_the_floor_is_written_at_the_end():
    """The floor keeps room for a node that ends: a ban in force is on disk then."""

    async def story():
        store = MemoryStore()
        commits, _ = commits_over(store, free_mib=10)
        await commits.probe()
        commits.owe(BAN)
        await commits.close()
        return store.get("bans", b"x")

    assert asyncio.run(story()) == b"ban"


def test_refused_record_is_owed_when_nobody_waits_any_more():
    """Who asked for a ban may be gone before the store has refused it; the ban is in force all the same."""

    async def story():
        store = Faulty(FULL)
        commits, _ = commits_over(store)
        asking = asyncio.create_task(commits.write(BAN))
        await asyncio.sleep(0)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        await commits.settled()
        await commits.probe()
        await commits.close()
        return store.get("bans", b"x")

    assert asyncio.run(story()) == b"ban"


def test_owed_record_outlives_a_disk_that_fails_while_each_is_tried():
    """Only a record that the store can never take is dropped, not one that met a full disk meanwhile."""

    async def story():
        store = Faulty(ZeroDivisionError("a bug of ours"), FULL)
        commits, _ = commits_over(store)
        commits.owe(BAN)
        await commits.settled()
        await commits.probe()
        await commits.close()
        return store.get("bans", b"x")

    assert asyncio.run(story()) == b"ban"
