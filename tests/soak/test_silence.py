"""Everything between clients and node is dropped, late or lost: both sides notice, and are together again soon."""

import asyncio
import contextlib
import random
import sys
import time
import urllib.request

import pytest

from soak.bhumi.load import BhumiLoad
from soak.bsp.load import BspLoad
from soak.ledger import Ledger
from soak.lprp.load import LprpLoad
from soak.merk.load import MerkLoad
from soak.strata.load import StrataLoad
from tests.netns import Wire
from tools.served import LISTENERS, ServedNode
from waystation.server.home.files import Home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LOADS = (BhumiLoad, BspLoad, LprpLoad, MerkLoad, StrataLoad)
NOTICED_S = 33.0
"""The limit, and what a busy machine adds."""
BACK_S = 10.0
STREAMS = ("bhumi", "bsp", "merk", "strata")
PATIENCE_S = 60.0


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

    def connections(self):
        """Return how many connections of each protocol the node has."""
        with self.wire.near, urllib.request.urlopen(self.node.address_of("admin") + "/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        names = {f'waystation_size{{protocol="{name}",thing="connections"}}': name for name in STREAMS}
        found = (line.rpartition(" ") for line in lines)
        return {names[name]: int(float(count)) for name, _, count in found if name in names}

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
            for protocol, count in self.connections().items():
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
