"""Everything between clients and node is dropped, late or lost: both sides notice, and are together again soon."""

import asyncio
import contextlib
import random
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from soak.bhumi.load import BhumiLoad
from soak.bsp.load import BspLoad
from soak.invariants import eventually
from soak.ledger import Ledger, Window
from soak.lprp.load import LprpLoad
from soak.merk.load import MerkLoad
from soak.strata.load import StrataLoad
from tests.netns import Wire
from tools.served import LISTENERS, ServedNode
from waystation.core.dids import encode_did
from waystation.crypto.signing import KeyPair
from waystation.server.home.files import Home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LOADS = (BhumiLoad, BspLoad, LprpLoad, MerkLoad, StrataLoad)
NOTICED_S = 33.0
"""The limit, and what a busy machine adds."""
BACK_S = 10.0
STREAMS = ("bhumi", "bsp", "merk", "strata")
PATIENCE_S = 60.0
LOSSY_S = 20.0
STOPPED_S = 60.0
ESTABLISHED = "01"  # in /proc/net/tcp


def connections(place, node):
    """Return how many connections of each protocol a node at a place has."""
    with place, urllib.request.urlopen(node.address_of("admin") + "/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    names = {f'waystation_size{{protocol="{name}",thing="connections"}}': name for name in STREAMS}
    found = (line.rpartition(" ") for line in lines)
    return {names[name]: int(float(count)) for name, _, count in found if name in names}


class Rig:
    """A node at one end of a wire, and clients of all protocols at the other one."""

    def __init__(self, folder, wire):
        self.wire = wire
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.loads = [make(folder / "clients", self.ledger, random.Random(1)) for make in LOADS]
        home = folder / "home"
        Home(home).ensure(names=[wire.near.address])
        self.node = ServedNode(home, tables="".join(load.tables for load in self.loads))
        self.node.settings = {"limits.enabled": False, "admin.listen": "127.0.0.1:0"}
        for name, listener in LISTENERS.items():
            self.node.settings[f"{name}.{listener}"] = f"{wire.near.address}:0"
        for load in self.loads:
            self.node.settings |= load.settings
        self._senders = []

    async def open(self):
        """Start the node at its end, and the clients at ours."""
        with self.wire.near:
            self.node.start()
        for load in self.loads:
            await load.open(self.node)

    async def close(self):
        """End everything."""
        await self.pause()
        for load in self.loads:
            await load.close()
        self.node.close()
        self.ledger.close()

    def load(self):
        """Let all clients send."""
        self._senders = [asyncio.create_task(load.run()) for load in self.loads]

    async def pause(self):
        """Let no client send any more."""
        for task in self._senders:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        self._senders = []

    async def noticed(self):
        """Drop everything until both sides know it; return for each side and protocol after how many seconds."""
        began_s = time.monotonic()
        clients, node = {}, {}
        while time.monotonic() - began_s < PATIENCE_S and not (
            len(clients) == len(LOADS) and len(node) == len(STREAMS)
        ):
            for protocol, at_s in self.ledger.disconnects:
                if at_s > began_s:
                    clients.setdefault(protocol, round(at_s - began_s, 1))
            for protocol, count in connections(self.wire.near, self.node).items():
                if not count:
                    node.setdefault(protocol, round(time.monotonic() - began_s, 1))
            await asyncio.sleep(0.2)
        return clients, node

    async def back(self):
        """Return for each protocol after how many seconds something is acknowledged that was sent from now on."""
        began_s = time.monotonic()
        found = {}
        while time.monotonic() - began_s < PATIENCE_S and len(found) < len(LOADS):
            for load in self.loads:
                at_s = self.ledger.first_acknowledged_s(load.protocol, began_s)
                if at_s is not None:
                    found.setdefault(load.protocol, round(at_s - began_s, 1))
            await asyncio.sleep(0.1)
        return found


@contextlib.asynccontextmanager
async def rigged(folder):
    """Give a rig whose clients have been acknowledged once."""
    with Wire() as wire, wire.far:
        rig = Rig(folder, wire)
        try:
            await rig.open()
            rig.load()
            assert len(await rig.back()) == len(LOADS)
            yield rig
        finally:
            await rig.close()


def judge(noticed, back):
    """Assert that all of them were in time, and print the seconds."""
    clients, node = noticed
    sys.stdout.write(f"\nclients: {clients}\nnode: {node}\nback: {back}\n")
    assert set(clients) == {make.protocol for make in LOADS}
    assert set(node) == set(STREAMS)
    assert max(*clients.values(), *node.values()) <= NOTICED_S
    assert set(back) == {make.protocol for make in LOADS}
    assert max(back.values()) <= BACK_S


@pytest.mark.parametrize(("is_idle", "lasts_s"), [(False, 40.0), (True, 120.0)])
def test_dropped_link_is_noticed_and_healed(tmp_path, is_idle, lasts_s):
    """NODE-SILENCE: within 30 s both sides of all five know it, idle or busy; within 10 s of its end all are back."""

    async def story():
        async with rigged(tmp_path) as rig:
            if is_idle:
                await rig.pause()
            began_s = time.monotonic()
            with rig.wire.cut():
                noticed = await rig.noticed()
                await asyncio.sleep(max(0.0, began_s + lasts_s - time.monotonic()))
            if is_idle:
                rig.load()
            back = await rig.back()
            await rig.pause()
            return noticed, back, rig.ledger.untrue()

    noticed, back, untrue = asyncio.run(story())

    judge(noticed, back)
    assert not untrue


def test_loss_delay_and_reordering_part_nobody(tmp_path):
    """A tenth of the packets lost, 300 ms there and back, later ones overtake: everything goes on, and nothing lies."""

    async def story():
        async with rigged(tmp_path) as rig:
            began_s = time.monotonic()
            rig.wire.loss, rig.wire.delay_s = 0.1, (0.1, 0.2)
            await asyncio.sleep(LOSSY_S)
            window = Window(began_s, time.monotonic())
            counts = {load.protocol: rig.ledger.acknowledged_in(load.protocol, window) for load in rig.loads}
            parted = {load.protocol for load in rig.loads if rig.ledger.disconnected_in(load.protocol, window)}
            rig.wire.loss, rig.wire.delay_s = 0.0, (0.0, 0.0)
            await rig.back()
            await rig.pause()
            await eventually(lambda: not any(load.under_way_count for load in rig.loads), "an end", PATIENCE_S)
            await eventually(lambda: not rig.ledger.owed(), "the arrival of what is owed", PATIENCE_S)
            return counts, parted, rig.ledger.untrue()

    counts, parted, untrue = asyncio.run(story())

    sys.stdout.write(f"\nacknowledged in {LOSSY_S:g} s: {counts}\n")
    assert min(counts.values()) >= LOSSY_S / 2
    assert not parted
    assert not untrue


def test_node_that_stands_still_is_not_silent_over_tcp(tmp_path):
    """NODE-SILENCE: its kernel answers, so BSP stays connected; who asks the process leaves, and all are back soon."""

    async def story():
        async with rigged(tmp_path) as rig:
            began_s = time.monotonic()
            rig.node.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(STOPPED_S)
            finally:
                rig.node.signal(signal.SIGCONT)
            window = Window(began_s, time.monotonic())
            back = await rig.back()
            await rig.pause()
            return {load.protocol for load in rig.loads if rig.ledger.disconnected_in(load.protocol, window)}, back

    parted, back = asyncio.run(story())

    sys.stdout.write(f"\nparted: {sorted(parted)}, back: {back}\n")
    assert parted == {load.protocol for load in LOADS} - {"bsp"}
    assert set(back) == {load.protocol for load in LOADS}
    assert max(back.values()) <= BACK_S


class Relay(ServedNode):
    """A node without clients."""

    def __init__(self, folder, place, key, tables="", **settings):
        Home(folder).ensure(names=[place.address])
        super().__init__(folder, key=None, tables=tables)
        (folder / "node.key").write_text(key.seed.hex() + "\n")
        self.place = place
        self.settings = {"limits.enabled": False, "admin.listen": "127.0.0.1:0", "lprp.udp": ""} | settings
        for name in STREAMS:
            self.settings.setdefault(f"{name}.{LISTENERS[name]}", f"{place.address}:0")

    def start(self):
        """Start at its place."""
        with self.place:
            return super().start()


def dialled(node, other):
    """Return how many connections of each protocol a node has dialled to another one, as its kernel counts them."""
    rows = [line.split() for line in Path(f"/proc/{node.pid}/net/tcp").read_text().splitlines()[1:]]
    ports = [int(row[2].rpartition(":")[2], 16) for row in rows if row[3] == ESTABLISHED]
    return {name: ports.count(int(other.address_of(name).split("/")[2].rpartition(":")[2])) for name in STREAMS}


def relays(folder, wire):
    """Yield a relay, and one that dials it by each of the four protocols of streams."""
    keys = [KeyPair.from_seed(bytes([number]) * 32) for number in (1, 2)]
    dids = [encode_did(key.public) for key in keys]
    knows = f'[[bsp.peers]]\nkey = "{keys[1].public.hex()}"\n'
    first = Relay(folder / "first", wire.near, keys[0], knows, **{"strata.replicate_allow": [dids[1]]})
    yield first.start()
    dials = f'[[bsp.peers]]\nkey = "{keys[0].public.hex()}"\nurl = "bsp+{first.address_of("bsp")}"\n'
    dials += f'[[strata.upstreams]]\nurl = "{first.address_of("strata")}"\nrelay_id = "{dids[0]}"\n'
    peers = {"bhumi.peers": [first.address_of("bhumi")], "merk.peers": [first.address_of("merk")]}
    yield Relay(folder / "second", wire.far, keys[1], dials, **peers).start()


def test_links_of_two_nodes_notice_a_partition(tmp_path):
    """NODE-SILENCE, NODE-REDIAL: both ends know within 30 s that all is dropped, and link within 10 s of its end."""

    async def story(wire, nodes):
        first, second = nodes

        def links():
            return connections(first.place, first), dialled(second, first)

        def linked():
            return all(min(each.values()) for each in links())

        await eventually(linked, "links by all four", PATIENCE_S)
        began_s = time.monotonic()
        found = [{}, {}]
        with wire.cut():
            while time.monotonic() - began_s < PATIENCE_S and any(len(each) < len(STREAMS) for each in found):
                for counts, seen in zip(links(), found, strict=True):
                    for protocol, count in counts.items():
                        if not count:
                            seen.setdefault(protocol, round(time.monotonic() - began_s, 1))
                await asyncio.sleep(0.2)
        healed_s = time.monotonic()
        await eventually(linked, "links again", 2 * PATIENCE_S)
        return found, time.monotonic() - healed_s

    with Wire() as wire, contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(node) for node in relays(tmp_path, wire)]
        found, back_s = asyncio.run(story(wire, nodes))

    sys.stdout.write(f"\nfirst: {found[0]}\nsecond: {found[1]}\nlinked again after {back_s:.1f} s\n")
    assert back_s <= BACK_S
    for seen in found:
        assert set(seen) == set(STREAMS)
        assert max(seen.values()) <= NOTICED_S
