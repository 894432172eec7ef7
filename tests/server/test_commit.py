"""Laws of server.commit: groups, order, and nothing acknowledged that is not on disk."""

import asyncio
import contextlib
import multiprocessing
import random
import socket
import sqlite3
import threading

import pytest

from tests.server.build import eventually, serve_echo
from waystation.core.errors import HostError, LocalError
from waystation.core.records import Record
from waystation.server import commit
from waystation.server.commit import GroupCommit
from waystation.store.memory import MemoryStore
from waystation.store.sqlite import SqliteStore

KILLS = 20


class GatedStore(MemoryStore):
    """A store whose disk is as slow as the test says, and which remembers its groups."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.groups = []
        self.threads = set()

    def commit(self, records):
        """Commit once the gate is open."""
        self.gate.wait()
        self.threads.add(threading.current_thread().name)
        self.groups.append([record.key for record in records])
        super().commit(records)


def record(number):
    """Return the record of a number."""
    return Record("echo", b"%d" % number, b"kept")


class Told:
    """What a GroupCommit told its owner."""

    def __init__(self, store):
        self.marks = []
        """``committed`` at each report."""
        self.failures = []
        self.commits = GroupCommit(store, lambda: self.marks.append(self.commits.committed), self.failures.append)


def test_records_gather_while_the_disk_is_busy():
    """The first record goes alone; all that came meanwhile go together, in their order, on one other thread."""

    async def story():
        store = GatedStore()
        told = Told(store)
        told.commits.append(record(1))
        told.commits.flush()
        await asyncio.sleep(0)
        numbers = [told.commits.append(record(number)) for number in range(2, 102)]
        told.commits.flush()
        before = told.commits.committed, list(told.marks)
        store.gate.set()
        await told.commits.wait_for(numbers[-1])
        await told.commits.close()
        return before, told.marks, store.groups, len(store.threads), numbers

    before, marks, groups, threads_count, numbers = asyncio.run(story())

    assert before == (0, [])
    assert marks == [1, 101]
    assert groups == [[b"1"], [b"%d" % number for number in range(2, 102)]]
    assert threads_count == 1
    assert numbers == list(range(2, 102))


def test_committed_is_told_after_the_store_has_it(tmp_path):
    """When a report comes, everything up to its number can be read back from the file."""

    def readable(path):
        with sqlite3.connect(path) as other:
            return other.execute("SELECT count(*) FROM records").fetchone()[0]

    async def story(path):
        store = SqliteStore(path)
        seen = []
        commits = GroupCommit(store, lambda: seen.append((commits.committed, readable(path))), seen.append)
        for number in range(50):
            commits.append(record(number))
            commits.flush()
            await asyncio.sleep(0)
        await commits.close()
        store.close()
        return seen

    seen = asyncio.run(story(tmp_path / "store.sqlite"))

    assert seen[-1] == (50, 50)
    assert all(kept >= committed for committed, kept in seen)


def test_full_disk_stops_everything(tmp_path):
    """A file that may not grow refuses a group: told once, nothing of it kept, later records never committed."""

    async def story():
        store = SqliteStore(tmp_path / "store.sqlite")
        (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        told = Told(store)
        kept = told.commits.append(record(1))
        await told.commits.wait_for(kept)
        lost = told.commits.append(Record("echo", b"large", bytes(1_000_000)))
        with pytest.raises(HostError, match="did not take a write") as caught:
            await told.commits.wait_for(lost)
        after = told.commits.append(record(2))
        told.commits.flush()
        with pytest.raises(HostError):
            await told.commits.wait_for(after)
        await told.commits.close()
        rows = [key for key, _ in store.scan("echo")]
        store.close()
        return told, caught.value.exit_code, rows

    told, exit_code, rows = asyncio.run(story())

    assert exit_code == 5
    assert len(told.failures) == 1
    assert told.marks == [1] and told.commits.committed == 1
    assert rows == [b"1"]


def test_locked_file_stops_everything(tmp_path):
    """A file that another program holds is refused after the wait, as a HostError that names it."""

    async def story():
        store = SqliteStore(tmp_path / "store.sqlite")
        store._writer.execute("PRAGMA busy_timeout = 10")
        thief = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
        thief.execute("BEGIN IMMEDIATE")
        told = Told(store)
        with pytest.raises(HostError, match=r"store\.sqlite did not take a write: database is locked"):
            await told.commits.wait_for(told.commits.append(record(1)))
        thief.close()
        await told.commits.close()
        store.close()
        return told.failures, told.marks

    failures, marks = asyncio.run(story())

    assert len(failures) == 1 and marks == []


def test_store_that_breaks_its_contract_stops_everything_too(tmp_path):
    """Whatever a store raises, nothing waits for ever behind a group that failed."""

    async def story():
        store = SqliteStore(tmp_path / "store.sqlite")
        told = Told(store)
        store.close()
        number = told.commits.append(record(1))
        with pytest.raises(HostError) as caught:
            async with asyncio.timeout(2):
                await told.commits.wait_for(number)
        await told.commits.close()
        return told, caught.value.exit_code

    told, exit_code = asyncio.run(story())

    assert exit_code == 5
    assert len(told.failures) == 1 and told.marks == []


def test_report_that_fails_stops_everything(tmp_path):
    """When what a commit released cannot be carried out the owner is told, and nobody waits behind it for ever."""

    def explode():
        raise ZeroDivisionError("a bug of ours")

    async def story():
        failures = []
        commits = GroupCommit(MemoryStore(), explode, failures.append)
        await commits.wait_for(commits.append(record(1)))
        async with asyncio.timeout(2):
            with pytest.raises(HostError, match="a bug of ours"):
                await commits.wait_for(commits.append(record(2)))
        await commits.close()
        return failures, commits._running

    failures, running = asyncio.run(story())

    assert [type(failure) for failure in failures] == [HostError]
    assert running is None


@pytest.mark.parametrize("cancelled", [False, True])
def test_record_that_nobody_commits_is_not_waited_for(cancelled):
    """A number that was never given out, or whose group was cancelled, is refused instead of awaited for ever."""

    async def story():
        store = GatedStore()
        commits = GroupCommit(store, int, repr)
        number = commits.append(record(1)) if cancelled else 7
        commits.flush()
        if cancelled:
            await asyncio.sleep(0)
            commits._running.cancel()
            await asyncio.wait({commits._running})
        store.gate.set()
        await commits.wait_for(number)

    with pytest.raises(LocalError, match="neither waiting nor under way"):
        asyncio.run(story())


def test_records_that_wait_are_bounded(monkeypatch):
    """When the disk has stopped, the record over the limit is a failure, not a growing list."""
    monkeypatch.setattr(commit, "RECORDS_WAITING_MAX", 3)

    async def story():
        store = GatedStore()
        told = Told(store)
        for number in range(5):
            told.commits.append(record(number))
        store.gate.set()
        with pytest.raises(HostError, match="cannot keep up"):
            await told.commits.wait_for(1)
        await told.commits.close()
        return told.failures, store.groups

    failures, groups = asyncio.run(story())

    assert len(failures) == 1 and groups == []


def test_changes_taken_together_are_one_group():
    """``append_all`` gives the number of its last change, and all of its changes reach the store in one call."""

    async def story():
        store = GatedStore()
        told = Told(store)
        numbers = [told.commits.append_all([record(number) for number in group]) for group in ((1, 2, 3), (), (4,))]
        store.gate.set()
        await told.commits.wait_for(numbers[-1])
        empty = told.commits.append_all(())
        await told.commits.close()
        return numbers, empty, store.groups, told.marks

    assert asyncio.run(story()) == ([3, 3, 4], 4, [[b"1", b"2", b"3", b"4"]], [4])


def test_close_commits_what_waits():
    """Closing is not losing."""

    async def story():
        store = GatedStore()
        store.gate.set()
        told = Told(store)
        for number in range(3):
            told.commits.append(record(number))
        await told.commits.close()
        return store.groups

    assert asyncio.run(story()) == [[b"0", b"1", b"2"]]


def acknowledged_until_killed(path, rng, round_number, context):
    """Run an echo node on ``path``, kill it at a random moment, and return every line it has said back."""
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_echo, args=(path, theirs), daemon=True)
    process.start()
    assert ours.poll(10)
    lines = b"".join(b"%d-%d\n" % (round_number, number) for number in range(3_000))
    wanted = rng.randrange(1, 2_500)
    said = b""
    with socket.create_connection(("127.0.0.1", ours.recv()), timeout=10) as client:
        client.sendall(lines[: len(lines) // 2])
        while said.count(b"\n") < wanted // 2:
            said += client.recv(rng.randrange(1, 2_000))
        client.sendall(lines[len(lines) // 2 :])
        while said.count(b"\n") < wanted:
            said += client.recv(rng.randrange(1, 2_000))
        process.kill()
        process.join()
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65_536):
                said += data
    return said.split(b"\n")[:-1]


def test_killed_node_has_lost_nothing_it_acknowledged(tmp_path):
    """Over twenty ``kill -9`` at random moments every line that was said back is in the file."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.server.build"])
    rng = random.Random(2)
    path = tmp_path / "store.sqlite"
    acknowledged = []
    for round_number in range(KILLS):
        acknowledged += acknowledged_until_killed(path, rng, round_number, context)
    store = SqliteStore(path)
    lost = [line for line in acknowledged if store.get("echo", line) is None]
    store.close()

    assert len(acknowledged) >= KILLS
    assert not lost


def test_idle_node_commits_at_once():
    """One record on an idle node does not wait for others."""

    async def story():
        store = GatedStore()
        store.gate.set()
        told = Told(store)
        told.commits.append(record(1))
        told.commits.flush()
        await eventually(lambda: told.marks)
        await told.commits.close()
        return store.groups

    assert asyncio.run(story()) == [[b"1"]]
