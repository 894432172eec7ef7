"""Three nodes in a line, then in a ring; one after the other is killed and started again while people write and move.

Nobody is handed anything twice; every message has one outcome; "delivered" is true; two people whom no trouble has
touched reach each other, whatever happens to the third node; nobody at all is reported as such. Once the trouble is
over, everybody reaches everybody within seconds, and files of 5 MiB arrive whole.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from soak.merk_nodes import SHAPES, MerkNode, mesh, start_all, until_meshed
from soak.merk_people import Ledger, Person
from waystation.sdk.merk import Mode, Outcome

FILE_BYTES: Final = 5 * 1_024 * 1_024
STAYERS: Final = 6
MOVERS: Final = 3
DOWN_S: Final = 1.0
"""At most, besides what a start takes."""
KILL_EVERY_S: Final = (0.3, 6.0)
SAY_EVERY_S: Final = 0.25
MOVE_EVERY_S: Final = 4.0
FILE_EVERY_S: Final = 1.0
HEALED_S: Final = 15.0
NOBODY: Final = 0.1
"""Share of messages to keys that nobody has."""


def law(folder: Path, seed: int, kills: int = 30) -> str:
    """Kill so many times in each shape; return what happened."""
    rng = random.Random(seed)
    return "; ".join(f"{shape}: {kills} kills, {_try(folder, shape, rng, kills)}" for shape in SHAPES)


def _try(folder: Path, shape: str, rng: random.Random, kills: int) -> str:
    file = folder / "file.bin"
    file.write_bytes(os.urandom(FILE_BYTES))
    nodes = mesh(folder, shape)
    ledger = Ledger(file)
    people = [Person(number, ledger, nodes, random.Random(rng.random())) for number in range(STAYERS + MOVERS)]
    try:
        healed_s = asyncio.run(_live(nodes, people, rng, kills))
        for node in nodes:
            node.stop()
            assert "Traceback" not in node.log(), node.log()[-4_000:]
    finally:
        for node in nodes:
            node.close()
    moves = sum(person.moves_count for person in people)
    return f"{moves} moves, all well {healed_s:.1f} s later: {ledger.judge()}"


async def _live(nodes: list[MerkNode], people: list[Person], rng: random.Random, kills: int) -> float:
    """Let people live through the trouble; return how long it took until all was well behind it."""
    await start_all(nodes)
    await until_meshed(nodes)
    for person in people:
        await person.come()
        await person.client.reached()
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for habit in _habits(people, rng, over):
            group.create_task(habit)
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(*KILL_EVERY_S))
            await _kill(rng.choice(nodes), people, rng.uniform(0, DOWN_S))
        over.set()
    healed_s = await _all_well(nodes, people)
    for person in people:
        await person.go()
    return healed_s


async def _kill(node: MerkNode, people: list[Person], down_s: float) -> None:
    for person in people:
        if person.node is node:
            person.disturb()
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(down_s)
    await asyncio.to_thread(node.start)
    for person in people:
        if person.node is node:
            person.disturb()


def _habits(people: list[Person], rng: random.Random, over: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
    stayers, movers = people[:STAYERS], people[STAYERS:]
    talking = [_talk(person, people, random.Random(rng.random()), over) for person in people]
    moving = [_move(person, random.Random(rng.random()), over) for person in movers]
    sending = [_send_files(stayers[one], stayers[other], over) for one, other in ((0, 1), (1, 2), (2, 0))]
    return talking + moving + sending


async def _talk(person: Person, people: list[Person], rng: random.Random, over: asyncio.Event) -> None:
    """Write to others without waiting for outcomes; what is under way in the end is waited for."""
    others = [other for other in people if other is not person]
    async with asyncio.TaskGroup() as group:
        while not await _is_over(over, rng.expovariate(1 / SAY_EVERY_S)):
            if rng.random() < NOBODY:
                group.create_task(person.say(None, mode=Mode.SIGNED))
            else:
                mode = rng.choice([Mode.ENCRYPTED, Mode.ENCRYPTED, Mode.SIGNED])
                group.create_task(person.say(rng.choice(others), kind=rng.choice(["text", "json"]), mode=mode))


async def _move(person: Person, rng: random.Random, over: asyncio.Event) -> None:
    while not await _is_over(over, rng.expovariate(1 / MOVE_EVERY_S)):
        await person.move()


async def _send_files(person: Person, other: Person, over: asyncio.Event) -> None:
    while not await _is_over(over, FILE_EVERY_S):
        await person.say(other, kind="file")


async def _is_over(over: asyncio.Event, pause_s: float) -> bool:
    """Return True once it is over, False after the pause."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), pause_s)
    return over.is_set()


async def _all_well(nodes: list[MerkNode], people: list[Person]) -> float:
    """See that everybody reaches everybody soon; return how many seconds that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(HEALED_S):
        await until_meshed(nodes, HEALED_S)
        pairs = [(one, other) for one in people for other in people if one is not other]
        await asyncio.gather(*(one.reach(other) for one, other in pairs))
    took_s = loop.time() - began
    for one, other in zip(people, people[1:] + people[:1], strict=True):
        assert await one.say(other, kind="file") is Outcome.DELIVERED
        assert await one.say(None, mode=Mode.SIGNED) is Outcome.UNKNOWN_TARGET
    return took_s
