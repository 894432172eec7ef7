"""Two devices over a real node in a process of its own: over each relay, over all at once, and with a kill between."""

import asyncio
import contextlib

import pytest

from tests.sdk.bsp.build import acquaint, chained, peer_in
from tests.sdk.bsp.build_carrier import run
from tests.sdk.lprp.build import QUICK as QUICK_TENANT
from tests.sdk.lprp.build import until
from tests.sdk.merk.build import QUICK
from tests.server.build import NodeProcess
from waystation.core.ids import PublicKey
from waystation.sdk.bhumi import BhumiState
from waystation.sdk.bridges.bhumi import BspOverBhumi
from waystation.sdk.bridges.lprp import BspOverLprp
from waystation.sdk.bridges.merk import BspOverMerk, merk_keys_of
from waystation.sdk.bsp import Delivered
from waystation.sdk.identity import put_key
from waystation.sdk.lprp import HostUrl
from waystation.transport.dial import DATAGRAM_SCHEMES, RelayUrl

SETTINGS = {
    "bsp__enabled": "false",
    "strata__enabled": "false",
    "limits__enabled": "false",
    "lprp__retry_ms": "100",
    "lprp__pow_base_bits_lease": "4",
    "lprp__pow_base_bits_relay": "4",
    "admin__listen": "",
}


@pytest.fixture
def node(tmp_path):
    """A node with the three relays; started again it has the same ports."""
    node = NodeProcess(tmp_path / "node", **SETTINGS).start()
    for setting, name in (("merk.ws", "merk"), ("bhumi.plain", "bhumi_plain"), ("lprp.udp", "lprp")):
        node.settings[setting] = node.url(name).partition("://")[2].partition("/")[0]
    yield node
    assert node.stop() == 0


@contextlib.asynccontextmanager
async def pair(tmp_path, node, *kinds):
    """Give two devices that share a group, with carriers of these kinds, and what each has delivered."""
    heard = ([], [])
    async with contextlib.AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(peer_in(tmp_path / name, 1 + index)) for index, name in enumerate("AB")
        ]
        group = await peers[0].create_group("all", format="deps_v1")
        await acquaint(*peers, group)
        for peer, known in zip(peers, heard, strict=True):
            stack.callback(asyncio.create_task(note(peer.news(), known)).cancel)
        for kind in kinds:
            await {"merk": over_merk, "bhumi": over_bhumi, "lprp": over_lprp}[kind](tmp_path, node, peers, stack)
        yield peers, group, heard


async def over_merk(_tmp_path, node, peers, _stack):
    for peer in peers:
        keys = merk_keys_of(peer.home.key_pair)
        await peer.attach(BspOverMerk(node.url("merk"), keys=keys, only=True, **QUICK))


async def over_bhumi(tmp_path, node, peers, stack):
    carriers = []
    for peer in peers:
        home = tmp_path / "bhumi" / peer.key.hex()[:8]
        put_key(home / "node.key", peer.home.key_pair)
        state = stack.enter_context(contextlib.closing(BhumiState(home)))
        carriers.append(BspOverBhumi(state, node.url("bhumi_plain"), look_s=0.01))
        await peer.attach(carriers[-1])
    token = carriers[0].invite()
    await until_accepted(carriers[1], token)


async def until_accepted(carrier, token):
    """Pair; the inviter may still be on its way to the relay."""
    async with asyncio.timeout(25):
        while True:
            with contextlib.suppress(Exception):
                return await carrier.accept(token)
            await wait(0.02)


async def over_lprp(tmp_path, node, peers, _stack):
    place = RelayUrl.parse(node.url("lprp"), DATAGRAM_SCHEMES)
    host = HostUrl(PublicKey.parse(node.ready["node"]["public_key"]), place.host, place.port)
    for peer in peers:
        home = tmp_path / "lprp" / peer.key.hex()[:8]
        await peer.attach(BspOverLprp(home, host, key_pair=peer.home.key_pair, settings=QUICK_TENANT))


async def note(news, heard):
    """Write down what a device delivers."""
    async for event in news:
        if isinstance(event, Delivered):
            heard.append(event.message_id)


async def wait(seconds):
    """Let some time pass."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def until_equal(peers, group, count):
    """Wait until both devices hold so many messages, and know it of each other."""
    await until(lambda: all(len(peer.history(group)) == count for peer in peers))
    await until(lambda: all(status.owed_count == 0 for peer in peers for status in peer.status().peers))


async def write(peer, group, count):
    """Add messages, each behind the last one known here."""
    for number in range(count):
        last = [message.message_id for message in peer.history(group)][-1:]
        await peer.send(group, chained(b"%d by " % number + peer.key, *last))


@pytest.mark.parametrize("kind", ["merk", "bhumi", "lprp"])
def test_over_each_relay_of_the_node(tmp_path, node, kind):
    """What both write reaches the other, once, over the node that people run."""

    async def scenario():
        async with pair(tmp_path, node, kind) as (peers, group, heard):
            await asyncio.gather(*(write(peer, group, 5) for peer in peers))
            await until_equal(peers, group, 10)
            kinds = {status.link for peer in peers for status in peer.status().peers}
            return heard, kinds

    (a, b), kinds = run(scenario, timeout_s=90)

    assert sorted(a) == sorted(b)
    assert len(set(a)) == len(a) == 10
    assert kinds == {kind}


def test_all_at_once_and_the_node_killed(tmp_path, node):
    """With three ways at once and the node killed while both write, nothing is lost and nothing delivered twice."""

    async def scenario():
        async with pair(tmp_path, node, "merk", "bhumi", "lprp") as (peers, group, heard):
            await write(peers[0], group, 3)
            await until_equal(peers, group, 3)
            writing = asyncio.gather(*(write(peer, group, 20) for peer in peers))
            await asyncio.to_thread(node.kill)
            await writing
            await asyncio.to_thread(node.start)
            await until_equal(peers, group, 43)
            return heard

    a, b = run(scenario, timeout_s=90)

    assert sorted(a) == sorted(b)
    assert len(set(a)) == len(a) == 43
