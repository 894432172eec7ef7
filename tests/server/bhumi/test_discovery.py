import asyncio
import contextlib

import pytest
import structlog

from tests.server.build import eventually
from tests.server.build_node import configured, serving
from tests.transport.datagrams.build_mdns import HAS_MULTICAST, SERVICE, WITHIN_S, Watch, announcing_process
from tools.served import free_port
from waystation.crypto.signing import KeyPair
from waystation.sdk.bhumi.guide import Guide
from waystation.server.bhumi.discovery import BhumiDiscovery
from waystation.server.bhumi.tables import BhumiListenSettings

KEYS = [KeyPair.from_seed(bytes([0x60 + number]) * 32) for number in range(3)]


class Ear:
    """Keeps what a relay would hear."""

    def __init__(self):
        self.heard = {}
        self._changed = asyncio.Event()

    def discovered(self, address, now, relay_id=None):
        self.heard[address] = relay_id
        self._changed.set()

    async def until(self, holds):
        """Wait until something holds."""
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.05)


def discovery_of(relay, key_pair, *, mdns=False, broadcast=False, **options):
    listen = BhumiListenSettings(mdns=mdns, broadcast=broadcast)
    return BhumiDiscovery(relay, key_pair, listen, lambda: None, service=SERVICE, **options)


@contextlib.asynccontextmanager
async def discovering(number, url, **options):
    """Give the ear of a node that discovers, until the block ends."""
    ear = Ear()
    discovery = discovery_of(ear, KEYS[number], **options)
    discovery.start({"bhumi_plain" if url.startswith("tcp") else "bhumi": url})
    try:
        yield ear
    finally:
        await discovery.close()


def test_three_nodes_on_one_host_hear_of_each_other():
    """Two nodes and one in a process of its own; the one that is killed is dropped by its TTL."""

    async def scenario():
        async with (
            Watch() as watch,
            discovering(0, "tls://127.0.0.1:4441", mdns=True) as first,
            discovering(1, "tcp://127.0.0.1:4442", mdns=True) as second,
        ):
            third = await announcing_process(KEYS[2].public, 4443, 2)
            await first.until(lambda: len(first.heard) == 2)
            await second.until(lambda: len(second.heard) == 2)
            await watch.until(lambda: len(watch.live()) == 3)
            third.kill()
            await third.wait()
            await watch.until(lambda: KEYS[2].public not in watch.live())
            return first.heard, second.heard, watch.live()

    async def silent():
        async with discovering(0, "tls://127.0.0.1:4441", mdns=True) as ear:
            return ear.heard

    if not HAS_MULTICAST:
        assert asyncio.run(silent()) == {}
        return
    first, second, live = asyncio.run(scenario())

    places = ["tls://127.0.0.1:4441", "tcp://127.0.0.1:4442", "tls://127.0.0.1:4443"]
    keys = [pair.public for pair in KEYS]
    assert first == dict(zip(places[1:], keys[1:], strict=True))
    assert second == {places[0]: keys[0], places[2]: keys[2]}
    assert live == dict(zip(keys[:2], places[:2], strict=True))


def test_three_whole_nodes_link_without_being_told(tmp_path):
    """With ``[bhumi] mdns`` on, relays that nobody configured gossip: each tells of all, and one that stops is gone.

    What they advertise leads nowhere: the links rest on mDNS alone.
    """
    adverts = {f"tcp://127.0.0.1:{number}" for number in (1, 2, 3)}

    def contacts(server):
        return {contact["key"] for contact in server.operations.view("bhumi")["contacts"]}

    async def told(server):
        return {
            advert.address for advert in await Guide().relays(server.operations.status()["listeners"]["bhumi_plain"])
        }

    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            servers, tasks = [], []
            for place in sorted(adverts):
                home = tmp_path / place[-1]
                config = configured(
                    home,
                    bhumi__mdns="true",
                    bhumi__advertise=place,
                    bhumi__dials_private="true",
                    limits__enabled="false",
                )
                server, task = await stack.enter_async_context(serving(home, config))
                servers.append(server)
                tasks.append(task)
            if not HAS_MULTICAST:
                return [await told(server) for server in servers], set()
            keys = [server.operations.status()["node"]["public_key"] for server in servers]
            for own, server in enumerate(servers):
                await patiently(lambda own=own, server=server: {*keys} - {keys[own]} <= contacts(server))
            async with asyncio.timeout(WITHIN_S):
                while not all([adverts <= await told(server) for server in servers]):
                    pass
            servers[2].stop()
            await tasks[2]
            await patiently(lambda: keys[2] not in contacts(servers[0]) | contacts(servers[1]))
            return [await told(server) & adverts for server in servers[:2]], contacts(servers[0]) & {*keys} - {keys[1]}

    found, strangers = asyncio.run(scenario())

    assert strangers == set()
    assert found == ([adverts] * 2 if HAS_MULTICAST else [{place} for place in sorted(adverts)])


async def patiently(holds):
    """Wait for something that takes mDNS and a dial."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            with contextlib.suppress(AssertionError):
                await eventually(holds)


def test_nodes_hear_of_each_other_by_broadcast():
    """Whoever comes asks; it hears of those that are there already, and nobody hears of himself."""
    port = free_port()

    async def scenario():
        broadcast = {"broadcast": True, "broadcast_port": port}
        with structlog.testing.capture_logs() as lines:
            async with discovering(0, "tls://127.0.0.1:4441", **broadcast) as first:
                await eventually(lambda: lines)  # the port is open
                async with discovering(1, "tcp://127.0.0.1:4442", **broadcast) as second:
                    await second.until(lambda: second.heard)
                    return first.heard, second.heard

    first, second = asyncio.run(scenario())

    assert second == {"tls://127.0.0.1:4441": KEYS[0].public}
    assert first == {}


def test_nothing_begins_without_being_asked_for():
    """Neither way is on by itself, and a node without a listener for Bhumi has nothing to announce."""

    async def scenario():
        tls, udp = {"bhumi": "tls://127.0.0.1:1"}, {"lprp": "udp://127.0.0.1:1"}
        for options, urls in (({}, tls), ({"mdns": True}, udp)):
            discovery = discovery_of(Ear(), KEYS[0], **options)
            discovery.start(urls)
            assert len(asyncio.all_tasks()) == 1
            await discovery.close()

    asyncio.run(scenario())


def test_node_that_stops_at_once_leaves_nothing_open():
    """A close in the midst of the announcement ends it, whichever step it was at."""

    async def scenario():
        for turns in range(12):
            async with discovering(0, "tls://127.0.0.1:4441", mdns=True, broadcast=True, broadcast_port=free_port()):
                for _ in range(turns):
                    await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(scenario()) == 1


@pytest.mark.parametrize("way", ["mdns", "broadcast"])
def test_machine_that_does_not_allow_it_gets_a_warning(way):
    """A listener on an IPv6 address cannot be announced; the node serves on, and the log says why."""

    async def scenario():
        with structlog.testing.capture_logs() as lines:
            discovery = discovery_of(Ear(), KEYS[0], broadcast_port=0, **{way: True})
            discovery.start({"bhumi": "tls://[::1]:4441"})
            await eventually(lambda: lines)
            await discovery.close()
        return lines

    (line,) = asyncio.run(scenario())

    assert (line["event"], line["log_level"], line["by"]) == ("bhumi.not_announced", "warning", way)
    assert "no IPv4 network" in line["error"]
