"""A device of the SDK and a real node in a process of its own, over each kind of connection."""

import asyncio
import random

import pytest

from tests.sdk.bsp.build import WITHIN_S, bodies, delivered, next_event
from tests.server.build import NodeProcess
from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.protocols.bsp.profile import SEED
from waystation.sdk.bsp import BspPeer, PeerDown, PeerHolds, PeerUp

ALICE, BOB = 201, 202
GROUP = SEED.group(bytes([0x61]) * 32, b"", "opaque")
OFF = {f"{name}__enabled": "false" for name in ("bhumi", "lprp", "merk", "strata")}
LISTENERS = {"bsp+tls": "bsp", "bsp+wss": "bsp_wss", "bsp+tcp": "bsp_plain"}


def key_of(number):
    """Return the key of a device that was made from a number."""
    return KeyPair.from_seed(random.Random(number).randbytes(SEED_BYTES)).public


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node that shares a group with Alice and Bob; Alice may come by the plain door."""
    members = ", ".join(f'"{key_of(number).hex()}"' for number in (ALICE, BOB))
    running = NodeProcess(
        tmp_path_factory.mktemp("bsp") / "home",
        bsp__tls="127.0.0.1:0",
        bsp__plain="127.0.0.1:0",
        bsp__plain_peer=key_of(ALICE).hex(),
        bsp__groups=f'[{{client_id="{GROUP.client_id.hex()}", descriptor="", share_with=[{members}]}}]',
        merk__tls="true",
        merk__paths="/merk",
        **(OFF | {"merk__enabled": "true"}),
    ).start()
    yield running
    assert running.stop() == 0


def address(node, scheme):
    """Return where a node listens for one kind of connection."""
    return f"{scheme}://{node.url(LISTENERS[scheme]).partition('://')[2]}"


async def member(peer, node):
    """Make a device a member that shares the group with the node, and return the node's key."""
    key = bytes.fromhex(node.ready["node"]["public_key"])
    await peer.meet(key, "node")
    await peer.join(GROUP, "all")
    await peer.share("all", "node")
    return key


@pytest.mark.parametrize("scheme", list(LISTENERS))
def test_messages_go_both_ways_over_every_kind_of_connection(tmp_path, node, scheme):
    """Over bsp+tls, bsp+wss and bsp+tcp a device gives the node what it has, and gets what others gave it."""
    text = scheme.encode()

    async def main():
        alice = BspPeer(tmp_path / "a", rng=random.Random(ALICE))
        bob = BspPeer(tmp_path / "b", rng=random.Random(BOB))
        async with alice, bob:
            key = await member(alice, node)
            await member(bob, node)
            alices, bobs = alice.news(), bob.news()
            alice.connect("node", address(node, scheme))
            bob.connect("node", address(node, "bsp+tls"))
            up = await next_event(alices, lambda event: isinstance(event, PeerUp))
            kind = alice.status().peers[0].link
            mine = (await alice.send("all", b"from alice " + text)).message
            await next_event(alices, lambda event: isinstance(event, PeerHolds) and event.message_id == mine.message_id)
            theirs = (await bob.send("all", b"from bob " + text)).message
            async with asyncio.timeout(WITHIN_S):
                while theirs.message_id not in await delivered(alices, 1):
                    pass
                while mine.message_id not in await delivered(bobs, 1):
                    pass
            return up == PeerUp(key, kind), kind, set(bodies(alice, GROUP)) == set(bodies(bob, GROUP))

    assert asyncio.run(main()) == (True, {"bsp+tls": "tls", "bsp+wss": "wss", "bsp+tcp": "plain"}[scheme], True)


@pytest.mark.parametrize("scheme", ["bsp+tls", "bsp+wss"])
def test_node_with_another_key_than_expected_is_not_spoken_to(tmp_path, node, scheme):
    """Whoever answers at the address must prove the key that is expected there."""

    async def main():
        async with BspPeer(tmp_path / "a", rng=random.Random(ALICE)) as alice:
            await alice.meet(key_of(BOB), "bob")
            news = alice.news()
            alice.connect("bob", address(node, scheme))
            down = await next_event(news, lambda event: isinstance(event, PeerUp | PeerDown))
            return down.key == key_of(BOB), down.reason, alice.status().peers[0].link

    assert asyncio.run(main()) == (True, "wrong_peer", None)
