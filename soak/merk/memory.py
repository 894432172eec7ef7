"""Tests that a MERK node's memory stays bounded: a recipient never reads, clients flood look-ups, a peer node stops.

Each load is repeated, and resident memory is sampled all the time. No repetition may exceed the node's limits for
waiting data, and the last may use little more than the earlier ones.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import uvloop

from soak.invariants import ROUNDS, Memory, ended_well
from soak.merk.nodes import MerkNode, mesh, start_all, until_meshed
from soak.merk.raw import RawClient, connect_raw

CONTENT_BYTES: Final = 872
"""Frames of 1 KiB."""
IN_FLIGHT: Final = 20_000
"""More than the 16 MiB that may wait for one reader: its frames have no notice before it is cut."""
PORTION: Final = 2_000
SEARCHERS: Final = 100
SEARCHES: Final = 10_000
SEARCH_BYTES: Final = 4_000
STALL_S: Final = 12.0
STALL_BYTES: Final = 65_536
STALL_IN_FLIGHT: Final = 4_096
"""Large frames without a notice at most: 256 MiB, twice what a node keeps of frames that others have not answered."""
LOOK_EVERY_S: Final = 0.05
NOTICED_S: Final = 40.0
DRIFT_KIB: Final = 32 * 1_024
"""What the last round may take above all before it: how much waits varies by 30 MiB, as measured."""
GROWN_MAX_KIB: Final = 96 * 1_024
"""64 MiB may wait for searches, 16 MiB for a link, 16 MiB for a reader; each load makes one of these."""

SENDER, READER = 1, 2
FIRST_SEARCHER: Final = 1_000


def check(
    folder: Path,
    seed: int,  # noqa: ARG001 - nothing here is left to chance
    frames: int = 1_000_000,
    searches: int = SEARCHES,
    stall_s: float = STALL_S,
) -> str:
    """Send so many frames to clients that never read, search so often, stall so long; return figures."""
    nodes = mesh(folder, "line", 2)
    with ended_well(*nodes):
        return uvloop.run(_live(nodes, frames, searches, stall_s))


async def _live(nodes: list[MerkNode], frames: int, searches: int, stall_s: float) -> str:
    await start_all(nodes)
    await until_meshed(nodes)
    near, far = nodes
    portions = frames // 2 // ROUNDS
    figures = [
        await _rounds("a reader here that never reads", nodes, lambda: _unread(near, near, portions)),
        await _rounds("one at the other node", nodes, lambda: _unread(near, far, portions)),
        await _rounds("searches of one client", nodes, lambda: _search(near, 1, searches)),
        await _rounds("searches of many", nodes, lambda: _search(near, SEARCHERS, searches)),
        await _rounds("a node that does not run", nodes, lambda: _stall(near, far, stall_s)),
    ]
    return "; ".join(figures)


async def _rounds(what: str, nodes: list[MerkNode], make: Callable[[], Coroutine[Any, Any, Counter[str]]]) -> str:
    """Make a load several times; see that memory is bounded and flat at all times; return figures."""
    memory, codes = Memory(what, [node.rss_kib for node in nodes]), Counter[str]()

    async def look() -> None:
        while True:
            memory.look()
            await asyncio.sleep(LOOK_EVERY_S)

    looking = asyncio.create_task(look())
    try:
        for _ in range(ROUNDS):
            codes += await make()
            memory.end_round()
    finally:
        looking.cancel()
    print(f"{what}: {dict(codes)}")
    return memory.check(GROWN_MAX_KIB, DRIFT_KIB)


async def _unread(near: MerkNode, far: MerkNode, frames: int) -> Counter[str]:
    """Send frames to a client that reads nothing, is cut, and connects again to read nothing."""
    (sender,) = await connect_raw(near.url, SENDER)
    sender.ask_for_notices()
    reader = await _stalled_reader(sender, far)
    connections, missed = 1, sender.codes["unknown_target"]
    for at in range(0, frames, PORTION):
        for _ in range(min(PORTION, frames - at)):
            sender.send(reader.key, CONTENT_BYTES)
        await sender.until_noticed(IN_FLIGHT, NOTICED_S)
        if sender.codes["unknown_target"] > missed:  # who reads nothing does not see its own end
            reader.transport.abort()
            reader = await _stalled_reader(sender, far)
            connections, missed = connections + 1, sender.codes["unknown_target"]
    reader.transport.abort()
    await sender.until_noticed(0, NOTICED_S)
    return _ended(sender, reader) + Counter(connections=connections)


async def _stalled_reader(sender: RawClient, node: MerkNode) -> RawClient:
    """Return a client that the sender has reached once, and that takes nothing from now on."""
    (reader,) = await connect_raw(node.url, READER)
    await _until_delivered(sender, reader)
    reader.transport.pause_reading()
    return reader


async def _search(node: MerkNode, count: int, searches: int) -> Counter[str]:
    """Let some clients write to unknown keys, all at once."""
    clients = await connect_raw(node.url, FIRST_SEARCHER, count)
    for client in clients:
        client.ask_for_notices()
    for _ in range(searches // count):
        for client in clients:
            client.send(os.urandom(32), SEARCH_BYTES)
    for client in clients:
        await client.until_noticed(0, NOTICED_S)
    return _ended(*clients)


async def _stall(near: MerkNode, far: MerkNode, stall_s: float) -> Counter[str]:
    """Stop the other node, write to a client of it and search for others, and let it go on; all is well again then."""
    (sender,), (searcher,) = await connect_raw(near.url, SENDER), await connect_raw(near.url, FIRST_SEARCHER)
    (reader,) = await connect_raw(far.url, READER)
    for client in (sender, searcher):
        client.ask_for_notices()
    await _until_delivered(sender, reader)
    os.kill(far.pid, signal.SIGSTOP)
    try:
        ends_at = asyncio.get_running_loop().time() + stall_s
        while asyncio.get_running_loop().time() < ends_at:
            for _ in range(STALL_IN_FLIGHT - sender.unnoticed_count):
                sender.send(reader.key, STALL_BYTES)
            for _ in range(64 - searcher.unnoticed_count):
                searcher.send(os.urandom(32), SEARCH_BYTES)
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        os.kill(far.pid, signal.SIGCONT)
    for client in (sender, searcher):
        await client.until_noticed(0, NOTICED_S)
    await _until_delivered(sender, reader)
    return _ended(sender, searcher, reader)


async def _until_delivered(sender: RawClient, reader: RawClient) -> None:
    before = sender.codes["delivered"]
    async with asyncio.timeout(NOTICED_S):
        while True:
            sender.send(reader.key, CONTENT_BYTES)
            await sender.until_noticed(0, NOTICED_S)
            if sender.codes["delivered"] > before:
                return
            await asyncio.sleep(LOOK_EVERY_S)


def _ended(*clients: RawClient) -> Counter[str]:
    """Close clients; return the notices that they got."""
    codes: Counter[str] = Counter()
    for client in clients:
        assert not client.faults, client.faults[:3]
        codes += client.codes
        client.transport.abort()
    return codes
