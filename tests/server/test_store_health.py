"""Laws of server.store_health: what is refused while, since when, what the disk has left, and what is owed."""

import asyncio
import contextlib

import pytest
from structlog.testing import capture_logs

from waystation.core.errors import HostError, StoreFault, StoreFaultKind
from waystation.core.packets import DropPackets, HidePackets, PutPacket
from waystation.core.records import Record
from waystation.server import store_health
from waystation.server.commit import GroupCommit
from waystation.server.failures.log import FailureLog
from waystation.server.hub import monotonic_now
from waystation.server.store_health import StoreHealth
from waystation.store.memory import MemoryStore

MIB = 1_048_576
IO = StoreFault("the disk failed", StoreFaultKind.IO)
BAN, LIFTED = Record("bans", b"x", b"ban"), Record("bans", b"x", None)
FULL = StoreFault("the disk is full", StoreFaultKind.FULL)
PUT, REMOVAL = Record("t", b"k", b"v"), Record("t", b"k", None)


class Disk:
    """A disk and a clock that a test sets."""

    def __init__(self, free_mib=1_000, **settings):
        self.free_bytes = free_mib * MIB
        self.now_s = 1_000.0
        self.health = StoreHealth(self.look, clock=lambda: self.now_s, **settings)

    def look(self):
        if self.free_bytes is None:
            raise HostError("no answer")
        return self.free_bytes


def test_store_in_fault_refuses_every_change():
    """Also one that frees space: nobody knows what the disk still does."""
    disk = Disk()
    sound = disk.health.refuses([PUT])
    disk.health.begin(IO)

    assert not sound
    assert disk.health.refuses([PUT]) and disk.health.refuses([REMOVAL])


@pytest.mark.parametrize(
    ("change", "is_refused"),
    [
        (PUT, True),
        (PutPacket(None), True),
        (REMOVAL, False),
        (DropPackets((), 0), False),
        (HidePackets((), hidden=True), False),
    ],
)
def test_below_the_floor_only_what_is_new_is_refused(change, is_refused):
    """There is room for what frees some."""
    disk = Disk(free_mib=63, free_mib_least=64)
    fault = disk.health.look()
    disk.health.begin(fault)

    assert fault.kind is StoreFaultKind.FULL and "63 MiB" in str(fault)
    assert disk.health.refuses([REMOVAL, change]) == is_refused


def test_disk_with_room_or_without_an_answer_has_no_fault_to_see():
    """The floor is exact, 0 is none, and a file system that does not answer is left to the next write."""
    enough, none, silent = Disk(64, free_mib_least=64), Disk(0), Disk(free_mib_least=64)
    silent.free_bytes = None

    assert [disk.health.look() for disk in (enough, none, silent)] == [None] * 3
    assert StoreHealth().look() is None


def test_fault_is_one_line_at_its_begin_and_one_at_its_end():
    """A fault that lasts is told once, one of another kind anew; the time is that of the whole."""
    disk = Disk()
    with capture_logs() as lines:
        disk.health.end()
        for fault in (IO, IO, StoreFault("full", StoreFaultKind.FULL)):
            disk.health.begin(fault)
            disk.now_s += 5
        view = disk.health.view()
        disk.health.end()

    assert [(line["event"], line["kind"]) for line in lines] == [
        ("store.failed", "io"),
        ("store.failed", "full"),
        ("store.recovered", "full"),
    ]
    assert lines[-1]["seconds"] == 15.0
    assert view == {"kind": "full", "error": "full", "since": 1_000.0}
    assert disk.health.view() is None


def test_fault_that_comes_back_within_a_minute_is_told_once():
    """A disk that takes every other write does not fill the log; a fault of another kind, or later, is told anew."""
    disk = Disk()
    with capture_logs() as lines:
        for _ in range(25):
            disk.health.begin(IO)
            disk.now_s += 1
            disk.health.end()
            disk.now_s += 1
        disk.health.begin(StoreFault("full", StoreFaultKind.FULL))
        disk.health.end()
        disk.now_s += store_health.SAID_EVERY_S
        disk.health.begin(StoreFault("full", StoreFaultKind.FULL))

    assert [(line["event"], line["kind"]) for line in lines] == [
        ("store.failed", "io"),
        ("store.recovered", "io"),
        ("store.failed", "full"),
        ("store.recovered", "full"),
        ("store.failed", "full"),
    ]


def test_days_left_come_from_the_pace_of_the_last_day():
    """A disk that shrinks by a MiB a minute and has 1,440 left lasts a day; nothing is said of one that does not."""
    disk = Disk(free_mib=1_451)
    for _ in range(12):
        disk.health.note_space()
        early = disk.health.space()
        disk.now_s += store_health.SPACE_EVERY_S
        disk.free_bytes -= MIB
    shrinking = disk.health.space()
    disk.free_bytes += 100 * MIB
    disk.health.note_space()

    assert early["free_bytes"] == shrinking["free_bytes"] == 1_440 * MIB
    assert shrinking["days_left"] == 1.0
    assert disk.health.space()["days_left"] is None


def test_space_is_looked_at_once_a_minute():
    """Nothing is known before the first look, nor of a store without a disk; looks in between cost nothing."""
    disk = Disk()
    before = disk.health.space()
    for _ in range(3):
        disk.health.note_space()
        disk.free_bytes -= MIB
    StoreHealth().note_space()

    assert before == {"free_bytes": None, "days_left": None}
    assert disk.health.space() == {"free_bytes": 1_000 * MIB, "days_left": None}


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


@pytest.mark.parametrize(("kind", "is_fault"), [(StoreFaultKind.GONE, True), (StoreFaultKind.IO, False)])
def test_home_that_is_gone_is_a_fault_before_the_next_write(kind, is_fault):
    """The look at the mark finds it on an idle node; a log that cannot be folded in alone refuses no write."""

    class Unfolding(MemoryStore):
        def fold(self):
            raise StoreFault("no", kind)

    async def story():
        commits, _ = commits_over(Unfolding())
        with pytest.raises(StoreFault):
            await commits.fold()
        await commits.close()
        return commits.health.fault is not None

    assert asyncio.run(story()) == is_fault


class Torn(MemoryStore):
    """A store with one page that is damaged: whoever writes to it is refused."""

    def commit(self, records):
        """Refuse a group that has a record of that page."""
        if any(record.key == b"torn" for record in records):
            raise StoreFault("the database disk image is malformed", StoreFaultKind.DAMAGED)
        super().commit(records)


def test_damaged_page_refuses_only_who_writes_to_it():
    """A machine asks again for what was refused each second: that must not refuse everybody else each second."""

    async def story():
        answers = []
        commits, _ = commits_over(Torn())
        commits.ask("one", [Record("t", b"torn", b"v")], lambda kept: answers.append(("one", kept)))
        commits.ask("two", [PUT], lambda kept: answers.append(("two", kept)))
        await commits.settled()
        await commits.close()
        return answers, commits.health.fault

    assert asyncio.run(story()) == ([("one", False), ("two", True)], None)


def test_owed_record_of_a_damaged_page_lets_the_fault_end():
    """Also a fault that was another one ends; what else is owed is written."""

    async def story():
        store = Torn()
        commits, _ = commits_over(store)
        commits.health.begin(IO)
        commits.owe(Record("t", b"torn", b"v"))
        commits.owe(BAN)
        await commits.probe()
        await commits.settled()
        fault = commits.health.fault
        await commits.close()
        return fault, store.get("bans", b"x")

    assert asyncio.run(story()) == (None, b"ban")


def test_store_that_is_damaged_everywhere_is_in_fault():
    """Where not even an empty group is written, it is the store."""

    async def story():
        damaged = StoreFault("file is not a database", StoreFaultKind.DAMAGED)
        commits, _ = commits_over(Faulty(*[damaged] * 9))
        commits.ask("two", [PUT], lambda kept: None)
        await commits.settled()
        fault = commits.health.fault
        await commits.close()
        return fault is damaged

    assert asyncio.run(story())
