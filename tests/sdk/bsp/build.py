"""BSP devices in folders of a test, and what tests wait for."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device import dials, orders
from waystation.sdk.bsp import BspPeer, Delivered, Group, deps_v1_body
from waystation.sdk.bsp import peer as bsp_peer

WITHIN_S = 10.0
"""A loaded machine takes its time; what works takes milliseconds."""


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make devices look at their homes, and dial again, after moments instead of a second."""
    for module in (orders, bsp_peer):
        monkeypatch.setattr(module, "LOOK_MS", 20)
    monkeypatch.setattr(dials, "RETRY_FIRST_MS", 20)
    monkeypatch.setattr(bsp_peer, "_BUSY_WAIT_S", 0.05)


def peer_in(folder: Path, number: int = 1, **options: Any) -> BspPeer:
    """Return a device in a folder, with keys from a number."""
    return BspPeer(folder, rng=random.Random(number), **options)


def key_of(number: int) -> PublicKey:
    """Return the key that ``peer_in`` makes from a number."""
    return KeyPair.from_seed(random.Random(number).randbytes(32)).public


async def acquaint(first: BspPeer, second: BspPeer, group: Group) -> None:
    """Make two devices know each other, be members of a group, and share it."""
    for one, other in ((first, second), (second, first)):
        await one.meet(other.key)
        await one.join(group)
        await one.share(group, other.key)


@contextlib.asynccontextmanager
async def devices(folder: Path, count: int, **options: Any) -> AsyncIterator[list[BspPeer]]:
    """Open so many devices, each in its own folder."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(peer_in(folder / str(number), number, **options))
            for number in range(1, count + 1)
        ]


async def next_event(news: Any, wanted: Callable[[Any], bool]) -> Any:
    """Return the next event that is wanted."""
    async with asyncio.timeout(WITHIN_S):
        async for event in news:
            if wanted(event):
                return event
    raise AssertionError("the news ended")


async def delivered(news: Any, count: int) -> list[bytes]:
    """Return the identifiers of the next ``count`` messages that are delivered."""
    return [(await next_event(news, lambda event: isinstance(event, Delivered))).message_id for _ in range(count)]


def bodies(peer: BspPeer, group: Group) -> list[bytes | None]:
    """Return the bodies of a group in the order of delivery."""
    return [message.body for message in peer.history(group)]


def chained(text: bytes, *dependencies: bytes) -> bytes:
    """Return the body of a deps_v1 message."""
    return deps_v1_body(dependencies, text)


async def until(condition: Callable[[], Any]) -> None:
    """Return once something holds that no event tells."""
    turn, loop = asyncio.Event(), asyncio.get_running_loop()
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            turn.clear()
            loop.call_later(0.01, turn.set)
            await turn.wait()
