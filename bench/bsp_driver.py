"""One device of a measured pair, in a process of its own: ``prepare`` fills a home, ``receive`` and ``send`` sync."""

import asyncio
import json
import os
import sys
import time
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
            await asyncio.gather(*(peer.add("bench", body) for body in bodies))


async def receive(path: Path, messages: int) -> None:
    """Accept one peer; say where, and at the end how much CPU and how many commits it took."""
    home = BspHome(path)
    commits = count_commits(home)
    async with BspPeer(home, mode=Mode.BATCH) as peer:
        url = await peer.listen()
        before, cpu = commits[0], time.process_time()
        print(json.dumps({"url": url, "key": peer.key.hex()}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        taken = {"commits": commits[0] - before, "cpu_s": time.process_time() - cpu}
        have = len(peer.messages("bench"))
        assert have == messages, f"{have} of {messages}"
        print(json.dumps(taken), flush=True)
    home.close()


async def send(path: Path, url: str) -> None:
    """Dial a peer; say how long it took until it holds everything and we have that on disk."""
    async with BspPeer(path, mode=Mode.BATCH) as peer:
        news = peer.news()
        peer.connect("other", url)
        began, cpu = 0.0, 0.0
        async for event in news:
            if isinstance(event, PeerUp):
                began, cpu = time.perf_counter(), time.process_time()
            elif isinstance(event, Settled):
                break
        print(json.dumps({"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}), flush=True)


def main() -> None:
    """Be what the first argument says."""
    what, home, *arguments = sys.argv[1:]
    tune_interpreter()  # as the command line does
    if what == "key":
        made = BspHome(Path(home))
        print(made.key.hex())
        made.close()
    elif what == "prepare":
        asyncio.run(prepare(Path(home), bytes.fromhex(arguments[0]), int(arguments[1]), int(arguments[2])))
    elif what == "receive":
        asyncio.run(receive(Path(home), int(arguments[0])))
    else:
        asyncio.run(send(Path(home), arguments[0]))


if __name__ == "__main__":
    main()
