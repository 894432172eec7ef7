"""Laws of clients whose database another process has locked: their loop goes on, and so do they afterwards."""

import asyncio
import contextlib
import random
import subprocess
import sys

import pytest

from tests.sdk.build import LoopbackRelay, RunningDevice, echo, sender
from tests.sdk.lprp import build as lprp
from tests.sdk.merk.build import ALICE
from tests.sdk.strata.build import RelayServer as StrataServer
from waystation.protocols.strata.client.identity import Identity
from waystation.sdk import private_database
from waystation.sdk.lprp import LprpSender, LprpTenant
from waystation.sdk.private_database import LockedError, PrivateDatabase
from waystation.sdk.relay_scores import RelayScores
from waystation.sdk.store_news import StoreFailed, StoreRecovered
from waystation.sdk.strata.many import ManyRelays

HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
database.execute("ROLLBACK")
"""
TICKS = 50
"""The other process lets go when our loop has ticked so often: never, where the loop waits for it."""


@contextlib.contextmanager
def locked(path):
    """Have another process hold the lock of a database; end it by calling what is given."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"

        def release():
            if not process.stdin.closed:
                process.stdin.close()

        try:
            yield release
        finally:
            release()


@contextlib.asynccontextmanager
async def ticking(release):
    """Release a lock once the running loop has ticked ``TICKS`` times."""

    async def tick():
        for _ in range(TICKS):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.002)
        release()

    ticks = asyncio.ensure_future(tick())
    try:
        yield
    finally:
        ticks.cancel()
        await asyncio.gather(ticks, return_exceptions=True)


def test_transaction_on_a_loop_does_not_wait_for_a_lock(tmp_path):
    """It raises within milliseconds; ``unlocked`` waits while the loop goes on, and the next transaction gets it."""
    database = PrivateDatabase(tmp_path / "x.db", "CREATE TABLE t (v)")

    def insert():
        with database.transaction():
            database.run("INSERT INTO t VALUES (1)")

    async def main():
        with locked(database.path) as release:
            with pytest.raises(LockedError, match="locked"):
                insert()
            async with ticking(release):
                await database.unlocked()
                insert()

    asyncio.run(main())
    rows = database.all("SELECT v FROM t")
    database.close()

    assert rows == [(1,)]


def test_change_that_found_the_lock_is_written_by_itself(tmp_path):
    """Nobody has to begin another transaction."""
    database = PrivateDatabase(tmp_path / "x.db", "CREATE TABLE t (v)")

    async def main():
        with locked(database.path) as release:
            with pytest.raises(LockedError, match="kept in memory"):
                database.change_later(lambda: database.run("INSERT INTO t VALUES (1)"))
            release()
            await lprp.until(lambda: database.all("SELECT v FROM t"))

    asyncio.run(main())
    database.close()


def test_lock_that_lasts_is_an_error(tmp_path, monkeypatch):
    """``unlocked`` returns when its time is over, and the transaction says why."""
    monkeypatch.setattr(private_database, "_BUSY_TIMEOUT_S", 0.05)
    database = PrivateDatabase(tmp_path / "x.db", "CREATE TABLE t (v)")

    async def main():
        with locked(database.path):
            await database.unlocked()
            with pytest.raises(LockedError), database.transaction():
                pass

    asyncio.run(main())
    database.close()


def test_bhumi_sends_when_the_lock_is_gone_and_its_loop_goes_on(tmp_path):
    """A request waits for the lock; nothing else of the program does."""

    async def main():
        async with (
            LoopbackRelay() as relay,
            RunningDevice(tmp_path / "alice", relay.url, echo) as alice,
            sender(tmp_path / "bob", relay.url) as (bob, state),
        ):
            token = alice.token()
            await alice.listening()
            await bob.accept(token, alias="alice")
            with locked(state.path) as release:
                async with ticking(release):
                    return (await bob.send("alice", "hi")).text

    assert asyncio.run(main()) == "hi"


def test_lprp_tenant_takes_what_came_during_a_lock(tmp_path):
    """Mail waits for the lock, the loop does not, and a lock that is soon gone is not reported as a broken disk."""
    events = lprp.Events()

    async def scenario():
        async with (
            lprp.HostServer() as server,
            LprpTenant(tmp_path / "alice", server.host, settings=lprp.QUICK, on_event=events) as alice,
            LprpSender(tmp_path / "bob", server.host, settings=lprp.QUICK) as bob,
        ):
            await alice.allow(bob.public_key)
            with locked(alice.state.path) as release:
                async with ticking(release):
                    await bob.send(alice.public_key, "hi")
                    return [each.text for each in await lprp.take(alice)]

    assert lprp.run(scenario) == ["hi"]
    assert events.of_type(StoreFailed, StoreRecovered) == []


def test_strata_reads_on_when_the_lock_is_gone(tmp_path):
    """The place of a reader is written behind the lock, which is not reported as a broken disk."""
    events = []

    async def main():
        me, scores = Identity.of(ALICE.signing), RelayScores(tmp_path / "scores.db")
        async with (
            StrataServer() as relay,
            ManyRelays(scores, [relay.url], identity=me, rng=random.Random(1), on_store=events.append) as many,
        ):
            for text in ("one", "two"):
                await many.send({"type": "POST", "text": text})
            with locked(scores.path) as release:
                async with ticking(release):
                    found = [each async for each in many.messages(follow=False, resume="bot")]
            again = [each async for each in many.messages(follow=False, resume="bot")]
        scores.close()
        return len(found), len(again)

    assert asyncio.run(main()) == (2, 0)
    assert events == []
