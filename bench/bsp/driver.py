"""The devices of the BSP sync benchmark: one fills a home, and two sync as receiver and sender in own processes."""

import asyncio
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from waystation.cli import tune_interpreter
from waystation.protocols.bsp.profile import SEED
from waystation.sdk.bsp import BspHome, BspPeer, Mode, PeerUp, Settled

GROUP = SEED.group(bytes(32), b"bench", "opaque")


def count_commits(home: BspHome) -> list[int]:
    """Let a home's store tell how many groups it writes; returns the number, in a list that grows with it."""
    counted = [0]
    commit = home.store.commit

    def counting(changes: Any) -> None:
        counted[0] += 1
        commit(changes)

    home.store.commit = counting  # type: ignore[method-assign]
    return counted


async def prepare(path: Path, other: bytes, messages: int, body_bytes: int) -> None:
    """Make a home that shares the group with another, with so many messages in it."""
    async with BspPeer(path) as peer:
        await peer.join(GROUP, "bench")
        await peer.meet(other, "other")
        await peer.share("bench", "other")
        for start in range(0, messages, 1_000):
            bodies = [os.urandom(body_bytes) for _ in range(start, min(messages, start + 1_000))]
            await asyncio.gather(*(peer.send("bench", body) for body in bodies))


def receive(pipe: Connection, path: Path, messages: int) -> None:
    """Accept one peer; send where, and after the word how many commits and how much CPU it took."""
    tune_interpreter()  # as the command line does
    asyncio.run(_receive(pipe, path, messages))


async def _receive(pipe: Connection, path: Path, messages: int) -> None:
    home = BspHome(path)
    commits = count_commits(home)
    async with BspPeer(home, mode=Mode.BATCH) as peer:
        url = await peer.listen()
        before, cpu_s = commits[0], time.process_time()
        pipe.send(url)
        await asyncio.to_thread(pipe.recv)
        taken = commits[0] - before, time.process_time() - cpu_s
        have = len(peer.history("bench"))
        assert have == messages, f"{have} of {messages}"
        pipe.send(taken)
    home.close()


def send(pipe: Connection, path: Path, url: str) -> None:
    """Dial a peer; send how long it took until it holds everything and we have that on disk, and the CPU for it."""
    tune_interpreter()
    asyncio.run(_send(pipe, path, url))


async def _send(pipe: Connection, path: Path, url: str) -> None:
    async with BspPeer(path, mode=Mode.BATCH) as peer:
        news = peer.news()
        peer.connect("other", url)
        began, cpu_s = 0.0, 0.0
        async for event in news:
            if isinstance(event, PeerUp):
                began, cpu_s = time.perf_counter(), time.process_time()
            elif isinstance(event, Settled):
                break
        pipe.send((time.perf_counter() - began, time.process_time() - cpu_s))
