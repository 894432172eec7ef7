"""Tests that three hundred MERK clients reconnect after both nodes are killed at once, and reach each other again.

The nodes restart on the same ports. Each client must reconnect within the maximum delay of its backoff, and none may be
refused for good. All clients share one IP address, where a node accepts 10 new connections per second by default. The
test therefore sets ``limits.enabled = false`` and does not cover that limit.
"""

import asyncio
import random
import resource
from pathlib import Path
from typing import Final

import uvloop

from soak.invariants import ended_well, eventually
from soak.merk.actors import Actor, Ledger
from soak.merk.nodes import MerkNode, mesh, start_all, until_meshed
from waystation.sdk.backoff import CAP_S, FIRST_S, STABLE_S
from waystation.sdk.merk import Mode

CLIENTS: Final = 300
ROUNDS: Final = 2
DOWN_S: Final = (0.5, 4.0)
SLACK_S: Final = 8.0
"""For 300 handshakes on both sides of one processor."""
REACHED_S: Final = 15.0


def check(folder: Path, seed: int, clients: int = CLIENTS, rounds: int = ROUNDS) -> str:
    """Kill the nodes so often; return how long it took until all were back."""
    _allow_files(4 * clients)
    nodes = mesh(folder, "line", 2)
    with ended_well(*nodes):
        figures = uvloop.run(_live(nodes, random.Random(seed), clients, rounds))
    return f"{clients} clients of two nodes, no rate limits; {figures}"


async def _live(nodes: list[MerkNode], rng: random.Random, count: int, rounds: int) -> str:
    await start_all(nodes)
    await until_meshed(nodes)
    ledger = Ledger(nodes[0].store)  # nobody sends a file
    actors = [
        Actor(number, ledger, nodes, random.Random(rng.random()), retry_s=(FIRST_S, CAP_S)) for number in range(count)
    ]
    for actor in actors:
        await actor.come()
    for actor in actors:
        await actor.client.reached()
    figures = [await _kill(nodes, actors, rng.uniform(*DOWN_S)) for _ in range(rounds)]
    for actor in actors:
        await actor.go()
    return "; ".join([*figures, ledger.judge()])


async def _kill(nodes: list[MerkNode], actors: list[Actor], down_s: float) -> str:
    """Kill both nodes for a while; see that every client is back in time and reaches the next one; return figures."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(STABLE_S + 1)  # until a connection has lived long enough to begin with the first pause again
    killed_at = loop.time()
    await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
    await asyncio.sleep(down_s)
    await start_all(nodes)
    up_at = loop.time()

    def back() -> list[float]:
        return sorted(each.back_at - up_at for each in actors if each.back_at is not None and each.back_at > killed_at)

    # A pause is at most twice what all pauses before it took together, and begins before the node is up.
    within_s = min(CAP_S, 2 * (up_at - killed_at + FIRST_S)) + SLACK_S
    await eventually(lambda: len(back()) == len(actors), "every client's return", within_s)
    delays = back()
    async with asyncio.timeout(REACHED_S):
        pairs = zip(actors, actors[1:] + actors[:1], strict=True)
        await asyncio.gather(*(one.reach(other, mode=Mode.SIGNED) for one, other in pairs))
    return (
        f"down {up_at - killed_at:.1f} s, half back {delays[len(delays) // 2]:.1f} s and all {delays[-1]:.1f} s later"
    )


def _allow_files(count: int) -> None:
    """Let this process and the nodes that it starts have so many descriptors, if the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard >= 0 else count, hard))
