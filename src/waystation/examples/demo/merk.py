"""The MERK part of ``waystation demo``: two linked nodes, encrypted messages and a file, and an unknown recipient.

``examples.demo.run`` calls ``run`` with two started nodes. Sender and recipient are at different ones, so the frames
cross the link. Each step checks its result.
"""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError
from waystation.sdk.merk import MerkClient, Message, Mode, Outcome, ReceivedFile
from waystation.sdk.merk import open as open_merk
from waystation.transport.http_get import http_get

__all__ = ["MerkDemo"]

STEP_TIMEOUT_S: Final = 30.0
TEXTS: Final = 40
LOOK_S: Final = 0.1
FILE_BYTES: Final = 5 * 1_048_576

_rng = random.SystemRandom()


class MerkDemo:
    """Plays the steps against two running nodes that are linked."""

    def __init__(
        self, folder: Path, say: Callable[[str, str], None], expect: Callable[[bool, str], None], near: str, far: str
    ) -> None:
        """Prepare.

        Args:
            folder: Where keys and files lie.
            say: Shows who did what.
            expect: Notes what is not as promised.
            near: WebSocket address of one node.
            far: That of the other.
        """
        self._folder = folder
        self._say = say
        self._expect = expect
        self._near = near
        self._far = far

    async def run(self, stay: Callable[[], Awaitable[None]] | None) -> None:
        """Play every step; with ``stay`` let people try the page, with somebody who answers, until it returns."""
        async with asyncio.timeout(6 * STEP_TIMEOUT_S):
            await self._wait_for_link()
            async with self._client("erin", self._near) as erin, self._client("frank", self._far) as frank:
                arrived = frank.messages()
                await self._talk(erin, frank.public_key, arrived)
                await self._send_file(erin, frank.public_key, arrived)
                await self._call_nobody(erin)
            await self._look_at_page()
        if stay is not None:
            await self._answer_until(stay)

    def page(self, recipient: bytes | None = None) -> str:
        """Return the address of the page, which fills in a recipient's key."""
        base = "http" + self._near.removeprefix("ws") + "/"
        return base if recipient is None else f"{base}#to={recipient.hex()}"

    @contextlib.asynccontextmanager
    async def _client(self, name: str, relay: str) -> AsyncIterator[MerkClient]:
        async with open_merk(self._folder / name, relay, only=True) as client:
            yield client

    async def _wait_for_link(self) -> None:
        while True:
            reply = await http_get(f"{self.page()}.well-known/merk-mesh.json")
            nodes = json.loads(reply.body)["nodes"]
            if nodes:
                break
            await asyncio.sleep(LOOK_S)
        self._say("nodes", f"linked: each has proved its key to the other ({nodes[0]['trust']})")

    async def _talk(self, erin: MerkClient, frank: bytes, arrived: AsyncIterator[Message]) -> None:
        taken = []
        for number in range(TEXTS):
            began = time.perf_counter()
            outcome = (await erin.send(frank, f"hello {number}")).outcome
            taken.append((time.perf_counter() - began) * 1_000)
            message = await anext(arrived)
            self._expect(outcome.ok, f"a text between two nodes was {outcome.sentence}")
            self._expect(message.text == f"hello {number}", f"{message.text!r} arrived, not hello {number}")
            self._expect(message.auth.value == "bound", f"a message arrived as {message.auth.value}")
        taken.sort()
        self._say("erin", f"found frank's encryption key in the directory and sent {TEXTS} texts, encrypted end to end")
        self._say("frank", "on the other node has them all, and knows who wrote them and that they were meant for him")
        self._say("nodes", f"notified erin of each delivery, {taken[len(taken) // 2]:.1f} ms after sending (median)")

    async def _send_file(self, erin: MerkClient, frank: bytes, arrived: AsyncIterator[Message]) -> None:
        path = self._folder / "photo.bin"
        path.write_bytes(_rng.randbytes(FILE_BYTES))
        began = time.perf_counter()
        outcome = (await erin.send(frank, path)).outcome
        message = await anext(arrived)
        took_s = time.perf_counter() - began
        self._expect(outcome.ok, f"a file between two nodes was {outcome.sentence}")
        received = message.content
        if isinstance(received, ReceivedFile):
            same = await asyncio.to_thread(received.read_bytes) == await asyncio.to_thread(path.read_bytes)
            self._expect(same, "another file arrived than was sent")
            received.discard()
        else:
            self._expect(False, "no file arrived")
        self._say("erin", f"sent a file of {FILE_BYTES >> 20} MiB in parts, encrypted: {took_s:.1f} s, the same bytes")

    async def _call_nobody(self, erin: MerkClient) -> None:
        outcome = (await erin.send(_rng.randbytes(32), "is anybody there?", mode=Mode.SIGNED)).outcome
        self._expect(outcome is Outcome.UNKNOWN_TARGET, f"a message to nobody was {outcome.sentence}")
        self._say("erin", f"wrote to a key that no client has: {outcome.sentence}")

    async def _look_at_page(self) -> None:
        for path in ("", "sdk/merk.js"):
            reply = await http_get(self.page() + path)
            self._expect(reply.status == 200, f"{self.page()}{path} answers {reply.status}")
        self._say("page", f"{self.page()} is a client for browsers; `waystation demo --stay` leaves it open for you")

    async def _answer_until(self, stay: Callable[[], Awaitable[None]]) -> None:
        """Answer whoever writes, until somebody has seen enough."""

        async def answer(grace: MerkClient) -> None:
            async for message in grace.messages():
                self._say("grace", f"got {message.text or 'something'!r} ({message.auth.value}) and answers")
                with contextlib.suppress(HostError):
                    await grace.send(message.sender, f"you said: {message.text or 'something'}")

        async with self._client("grace", self._far) as grace:
            self._say("grace", "is on the other node and answers whoever writes to her:")
            self._say("page", f"open {self.page(grace.public_key)}   (Ctrl-C ends the demo)")
            answering = asyncio.create_task(answer(grace))
            try:
                await stay()
            finally:
                answering.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await answering
