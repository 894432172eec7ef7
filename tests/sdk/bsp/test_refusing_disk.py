"""Laws of a device whose own disk refuses writes for a while (BSP-REFUSED): another program holds its lock."""

import asyncio
import contextlib
import sqlite3

import pytest

from tests.sdk.bsp.build import acquaint, bodies, devices, hurry, next_event, peer_in, until
from waystation.core.errors import HostError
from waystation.sdk.bsp import PeerUp, StoreFailed, StoreRecovered
from waystation.sdk.bsp.home import STORE_FILE
from waystation.store import sqlite_file


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Nobody waits seconds for what takes milliseconds."""
    hurry(monkeypatch)
    monkeypatch.setattr(sqlite_file, "_BUSY_MS", 10)


@contextlib.contextmanager
def refusing(folder):
    """Let a device's store refuse every write meanwhile."""
    with contextlib.closing(sqlite3.connect(folder / STORE_FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_device_whose_disk_refuses_acknowledges_nothing_and_goes_on(tmp_path):
    """A peer's message waits for the disk; a call says that nothing was kept; both work again when the disk does."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            news = bob.news()
            bob.connect(alice.key, await alice.listen())
            await next_event(news, lambda event: isinstance(event, PeerUp))
            with refusing(tmp_path / "2"):
                sent = await alice.send(group, b"from alice")
                failed = await next_event(news, lambda event: isinstance(event, StoreFailed))
                with pytest.raises(HostError, match=r"nothing was kept: .*bsp\.db.*locked"):
                    await bob.send(group, b"never")
                with pytest.raises(HostError, match="nothing was kept"):
                    await bob.create_group("never")
                held = alice.why(group, sent.message.message_id).peers[0].status.holds
                state = failed.reason, held, bob.failure
            await next_event(news, lambda event: isinstance(event, StoreRecovered))
            await sent.settled()
            await (await bob.send(group, b"from bob")).settled()
            return *state, bob.failure, bodies(bob, group), bodies(alice, group)

    reason, held, failure, after, of_bob, of_alice = asyncio.run(main())

    assert "locked" in reason
    assert not held
    assert isinstance(failure, HostError)
    assert after is None
    assert of_bob == of_alice == [b"from alice", b"from bob"]


def test_message_that_finds_the_disk_refusing_is_kept_once_it_takes_writes(tmp_path):
    """Its sentence says so; it is there once, and the next start has it too."""

    async def main():
        async with peer_in(tmp_path) as alice:
            group = await alice.create_group("talk")
            with refusing(tmp_path), pytest.raises(HostError, match="not on disk yet; it is kept"):
                await alice.send(group, b"late")
            await until(lambda: alice.failure is None)
        async with peer_in(tmp_path) as again:
            return bodies(again, group)

    assert asyncio.run(main()) == [b"late"]


def test_device_that_is_closed_while_its_disk_refuses_ends_at_once(tmp_path):
    """Nothing that was told to be kept is lost with it, and it waits for nobody."""

    async def main():
        async with peer_in(tmp_path) as alice:
            group = await alice.create_group("talk")
            await alice.send(group, b"kept")
            with refusing(tmp_path):
                with pytest.raises(HostError, match="not on disk yet"):
                    await alice.send(group, b"not kept")
                await alice.aclose()
        async with peer_in(tmp_path) as again:
            return bodies(again, group)

    assert asyncio.run(main()) == [b"kept"]
