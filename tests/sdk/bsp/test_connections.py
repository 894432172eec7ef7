"""Laws of the streams of one device: what is durable, what is closed, and who may come in."""

import asyncio
import random

import pytest

from tests.sdk.bsp.build import WITHIN_S, acquaint, bodies, delivered, devices, hurry, next_event, peer_in
from waystation.core.errors import HostError, LocalError
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.ledger import Ledger
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.sdk.bsp import PeerDown, PeerUp
from waystation.sdk.bsp import connections as bsp_connections
from waystation.sdk.bsp.connections import BspConnections
from waystation.store.sqlite import SqliteStore


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Nobody waits a second for what takes milliseconds."""
    hurry(monkeypatch)


def test_newer_connection_of_a_peer_takes_the_place_of_the_older(tmp_path):
    """A device that comes twice is spoken to over its newer connection, and nothing is lost or doubled."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            first, second = await alice.listen(), await alice.listen()
            news = bob.news()
            bob.connect(alice.key, first)
            await next_event(news, lambda event: isinstance(event, PeerUp))
            bob.connect(alice.key, second)
            for number in range(20):
                await alice.send(group, b"%d" % number)
            await delivered(news, 20)
            return bodies(bob, group), alice.status().urls == (first, second)

    heard, listens_at_both = asyncio.run(main())

    assert heard == [b"%d" % number for number in range(20)]
    assert listens_at_both


def test_connection_that_ends_is_dialled_again(tmp_path):
    """A peer that goes and comes back under the same address is found again, and gets what it missed."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            url = await alice.listen()
            news = bob.news()
            bob.connect(alice.key, url)
            await next_event(news, lambda event: isinstance(event, PeerUp))
            await alice.aclose()
            await next_event(news, lambda event: isinstance(event, PeerDown))
            await bob.send(group, b"missed")
            async with peer_in(tmp_path / "1") as again:
                theirs = again.news()
                await again.listen(port=int(url.rpartition(":")[2]))
                await delivered(theirs, 1)
                return bodies(again, group)

    assert asyncio.run(main()) == [b"missed"]


def test_durable_waits_for_a_commit_that_was_only_planned(tmp_path):
    """Between the turn that begins a commit and the first step of its task nothing is told to be on disk."""
    store, at, group = SqliteStore(tmp_path / "db"), Instant(0), SEED.group(bytes(32), b"", "opaque")
    device = BspDevice(SEED, store)
    machine = BspMachine(device, KeyPair.from_seed(bytes(32)), random.Random(1))
    device.join(group, at)

    async def main():
        connections = BspConnections(machine, device, store, on_event=print, on_turn=lambda: None)
        message_id = device.add(group.group_id, 1, b"hello", at)
        connections.changed()
        await asyncio.sleep(0)
        await connections.durable()
        on_disk = [vertex.message_id for vertex in Ledger(store).read_messages(group.group_id)]
        await connections.aclose()
        return on_disk == [message_id]

    assert asyncio.run(main())
    store.close()


def test_port_that_is_taken_is_told(tmp_path):
    """Two cannot listen on one port, and the sentence says so."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            url = await alice.listen()
            with pytest.raises(HostError, match="the port is taken"):
                await bob.listen(port=int(url.rpartition(":")[2]))

    asyncio.run(main())


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "bsp+tcp://peer.example:1"])
def test_what_is_no_address_is_not_dialled(tmp_path, url):
    """An address that is none, or plain to another machine, is refused at once."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            await bob.meet(alice.key)
            with pytest.raises(LocalError):
                bob.connect(alice.key, url)

    asyncio.run(main())


def test_full_house_turns_newcomers_away(tmp_path, monkeypatch):
    """Beyond the bound of connections a newcomer is closed before it costs anything."""
    monkeypatch.setattr(bsp_connections, "CONNECTIONS_MAX", 0)

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            await acquaint(alice, bob, await alice.create_group())
            news = bob.news()
            bob.connect(alice.key, await alice.listen())
            event = await next_event(news, lambda event: isinstance(event, PeerUp | PeerDown))
            return type(event), alice.status().peers[0].link

    assert asyncio.run(main()) == (PeerDown, None)


def test_closing_makes_durable_what_was_added_and_is_done_twice_harmlessly(tmp_path):
    """What was asked for before the end is on disk behind it, and the end may come twice."""

    async def main():
        async with peer_in(tmp_path / "1") as alice:
            group = await alice.create_group("talk")
            adding = asyncio.ensure_future(alice.send(group, b"last words"))
            await asyncio.sleep(0)
            await alice.aclose()
            await alice.aclose()
            async with asyncio.timeout(WITHIN_S):
                await asyncio.gather(adding, return_exceptions=True)
        async with peer_in(tmp_path / "1") as again:
            return bodies(again, group)

    assert asyncio.run(main()) == [b"last words"]


def test_junk_at_the_port_harms_nobody(tmp_path):
    """Bytes that are no TLS end their own connection only."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            url = await alice.listen()
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(WITHIN_S):
                await reader.read()
            writer.close()
            news = bob.news()
            bob.connect(alice.key, url)
            await alice.send(group, b"hello")
            await delivered(news, 1)
            return bodies(bob, group)

    assert asyncio.run(main()) == [b"hello"]
