"""Laws of a BSP device whose process is killed: nothing is lost, nothing is doubled."""

import asyncio
import subprocess
import sys

import pytest

from tests.sdk.bsp.build import acquaint, bodies, devices, hurry, next_event, peer_in, until
from waystation.sdk.bsp import PeerHolds

READER = """
import asyncio, os, random, signal, sys
from pathlib import Path
from waystation.protocols.bsp.device.ledger import Ledger
from waystation.sdk.bsp import BspHome, BspPeer

home, alice, url, group, behind = Path(sys.argv[1]), bytes.fromhex(sys.argv[2]), *sys.argv[3:5], int(sys.argv[5])

async def main():
    opened = BspHome(home)
    async with BspPeer(opened) as bob:
        commit, ledger = opened.store.commit, Ledger(opened.store)

        def commit_and_die(changes):
            commit(changes)
            if len(list(ledger.read_messages(bytes.fromhex(group)))) >= behind:
                os.kill(os.getpid(), signal.SIGKILL)

        opened.store.commit = commit_and_die
        bob.connect(alice, url)
        await asyncio.Event().wait()

asyncio.run(main())
"""
"""A device that dies at once when so many messages are on its disk, before it can acknowledge one of them."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Nobody waits a second for what takes milliseconds."""
    hurry(monkeypatch)


@pytest.mark.parametrize("count", [1, 5])
def test_kill_between_store_and_acknowledgement_costs_one_repeat(tmp_path, count):
    """A reader that is killed with messages stored and unacknowledged has each once, after at most one more copy."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await bob.aclose()
            url = await alice.listen()
            sent = [(await alice.send(group, b"%d" % number)).message for number in range(count)]
            arguments = [tmp_path / "2", alice.key.hex(), url, group.group_id.hex(), str(count)]
            reader = await asyncio.create_subprocess_exec(sys.executable, "-c", READER, *map(str, arguments))
            killed = await reader.wait()
            await until(lambda: alice.status().peers[0].link is None)
            unknown = alice.status().peers[0].owed_count
            async with peer_in(tmp_path / "2") as again:
                kept = bodies(again, group)
                news = alice.news()
                again.connect(alice.key, url)
                holds = [await next_event(news, lambda event: isinstance(event, PeerHolds)) for _ in sent]
                heard = bodies(again, group)
            return killed, unknown, kept, [event.copies for event in holds], heard

    killed, unknown, kept, copies, heard = asyncio.run(main())

    assert (killed, unknown) == (-9, count)
    assert kept == heard == [b"%d" % number for number in range(count)]
    assert max(copies) <= 2


WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
from waystation.sdk.bsp import BspPeer, peer

home, bob, path, when = Path(sys.argv[1]), bytes.fromhex(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
write = peer.write_bundle_file

def write_and_die(target, data, *, replace):
    if when == "behind":
        write(target, data, replace=replace)
    os.kill(os.getpid(), signal.SIGKILL)

peer.write_bundle_file = write_and_die

async def main():
    async with BspPeer(home) as alice:
        await alice.export_file(bob, path)

asyncio.run(main())
"""
"""A device that dies while it exports a file: before the file is there, or before it counts as sent."""


@pytest.mark.parametrize("when", ["before", "behind"])
def test_kill_while_a_file_is_written_loses_nothing(tmp_path, when):
    """What was in a file that never came to be, or was never marked, goes into the next one."""

    async def prepare():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.send(group, b"hello")
            return group, bob.key

    async def resume(group):
        async with devices(tmp_path, 2) as (alice, bob):
            out = await alice.export_file(bob.key, tmp_path / "second")
            for path in [out.path, *tmp_path.glob("first")]:
                await bob.import_file(path)
            return out.messages_count, bodies(bob, group)

    group, bob = asyncio.run(prepare())
    arguments = [tmp_path / "1", bob.hex(), tmp_path / "first", when]
    died = subprocess.run([sys.executable, "-c", WRITER, *map(str, arguments)], check=False, timeout=30)

    assert died.returncode == -9
    assert (tmp_path / "first").exists() == (when == "behind")
    assert asyncio.run(resume(group)) == (1, [b"hello"])
