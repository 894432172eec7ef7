"""A backup of a busy node, restored into another folder and started: everything acknowledged before it is there."""

import asyncio
import contextlib
import random
import subprocess
import sys
import time

import pytest

import waystation
from soak.bsp.load import BspLoad
from soak.invariants import check_store, eventually
from soak.ledger import Claim, Ledger
from soak.lprp.load import LprpLoad
from soak.strata.load import StrataLoad
from tools.served import LISTENERS, ServedNode, free_port

ACKNOWLEDGED_LEAST = 10
WAITED_S = 90.0
LETTERS = ("one", "two", "three")


class Story:
    """A node, its clients, and what they were promised."""

    def __init__(self, folder):
        """Describe them; the ports are the same for the node and for the one that takes its place."""
        self.folder = folder
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.loads = [
            make(folder / "clients", self.ledger, random.Random(1)) for make in (StrataLoad, LprpLoad, BspLoad)
        ]
        self.settings = {f"{name}__{listener}": f"127.0.0.1:{free_port()}" for name, listener in LISTENERS.items()}
        self.settings |= {"admin__listen": "", "limits__enabled": False}
        for load in self.loads:
            self.settings |= {key.replace(".", "__"): value for key, value in load.settings.items()}
        self.config = folder / "node.toml"
        self.config.write_text("".join(load.tables for load in self.loads))

    def node(self, home):
        """Return a node on a home that may not be there yet."""
        node = ServedNode(home, **self.settings)
        node._tables = self.config
        node._log_path = self.folder / f"{home.name}.log"
        return node

    def acknowledged(self, until_s=float("inf")):
        """Return the messages that were acknowledged by a moment, by protocol."""
        found = {load.protocol: set() for load in self.loads}
        for entry in self.ledger.entries.values():
            if entry.claim is Claim.ACKNOWLEDGED and entry.ended_s < until_s:
                found[entry.protocol].add(entry.serial)
        return found

    async def more_acknowledged(self, count=ACKNOWLEDGED_LEAST):
        """Wait until every protocol has acknowledged so many more."""
        before = {name: len(serials) for name, serials in self.acknowledged().items()}
        await eventually(
            lambda: all(len(serials) >= before[name] + count for name, serials in self.acknowledged().items()),
            "acknowledgements of all protocols",
            WAITED_S,
        )


@contextlib.asynccontextmanager
async def sending(loads):
    """Let clients send meanwhile."""
    tasks = [asyncio.create_task(load.run()) for load in loads]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def leave_letters(folder, url):
    """Leave mail for a tenant that is away, and return once the host has accepted it."""
    async with waystation.lprp.open_sender(folder / "writer", url, works=False) as writer:
        async with waystation.lprp.open(folder / "away", url) as tenant:
            await tenant.allow(writer.public_key)
            away = tenant.public_key
        for text in LETTERS:
            assert (await writer.send(away, text)).ok


async def fetched_letters(folder, url):
    """Return the mail of the tenant that was away."""
    found = set()
    async with waystation.lprp.open(folder / "away", url) as tenant, asyncio.timeout(WAITED_S):
        async for message in tenant.messages():
            found.add(message.text)
            if found >= set(LETTERS):
                return found
    return found


async def run_command(*words):
    """Run ``waystation`` in a process of its own; it must end well."""
    command = [sys.executable, "-m", "waystation", *map(str, words)]
    done = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_everything_acknowledged_before_the_backup_is_in_the_restored_node(tmp_path):
    """Strata's packets, BSP's messages, and LPRP's leases, whitelists and mail: none is missing, the node goes on."""
    story = Story(tmp_path)
    old, backup, new = story.node(tmp_path / "old"), tmp_path / "backup", tmp_path / "new"

    async def run():
        place = old.address_of("lprp").partition("://")[2]
        url = f"lprp://{waystation.PublicKey(old.public_key).id52}@{place}"
        await leave_letters(tmp_path, url)
        async with contextlib.AsyncExitStack() as stack:
            for load in story.loads:
                stack.push_async_callback(load.close)
                await load.open(old)
            async with sending(story.loads):
                await story.more_acknowledged()
                began_s = time.monotonic()
                await run_command("backup", backup, "--home", old.home)
                await story.more_acknowledged(2)  # nobody waited for it
            old.kill()
            await run_command("restore", backup, "--home", new)
            again = stack.enter_context(story.node(new))
            await asyncio.to_thread(again.start)
            async with sending(story.loads):
                await story.more_acknowledged(2)
            assert again.ready["node"] == old.ready["node"]
            letters = await fetched_letters(tmp_path, url)
            assert again.stop() == 0
        return began_s, letters

    try:
        old.start()
        began_s, letters = asyncio.run(run())
    finally:
        old.close()
        story.ledger.close()
    before = story.acknowledged(began_s)
    check_store(new / "store.sqlite")

    assert all(len(serials) >= ACKNOWLEDGED_LEAST for serials in before.values())
    assert letters == set(LETTERS)
    for load in story.loads:
        kept = load.kept_at_node(new / "store.sqlite")
        arrived = {entry.serial for entry in story.ledger.of(load.protocol) if entry.arrived_s}
        assert before[load.protocol] <= (arrived if kept is None else kept)
