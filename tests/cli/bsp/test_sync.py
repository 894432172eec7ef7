"""Laws of when an exchange is over."""

import asyncio

import pytest

from tests.sdk.bsp.build import WITHIN_S, acquaint, bodies, devices, until
from waystation.cli.bsp import sync
from waystation.cli.bsp.sync import Syncing
from waystation.core.errors import HostError


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Two devices of one process need no second of timeouts."""
    monkeypatch.setattr(sync, "QUIET_S", 0.1)


def test_exchange_is_over_when_both_hold_everything(tmp_path):
    """``until_quiet`` returns once the peers are settled, and has counted what came and what was confirmed."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            for number in range(5):
                await alice.send(group, b"a%d" % number)
                await bob.send(group, b"b%d" % number)
            url, events = await alice.listen(), []
            async with Syncing(bob, {alice.key}, on_event=events.append) as syncing:
                bob.connect(alice.key, url)
                async with asyncio.timeout(WITHIN_S):
                    await syncing.until_quiet()
            counts = syncing.received_count, syncing.confirmed_count, syncing.delivered_count
            return (
                counts,
                syncing.came == {alice.key},
                set(bodies(alice, group)) == set(bodies(bob, group)),
                bool(events),
            )

    assert asyncio.run(main()) == ((5, 5, 5), True, True, True)


def test_exchange_is_over_when_everybody_wanted_has_failed(tmp_path):
    """A peer that cannot be reached does not keep anybody waiting."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            await bob.meet(alice.key)
            async with Syncing(bob, {alice.key}, on_event=lambda _: None) as syncing:
                bob.connect(alice.key, "bsp+tls://127.0.0.1:1")
                async with asyncio.timeout(WITHIN_S):
                    await syncing.until_quiet()
            return syncing.came, "nobody listens" in syncing.failed[alice.key]

    assert asyncio.run(main()) == (set(), True)


def test_who_listens_waits_for_somebody(tmp_path):
    """Without anybody wanted the exchange begins with the first who comes."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            await acquaint(alice, bob, await alice.create_group())
            async with Syncing(alice, set(), on_event=lambda _: None) as syncing:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await syncing.until_quiet()
                bob.connect(alice.key, await alice.listen())
                async with asyncio.timeout(WITHIN_S):
                    await syncing.until_quiet()
            return syncing.came == {bob.key}

    assert asyncio.run(main())


def test_disk_that_refuses_ends_the_exchange(tmp_path, monkeypatch):
    """What the disk says is raised instead of waiting for ever; who listens for ever goes on, and has all later."""

    async def main():
        async with devices(tmp_path, 1) as (alice,):
            group = await alice.create_group("talk")

            def commit(changes):
                raise HostError("the disk is full")

            async with Syncing(alice, set(), on_event=lambda _: None) as syncing:
                monkeypatch.setattr(alice.home.store, "commit", commit)
                with pytest.raises(HostError, match="disk is full"):
                    await alice.send(group, b"x")
                with pytest.raises(HostError, match="disk is full"):
                    await syncing.until_quiet()
                forever = asyncio.ensure_future(syncing.forever())
                monkeypatch.undo()
                await until(lambda: alice.failure is None)
                assert not forever.done()
            assert len(alice.history(group)) == 1
            forever.cancel()

    asyncio.run(main())
