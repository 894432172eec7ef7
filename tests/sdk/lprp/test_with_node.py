"""The SDK against a real node in a process of its own, killed in the middle."""

import asyncio
import contextlib

import pytest

from tests.sdk.lprp.build import QUICK, run, take, until
from tests.server.build import NodeProcess
from waystation.core.ids import PublicKey
from waystation.sdk.lprp import HostUrl, LprpSender, LprpTenant
from waystation.transport.dial import DATAGRAM_SCHEMES, RelayUrl

SETTINGS = {
    "bhumi__enabled": "false",
    "merk__enabled": "false",
    "strata__enabled": "false",
    "lprp__udp": "127.0.0.1:0",
    "lprp__retry_ms": "100",
    "lprp__pow_base_bits_lease": "8",
    "lprp__pow_base_bits_relay": "8",
}


@pytest.fixture
def node(tmp_path):
    """A node with LPRP alone; killed or stopped by the test or at its end."""
    node = NodeProcess(tmp_path / "node", **SETTINGS).start()
    yield node
    if node.process.poll() is None:
        assert node.stop() == 0


def host_of(node):
    """Return where the node's host is."""
    place = RelayUrl.parse(node.url("lprp"), DATAGRAM_SCHEMES)
    return HostUrl(PublicKey.parse(node.ready["node"]["public_key"]), place.host, place.port)


def test_work_whitelist_and_a_long_message(tmp_path, node):
    """A stranger works, a friend does not, and 20 kB arrive whole, over the node that people run."""

    async def scenario():
        alice = LprpTenant(tmp_path / "alice", host_of(node), settings=QUICK)
        async with alice, LprpSender(tmp_path / "bob", host_of(node), settings=QUICK) as bob:
            stranger = await bob.send(alice.public_key, "hello")
            await alice.allow(bob.public_key)
            friend = await bob.send(alice.public_key, b"\0" * 20_000)
            return stranger, friend, [message.data for message in await take(alice, 2)]

    stranger, friend, came = run(scenario)

    assert (stranger.ok, stranger.hashes > 0) == (True, True)
    assert (friend.ok, friend.hashes, friend.parts_count) == (True, 0, 68)
    assert came == [b"hello", b"\0" * 20_000]


def test_node_killed_in_mid_queue_loses_nothing_that_it_accepted(tmp_path, node):
    """Every message with a 202 comes exactly once although the node is killed while it delivers and takes more."""
    accepted, came = [], []
    sent_count = 120
    address = host_of(node)
    node.settings["lprp.udp"] = f"{address.host}:{address.port}"

    async def send_all(bob, recipient):
        for number in range(sent_count):
            text = f"message {number}"
            if (await bob.send(recipient, text, timeout_s=3)).ok:
                accepted.append(text)

    async def listen(alice, note):
        async for message in alice.messages():
            note(message.text)

    async def scenario():
        async with LprpSender(tmp_path / "bob", address, settings=QUICK) as bob:
            async with LprpTenant(tmp_path / "alice", address, settings=QUICK) as alice:
                key = alice.public_key
                await alice.allow(bob.public_key)
            sending = asyncio.ensure_future(send_all(bob, key))
            await until(lambda: len(accepted) >= 30)
            async with LprpTenant(tmp_path / "alice", address, settings=QUICK) as alice:
                listening = asyncio.ensure_future(listen(alice, came.append))
                await until(lambda: len(came) >= 10)
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
                await sending
                await asyncio.wait([listening], timeout=0.1)
                await until(lambda: set(accepted) <= set(came))
                listening.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await listening

    run(scenario, timeout_s=60)

    assert len(came) == len(set(came))
    assert set(accepted) <= set(came)
    assert len(accepted) > 100


def test_listener_killed_between_messages_gets_each_once(tmp_path, node):
    """A client that goes down again and again while messages come has each of them done exactly once."""
    texts = [f"message {number}" for number in range(60)]
    done = []

    async def scenario():
        async with LprpSender(tmp_path / "bob", host_of(node), settings=QUICK) as bob:
            async with LprpTenant(tmp_path / "alice", host_of(node), settings=QUICK) as alice:
                key = alice.public_key
                await alice.allow(bob.public_key)
            sending = asyncio.gather(*(bob.send(key, text) for text in texts))
            while len(done) < len(texts):
                async with LprpTenant(tmp_path / "alice", host_of(node), settings=QUICK) as alice:
                    done.extend(message.text for message in await take(alice, min(7, len(texts) - len(done))))
            return await sending

    sent = run(scenario, timeout_s=60)

    assert all(each.ok for each in sent)
    assert sorted(done) == sorted(texts)
