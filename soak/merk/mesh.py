"""Tests three MERK nodes, in a line and then in a ring, that are killed and restarted while clients write and move.

No message arrives twice, each has one outcome, and "delivered" is true. Two clients untouched by a failure reach each
other, whatever happens to the third node. An unknown key is reported as unknown. After the failures every client
reaches every other within seconds, and files of 5 MiB arrive complete.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from soak.invariants import ended_well
from soak.merk.actors import Actor, Ledger
from soak.merk.nodes import SHAPES, MerkNode, mesh, start_all, until_meshed
from waystation.sdk.merk import Mode, Outcome

FILE_BYTES: Final = 5 * 1_024 * 1_024
STAYERS: Final = 6
MOVERS: Final = 3
DOWN_S: Final = 1.0
"""At most, besides what a start takes."""
KILL_EVERY_S: Final = (0.3, 6.0)
SEND_EVERY_S: Final = 0.25
MOVE_EVERY_S: Final = 4.0
FILE_EVERY_S: Final = 1.0
HEALED_S: Final = 15.0
UNKNOWN_SHARE: Final = 0.1
"""Share of messages to unknown keys."""


def check(folder: Path, seed: int, kills: int = 30) -> str:
    """Kill so many times in each shape; return what happened."""
    rng = random.Random(seed)
    return "; ".join(f"{shape}: {kills} kills, {_try(folder, shape, rng, kills)}" for shape in SHAPES)


def _try(folder: Path, shape: str, rng: random.Random, kills: int) -> str:
    file = folder / "file.bin"
    file.write_bytes(os.urandom(FILE_BYTES))
    nodes = mesh(folder, shape)
    ledger = Ledger(file)
    actors = [Actor(number, ledger, nodes, random.Random(rng.random())) for number in range(STAYERS + MOVERS)]
    with ended_well(*nodes):
        healed_s = asyncio.run(_live(nodes, actors, rng, kills))
    moves = sum(actor.moves_count for actor in actors)
    return f"{moves} moves, all well {healed_s:.1f} s later: {ledger.judge()}"


async def _live(nodes: list[MerkNode], actors: list[Actor], rng: random.Random, kills: int) -> float:
    """Let actors write during the failures; return how long it took until all was well afterwards."""
    await start_all(nodes)
    await until_meshed(nodes)
    for actor in actors:
        await actor.come()
        await actor.client.reached()
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for task in _behaviour(actors, rng, over):
            group.create_task(task)
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(*KILL_EVERY_S))
            await _kill(rng.choice(nodes), actors, rng.uniform(0, DOWN_S))
        over.set()
    healed_s = await _all_well(nodes, actors)
    for actor in actors:
        await actor.go()
    return healed_s


async def _kill(node: MerkNode, actors: list[Actor], down_s: float) -> None:
    for actor in actors:
        if actor.node is node:
            actor.disturb()
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(down_s)
    await asyncio.to_thread(node.start)
    for actor in actors:
        if actor.node is node:
            actor.disturb()


def _behaviour(actors: list[Actor], rng: random.Random, over: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
    stayers, movers = actors[:STAYERS], actors[STAYERS:]
    texting = [_send_texts(actor, actors, random.Random(rng.random()), over) for actor in actors]
    moving = [_move(actor, random.Random(rng.random()), over) for actor in movers]
    sending = [_send_files(stayers[one], stayers[other], over) for one, other in ((0, 1), (1, 2), (2, 0))]
    return texting + moving + sending


async def _send_texts(actor: Actor, actors: list[Actor], rng: random.Random, over: asyncio.Event) -> None:
    """Write to others without waiting for outcomes; what is under way in the end is waited for."""
    others = [other for other in actors if other is not actor]
    async with asyncio.TaskGroup() as group:
        while not await _is_over(over, rng.expovariate(1 / SEND_EVERY_S)):
            if rng.random() < UNKNOWN_SHARE:
                group.create_task(actor.send(None, mode=Mode.SIGNED))
            else:
                mode = rng.choice([Mode.ENCRYPTED, Mode.ENCRYPTED, Mode.SIGNED])
                group.create_task(actor.send(rng.choice(others), kind=rng.choice(["text", "json"]), mode=mode))


async def _move(actor: Actor, rng: random.Random, over: asyncio.Event) -> None:
    while not await _is_over(over, rng.expovariate(1 / MOVE_EVERY_S)):
        await actor.move()


async def _send_files(actor: Actor, other: Actor, over: asyncio.Event) -> None:
    while not await _is_over(over, FILE_EVERY_S):
        await actor.send(other, kind="file")


async def _is_over(over: asyncio.Event, pause_s: float) -> bool:
    """Return True once it is over, False after the pause."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), pause_s)
    return over.is_set()


async def _all_well(nodes: list[MerkNode], actors: list[Actor]) -> float:
    """See that every actor reaches every other soon; return how many seconds that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(HEALED_S):
        await until_meshed(nodes, HEALED_S)
        pairs = [(one, other) for one in actors for other in actors if one is not other]
        await asyncio.gather(*(one.reach(other) for one, other in pairs))
    took_s = loop.time() - began
    for one, other in zip(actors, actors[1:] + actors[:1], strict=True):
        assert await one.send(other, kind="file") is Outcome.DELIVERED
        assert await one.send(None, mode=Mode.SIGNED) is Outcome.UNKNOWN_TARGET
    return took_s
