"""Three hundred clients lose their nodes at one moment, come back, and reach each other again.

Both nodes are killed and started again a while later, on the same ports. Every client must be back within the pause
that its own backoff may have reached, and none may be refused for good. All of them come from one address here, where
a node takes 10 new connections a second: the law runs with ``limits.enabled = false``, as all of these do, and says
nothing of that limit.
"""

import asyncio
import random
import resource
from pathlib import Path
from typing import Final

import uvloop

from soak.merk_nodes import MerkNode, mesh, start_all, until_meshed
from waystation.protocols.merk.keys import Keys
from waystation.sdk.merk import Connected, Disconnected, MerkClient, Mode, Outcome
from waystation.sdk.merk_standing import STABLE_S

CLIENTS: Final = 300
ROUNDS: Final = 2
DOWN_S: Final = (0.5, 4.0)
RETRY_FIRST_S: Final = 0.5
RETRY_CAP_S: Final = 30.0
"""Both as the SDK has them."""
SLACK_S: Final = 8.0
"""For 300 handshakes on both sides of one processor."""
REACHED_S: Final = 15.0


def law(folder: Path, seed: int, clients: int = CLIENTS, rounds: int = ROUNDS) -> str:
    """Kill the nodes so often; return how long it took until all were back."""
    _allow_files(4 * clients)
    rng = random.Random(seed)
    nodes = mesh(folder, "line", 2)
    try:
        told = uvloop.run(_live(nodes, rng, clients, rounds))
        for node in nodes:
            node.stop()
            assert "Traceback" not in node.log(), node.log()[-4_000:]
    finally:
        for node in nodes:
            node.close()
    return f"{clients} clients of two nodes, no rate limits; {told}"


class _Member:
    """One client of the herd, and when it was connected last."""

    def __init__(self, number: int, node: MerkNode, seed: int) -> None:
        self.keys = Keys.from_seeds(number.to_bytes(32, "big"), (number + 1).to_bytes(32, "big"))
        self.client = MerkClient(
            node.url,
            keys=self.keys,
            only=True,
            on_event=self._on_event,
            rng=random.Random(seed),
            retry_first_s=RETRY_FIRST_S,
            retry_cap_s=RETRY_CAP_S,
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
    herd = [_Member(number, nodes[number % 2], rng.getrandbits(64)) for number in range(1, count + 1)]
    for member in herd:
        member.client.start()
    for member in herd:
        await member.client.reached()
    told = [await _kill(nodes, herd, rng.uniform(*DOWN_S)) for _ in range(rounds)]
    for member in herd:
        await member.client.aclose()
    return "; ".join(told)


async def _kill(nodes: list[MerkNode], herd: list[_Member], down_s: float) -> str:
    """Kill both nodes for a while; see that everybody is back in time and reaches the next one; return figures."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(STABLE_S + 1)  # until a connection has lived long enough to begin with the first pause again
    for member in herd:
        member.tries_count = 0
    killed_at = loop.time()
    await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
    await asyncio.sleep(down_s)
    await start_all(nodes)
    up_at = loop.time()
    # A pause is at most twice what all pauses before it took together, and begins before the node is up.
    within_s = min(RETRY_CAP_S, 2 * (up_at - killed_at + RETRY_FIRST_S)) + SLACK_S
    async with asyncio.timeout(within_s):
        while True:
            back = [member.back_at for member in herd if member.back_at is not None and member.back_at > killed_at]
            if len(back) == len(herd):
                break
            await asyncio.sleep(0.05)
    delays = sorted(at - up_at for at in back)
    assert await _all_reach_the_next(herd) <= REACHED_S
    return (
        f"down {up_at - killed_at:.1f} s, half back {delays[len(delays) // 2]:.1f} s and all {delays[-1]:.1f} s later, "
        f"at most {max(member.tries_count for member in herd)} tries"
    )


async def _all_reach_the_next(herd: list[_Member]) -> float:
    """Let everybody write to the next one, at the other node, until it is delivered; return the seconds it took."""
    began = asyncio.get_running_loop().time()

    async def write(member: _Member, other: _Member) -> None:
        while True:
            if await member.client.send_text(other.keys.signing.public, "hi", mode=Mode.SIGNED) is Outcome.DELIVERED:
                return
            await asyncio.sleep(0.1)

    async with asyncio.timeout(2 * REACHED_S):
        await asyncio.gather(*(write(*pair) for pair in zip(herd, herd[1:] + herd[:1], strict=True)))
    return asyncio.get_running_loop().time() - began


def _allow_files(count: int) -> None:
    """Let this process and the nodes that it starts have so many descriptors, if the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard >= 0 else count, hard))
