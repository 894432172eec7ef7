"""Laws of server.commit: groups, order, and nothing acknowledged that is not on disk."""

import asyncio
import contextlib
import multiprocessing
import random
import socket
import sqlite3

import pytest
from structlog.testing import capture_logs

from tests.server.build import eventually, serve_echo
from tests.server.failures.build_commit import GatedStore, Told, record
from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.records import Record
from waystation.server import commit
from waystation.store.memory import MemoryStore
from waystation.store.sqlite import SqliteStore

KILLS = 20


class FaultyStore(MemoryStore):
    """A store that raises what the test says, and remembers what it was asked."""

    def __init__(self):
        super().__init__()
        self.faults = []
        """One for each of the next commits, None for none; without any all are taken."""
        self.groups = []

    def commit(self, records):
        """Raise the next fault, or keep the records."""
        self.groups.append([record.key for record in records])
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        super().commit(records)


FULL = StoreFault("the disk is full", StoreFaultKind.FULL)


def test_records_gather_while_the_disk_is_busy():
    """The first record goes alone; all that came meanwhile go together, in their order, on one other thread."""

    async def story():
        store = GatedStore()
        told = Told(store)
        told.ask(1)
        told.commits.flush()
        await asyncio.sleep(0)
        for number in range(2, 102):
            told.ask(number)
        told.commits.flush()
        before = list(told.answers)
        store.gate.set()
        await told.commits.settled()
        await told.commits.close()
        return before, told.answers, store.groups, len(store.threads)

    before, answers, groups, threads_count = asyncio.run(story())

    assert before == []
    assert answers == [(number, True) for number in range(1, 102)]
    assert groups == [[b"1"], [b"%d" % number for number in range(2, 102)]]
    assert threads_count == 1


def test_answer_comes_after_the_store_has_it(tmp_path):
    """When an answer comes, its record can be read back from the file."""

    def readable(path):
        with sqlite3.connect(path) as other:
            return other.execute("SELECT count(*) FROM records").fetchone()[0]

    async def story(path):
        store = SqliteStore(path)
        seen = []
        told = Told(store)
        told.note = lambda numbers, kept: seen.append((numbers[-1] + 1, readable(path)))
        for number in range(50):
            told.ask(number)
            told.commits.flush()
            await asyncio.sleep(0)
        await told.commits.close()
        store.close()
        return seen

    seen = asyncio.run(story(tmp_path / "store.sqlite"))

    assert seen[-1] == (50, 50)
    assert all(kept >= asked for asked, kept in seen)


def test_full_file_refuses_and_takes_again(tmp_path):
    """A file that may not grow refuses a group whole; all is refused until a probe was written, then taken again."""

    async def story():
        store = SqliteStore(tmp_path / "store.sqlite")
        (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        told = Told(store)
        told.ask(1)
        await told.commits.settled()
        large = Record("echo", b"large", bytes(1_000_000))
        told.commits.ask("echo", [record(7), large], lambda kept: told.note((7,), kept))
        await told.commits.settled()
        kind = told.commits.health.fault.kind
        told.ask(2)
        await told.commits.settled()
        await told.commits.probe()
        told.ask(3)
        await told.commits.settled()
        rows = [key for key, _ in store.scan("echo")]
        await told.commits.close()
        store.close()
        return told.answers, kind, rows

    answers, kind, rows = asyncio.run(story())

    assert kind is StoreFaultKind.FULL
    assert answers == [(1, True), (7, False), (2, False), (3, True)]
    assert rows == [b"1", b"3"]


def test_locked_file_refuses_after_the_wait(tmp_path):
    """A file that another program holds is busy after the wait, and taken again when it is let go."""

    async def story():
        store = SqliteStore(tmp_path / "store.sqlite")
        store._writer.execute("PRAGMA busy_timeout = 10")
        thief = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
        thief.execute("BEGIN IMMEDIATE")
        told = Told(store)
        told.ask(1)
        await told.commits.settled()
        fault = told.commits.health.fault
        await told.commits.probe()
        still = told.commits.health.fault.kind
        thief.close()
        await told.commits.probe()
        told.ask(2)
        await told.commits.close()
        store.close()
        return told.answers, fault, still, told.commits.health.fault

    answers, fault, still, after = asyncio.run(story())

    assert answers == [(1, False), (2, True)]
    assert fault.kind is still is StoreFaultKind.BUSY and "database is locked" in str(fault)
    assert after is None


def test_what_was_asked_behind_a_refused_one_is_refused():
    """All that waits when a group fails is refused with it: nothing later is on disk than what is missing."""

    async def story():
        store = GatedStore()
        told = Told(store)
        commit, store.commit = store.commit, lambda records: (store.gate.wait(), _raise(FULL))
        told.ask(1)
        told.commits.flush()
        await asyncio.sleep(0)
        told.ask(2)
        told.ask(3, owner="other")
        store.gate.set()
        await told.commits.settled()
        store.commit = commit
        told.ask(4)
        told.ask()
        await told.commits.probe()
        told.ask(5)
        told.ask(6, owner="other")
        await told.commits.settled()
        await told.commits.close()
        return told.answers, [key for key, _ in store.scan("echo")]

    answers, rows = asyncio.run(story())

    assert answers[:3] == [(1, False), (2, False), (3, False)]
    assert answers[3:] == [(4, False), (0, False), (5, False), (6, True)]
    assert rows == [b"6"]


def _raise(error):
    raise error


def test_what_a_store_can_never_take_refuses_nobody_else():
    """A change that the store fails on whatever its disk does costs its own question; the store is in no fault."""

    async def story():
        store = FaultyStore()
        told = Told(store)
        bug = ZeroDivisionError("a bug of ours")
        store.faults = [bug, None, bug, None]
        with capture_logs() as lines:
            for number, owner in ((1, "one"), (2, "two"), (3, "two"), (4, "three")):
                told.ask(number, owner=owner)
            await told.commits.settled()
        await told.commits.close()
        return told.answers, store.groups, told.commits.health.fault, lines

    answers, groups, fault, lines = asyncio.run(story())

    assert answers == [(1, True), (2, False), (3, False), (4, True)]
    assert groups == [[b"1", b"2", b"3", b"4"], [b"1"], [b"2"], [b"4"]]
    assert fault is None
    assert [line["event"] for line in lines] == ["commit.failed"]


def test_closed_store_answers_nobody_with_yes(tmp_path):
    """Whatever a store raises, nothing waits for ever behind a group that failed."""

    async def story():
        store = SqliteStore(tmp_path / "store.sqlite")
        told = Told(store)
        store.close()
        told.ask(1)
        async with asyncio.timeout(20):
            await told.commits.close()
        return told.answers

    assert asyncio.run(story()) == [(1, False)]


def test_answer_that_fails_costs_itself_alone():
    """When what an answer releases cannot be carried out it is logged, and those behind it are answered."""

    async def story():
        told = Told(MemoryStore())
        with capture_logs() as lines:
            told.commits.ask("echo", (record(1),), lambda _kept: 1 / 0)
            told.ask(2)
            await told.commits.settled()
        await told.commits.close()
        return told.answers, [line["event"] for line in lines]

    assert asyncio.run(story()) == ([(2, True)], ["commit.failed"])


def test_records_that_wait_are_bounded(monkeypatch):
    """When the disk has stopped, what is over the limit is refused, behind what waits; later all is taken again."""
    monkeypatch.setattr(commit, "CHANGES_WAITING_MAX", 3)

    async def story():
        store = GatedStore()
        told = Told(store)
        for number in range(5):
            told.ask(number)
        store.gate.set()
        await told.commits.settled()
        told.ask(9)
        await told.commits.close()
        return told.answers

    assert asyncio.run(story()) == [(0, True), (1, True), (2, True), (3, False), (4, False), (9, True)]


def test_what_is_asked_together_is_one_group():
    """All changes of one question reach the store in one call, and one without changes is answered in its place."""

    async def story():
        store = GatedStore()
        told = Told(store)
        for numbers in ((1, 2, 3), (), (4,)):
            told.ask(*numbers)
        store.gate.set()
        await told.commits.settled()
        told.ask()
        await told.commits.close()
        return store.groups, told.answers

    groups, answers = asyncio.run(story())

    assert groups == [[b"1", b"2", b"3", b"4"]]
    assert answers == [(3, True), (0, True), (4, True), (0, True)]


def test_what_is_owed_is_written_when_the_store_takes_it():
    """A record that nobody waits for is kept through a fault, the last of a key alone, and written with the probe."""

    async def story():
        store = FaultyStore()
        store.faults = [FULL]
        told = Told(store)
        for value in (b"first", b"second", b"third"):
            told.commits.owe(Record("echo", b"owed", value))
            await told.commits.settled()
        refused = store.get("echo", b"owed")
        with pytest.raises(StoreFault):
            await told.commits.write(Record("echo", b"ban", b"v"))
        await told.commits.probe()
        await told.commits.close()
        return refused, store.get("echo", b"owed"), store.get("echo", b"ban"), told.commits.health.fault

    assert asyncio.run(story()) == (None, b"third", b"v", None)


def test_write_returns_once_it_is_on_disk():
    """Who waits for a record finds it in the store."""

    async def story():
        store = MemoryStore()
        told = Told(store)
        await told.commits.write(record(1))
        found = store.get("echo", b"1")
        await told.commits.close()
        return found

    assert asyncio.run(story()) == b"kept"


def test_store_is_tried_each_second_while_in_fault(monkeypatch):
    """``watch`` ends a fault by itself, and one that lasts is told once."""
    monkeypatch.setattr(commit, "PROBE_S", 0.001)

    async def story():
        store = FaultyStore()
        store.faults = [FULL] * 4
        told = Told(store)
        told.ask(1)
        with capture_logs() as lines:
            watching = asyncio.create_task(told.commits.watch())
            await told.commits.settled()
            await eventually(lambda: told.commits.health.fault is None, "the end of the fault")
            watching.cancel()
        await told.commits.close()
        return [(line["event"], line["kind"]) for line in lines]

    assert asyncio.run(story()) == [("store.failed", "full"), ("store.recovered", "full")]


def test_close_commits_what_waits():
    """Closing is not losing."""

    async def story():
        store = GatedStore()
        store.gate.set()
        told = Told(store)
        for number in range(3):
            told.ask(number)
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
        told.ask(1)
        told.commits.flush()
        await eventually(lambda: told.answers)
        await told.commits.close()
        return store.groups

    assert asyncio.run(story()) == [[b"1"]]
