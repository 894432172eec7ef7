"""The load of one protocol: clients that write to each other through one node, a few messages a second, for long."""

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from soak.ledger import Claim, Ledger
from tools.served import ServedNode
from waystation.sdk.errors import WaystationError
from waystation.sdk.outcome import Sent

__all__ = ["Load"]

T = TypeVar("T")

PER_S: Final = (3.0, 6.0)
UNDER_WAY_MAX: Final = 40
"""Messages without an end; while so many wait none is added."""


class Load(ABC):
    """Clients of one protocol; ``open`` them, let ``run`` send until it is cancelled, and ``close`` them."""

    protocol: ClassVar[str]
    disconnects: ClassVar[tuple[type, ...]]
    """Events of a client that has no connection."""
    under_way_max: ClassVar[int] = UNDER_WAY_MAX

    def __init__(self, folder: Path, ledger: Ledger, rng: random.Random) -> None:
        """Describe clients.

        Args:
            folder: Where their homes go.
            ledger: Where everything is written down.
            rng: Draws the moments.
        """
        self.folder = folder / self.protocol
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ledger = ledger
        self._rng = rng
        self._stack = contextlib.AsyncExitStack()
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def settings(self) -> dict[str, object]:
        """Settings that the node needs for these clients."""
        return {}

    @property
    def tables(self) -> str:
        """Configuration that the node needs, as TOML."""
        return ""

    @abstractmethod
    async def open(self, node: ServedNode) -> None:
        """Open clients and make them known to each other; the node listens."""

    @abstractmethod
    async def send(self, serial: str) -> Sent[Any]:
        """Send a message to the other client, and return its last outcome."""

    def kept_at_node(self, store: Path) -> set[str] | None:
        """Return the serials of what the ended node has in its store; None where it need not keep what has arrived."""
        del store
        return None

    @property
    def under_way_count(self) -> int:
        """How many messages have no end yet."""
        return len(self._sending)

    async def close(self) -> None:
        """End everything."""
        for task in list(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self._stack.aclose()

    async def run(self) -> None:
        """Send until cancelled; messages under way go on."""
        while True:
            await asyncio.sleep(1 / self._rng.uniform(*PER_S))
            if len(self._sending) < self.under_way_max:
                self._begin(self._send())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def enter(self, client: contextlib.AbstractAsyncContextManager[T]) -> T:
        """Open a client; it is closed with the others."""
        return await self._stack.enter_async_context(client)

    async def read(self, messages: AsyncIterator[Any]) -> None:
        """Note each message of a recipient, whose text is its serial."""
        async for message in messages:
            self._ledger.arrive(message.text or "")

    def on_event(self, event: object) -> None:
        """Note that a client has no connection."""
        if isinstance(event, self.disconnects):
            self._ledger.disconnect(self.protocol)

    def receive(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what receives until the clients are closed."""
        task = asyncio.get_running_loop().create_task(work)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    async def _send(self) -> None:
        serial = self._ledger.begin(self.protocol)
        try:
            sent = await self.send(serial)
        except WaystationError as error:  # what raises was not attempted
            self._ledger.end(serial, Claim.NOT_SENT, type(error).__name__)
        else:
            self._ledger.end(serial, self.claim_of(sent), self.word_of(sent))

    def claim_of(self, sent: Sent[Any]) -> Claim:
        """Return what an outcome says."""
        if sent.ok:
            return Claim.ACKNOWLEDGED
        return Claim.NOT_SENT if sent.retry_safe else Claim.UNKNOWN

    def word_of(self, sent: Sent[Any]) -> str:
        """Return the SDK's word for an outcome."""
        word: str = sent.outcome.value
        return word
