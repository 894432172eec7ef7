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

from soak.invariants import ended_well
from soak.merk.nodes import MerkNode, mesh, start_all, until_meshed
from waystation.protocols.merk.keys import Keys
from waystation.sdk.backoff import CAP_S, FIRST_S, STABLE_S
from waystation.sdk.merk import Connected, Disconnected, MerkClient, Mode

CLIENTS: Final = 300
ROUNDS: Final = 2
DOWN_S: Final = (0.5, 4.0)
"""Both as the SDK has them."""
SLACK_S: Final = 8.0
"""For 300 handshakes on both sides of one processor."""
REACHED_S: Final = 15.0


def check(folder: Path, seed: int, clients: int = CLIENTS, rounds: int = ROUNDS) -> str:
    """Kill the nodes so often; return how long it took until all were back."""
    _allow_files(4 * clients)
    rng = random.Random(seed)
    nodes = mesh(folder, "line", 2)
    with ended_well(*nodes):
        figures = uvloop.run(_live(nodes, rng, clients, rounds))
    return f"{clients} clients of two nodes, no rate limits; {figures}"


class _Client:
    """One client, and when it was connected last."""

    def __init__(self, number: int, node: MerkNode, seed: int) -> None:
        self.keys = Keys.from_seeds(number.to_bytes(32, "big"), (number + 1).to_bytes(32, "big"))
        self.sdk = MerkClient(
            node.url,
            keys=self.keys,
            only=True,
            on_event=self._on_event,
            rng=random.Random(seed),
            retry_first_s=FIRST_S,
            retry_cap_s=CAP_S,
        )
        self.back_at: float | None = None
        self.tries_count = 0

    def _on_event(self, event: object) -> None:
        if isinstance(event, Connected):
            self.back_at = asyncio.get_running_loop().time()
        elif isinstance(event, Disconnected):
            self.back_at = None
            self.tries_count += 1


async def _live(nodes: list[MerkNode], rng: random.Random, count: int, rounds: int) -> str:
    await start_all(nodes)
    await until_meshed(nodes)
    clients = [_Client(number, nodes[number % 2], rng.getrandbits(64)) for number in range(1, count + 1)]
    for client in clients:
        client.sdk.start()
    for client in clients:
        await client.sdk.reached()
    figures = [await _kill(nodes, clients, rng.uniform(*DOWN_S)) for _ in range(rounds)]
    for client in clients:
        await client.sdk.aclose()
    return "; ".join(figures)


async def _kill(nodes: list[MerkNode], clients: list[_Client], down_s: float) -> str:
    """Kill both nodes for a while; see that every client is back in time and reaches the next one; return figures."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(STABLE_S + 1)  # until a connection has lived long enough to begin with the first pause again
    for client in clients:
        client.tries_count = 0
    killed_at = loop.time()
    await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
    await asyncio.sleep(down_s)
    await start_all(nodes)
    up_at = loop.time()
    # A pause is at most twice what all pauses before it took together, and begins before the node is up.
    within_s = min(CAP_S, 2 * (up_at - killed_at + FIRST_S)) + SLACK_S
    async with asyncio.timeout(within_s):
        while True:
            back = [client.back_at for client in clients if client.back_at is not None and client.back_at > killed_at]
            if len(back) == len(clients):
                break
            await asyncio.sleep(0.05)
    delays = sorted(at - up_at for at in back)
    assert await _all_reach_the_next(clients) <= REACHED_S
    return (
        f"down {up_at - killed_at:.1f} s, half back {delays[len(delays) // 2]:.1f} s and all {delays[-1]:.1f} s later, "
        f"at most {max(client.tries_count for client in clients)} tries"
    )


async def _all_reach_the_next(clients: list[_Client]) -> float:
    """Let every client write to the next one, at the other node, until it is delivered; return the seconds it took."""
    began = asyncio.get_running_loop().time()

    async def write(client: _Client, other: _Client) -> None:
        while True:
            if (await client.sdk.send(other.keys.signing.public, "hi", mode=Mode.SIGNED)).ok:
                return
            await asyncio.sleep(0.1)

    async with asyncio.timeout(2 * REACHED_S):
        await asyncio.gather(*(write(*pair) for pair in zip(clients, clients[1:] + clients[:1], strict=True)))
    return asyncio.get_running_loop().time() - began


def _allow_files(count: int) -> None:
    """Let this process and the nodes that it starts have so many descriptors, if the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard >= 0 else count, hard))
