"""Tests that Strata readers which page, disconnect and resume under full publishing load miss no packet.

Each reader requests pages of seven, then follows live. At random it disconnects and resumes with its last cursor. A
packet may arrive twice in one case only (specs/strata.md 13.1). It arrived live without a cursor while history was
incomplete, and then the connection ended.
"""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import orjson

from bench.strata.driver import Client, Publisher, connect, drop, publish_frames
from bench.websocket import client_frame
from soak.invariants import ended_well, eventually
from soak.strata.nodes import StrataNode, id_of

PAGE = 7
STAY_MIN, STAY_MAX = 5, 600
"""After so many packets a reader drops its connection, most often early."""


def check(folder: Path, seed: int, readers: int = 50, packets: int = 10_000, within_s: float = 600) -> str:
    """Try it with so many readers and packets; return what happened."""
    frames = publish_frames(packets, int(time.time()))
    node = StrataNode(folder / "home")
    with ended_well(node):
        drops, again = asyncio.run(_read_and_publish(node.start().url, seed, readers, frames, within_s))
    return f"{readers} readers, {packets} packets each, {drops} drops, {again} came again as allowed, none missed"


async def _read_and_publish(url: str, seed: int, count: int, frames: list[bytes], within_s: float) -> tuple[int, int]:
    wanted = {id_of(each) for each in frames}
    readers = [Reader(url, wanted, random.Random(seed * 1_000 + number)) for number in range(count)]
    tasks = [asyncio.create_task(reader.read()) for reader in readers]
    publisher = Publisher(frames, 32)
    try:
        await publisher.begin(url, 1)
        await eventually(lambda: publisher.done.is_set() or _failed(tasks), "the end of publishing", within_s)
        await eventually(
            lambda: all(reader.missing == 0 for reader in readers) or _failed(tasks),
            "every reader's last packet",
            within_s,
        )
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await publisher.close()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert publisher.acknowledged == wanted
    assert not [reader.faults for reader in readers if reader.faults]
    return sum(reader.drops for reader in readers), sum(reader.again for reader in readers)


def _failed(tasks: list[asyncio.Task[None]]) -> bool:
    return any(task.done() for task in tasks)


class Reader:
    """One reader over many connections."""

    def __init__(self, url: str, wanted: set[str], rng: random.Random) -> None:
        self.url = url
        self.drops = 0
        self.again = 0
        self.faults: list[str] = []
        self._wanted = wanted
        self._rng = rng
        self._seen: dict[str, tuple[int, bool]] = {}
        """Connection and whether it bore a cursor, by id, of the last delivery."""
        self._cursor: str | None = None
        self._left = 0
        self._client: Client | None = None
        self._dropped = asyncio.Event()

    @property
    def missing(self) -> int:
        """How many packets have not come yet."""
        return len(self._wanted) - len(self._seen)

    async def read(self) -> None:
        """Connect again and again."""
        while True:
            self._dropped.clear()
            self._left = int(STAY_MIN + (STAY_MAX - STAY_MIN) * self._rng.random() ** 2)
            (self._client,) = await connect(self.url, 1)
            self._client.on_messages = self._on_messages
            self._ask()
            try:
                await self._dropped.wait()
            finally:
                await drop(self._client)
            await asyncio.sleep(self._rng.random() * 0.05)

    def _ask(self) -> None:
        assert self._client is not None
        filters: dict[str, Any] = {"limit": PAGE}
        if self._cursor is not None:
            filters["cursor"] = self._cursor
        message = {"type": "SUBSCRIBE", "subscription_id": "s", "filters": filters, "want_eose": True}
        self._client.transport.write(client_frame(orjson.dumps(message)))

    def _on_messages(self, messages: list[bytes]) -> None:
        for text in messages:
            if self._dropped.is_set():
                return  # what is still on its way was never taken
            message = orjson.loads(text)
            if message["type"] == "EVENT":
                self._take(message)
            elif message["type"] == "EOSE":
                self._cursor = message["cursor"]
                if message["has_more"]:
                    self._ask()
            elif message["type"] == "ERROR":
                self.faults.append(text.decode())

    def _take(self, message: dict[str, Any]) -> None:
        name, cursor = message["packet"]["packet_id"], message.get("cursor")
        before = self._seen.get(name)
        if before is not None:
            self.again += 1
            connection, bore_cursor = before
            if bore_cursor or connection == self.drops:
                self.faults.append(f"{name} came twice: connection {connection} and {self.drops}, cursor {bore_cursor}")
        self._seen[name] = (self.drops, cursor is not None)
        self._cursor = cursor or self._cursor
        self._left -= 1
        if self._left <= 0 and self.missing:
            assert self._client is not None
            self.drops += 1
            self._client.transport.abort()
            self._dropped.set()
