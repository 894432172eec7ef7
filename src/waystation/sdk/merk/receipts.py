"""Sends receipts for messages that the program has taken: collects ids for a moment, and sends them sealed.

``MerkClient`` has one. A receipt goes to senders of bound messages only and gets no receipt. One that finds nobody goes
again a few times: the sender's node may have lost its link to ours, as after a restart of either. Many unknown senders
cost bounded tables and a few key questions each, and delay nobody else's receipts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from waystation.protocols.merk.payload.contents import RECEIPT_IDS_MAX, Receipt
from waystation.sdk.errors import WaystationError

__all__ = ["AGAIN_IDS_MAX", "AGAIN_MAX", "AGAIN_S", "BATCH_S", "SENDERS_MAX", "Receipts"]

BATCH_S: Final = 0.2  # MERK-RECEIPT: at most a second
SENDERS_MAX: Final = 256
"""Senders whose receipts wait; beyond it those of new ones are not sent."""
AGAIN_S: Final = (2.0, 6.0, 20.0)
"""Pauses before a receipt that has found nobody goes again; nodes that name each other are linked again within 10 s."""
AGAIN_MAX: Final = 64
"""Senders whose receipts go again; beyond it those of others do not."""
AGAIN_IDS_MAX: Final = 1_024
"""Messages of one sender whose receipts go again."""


class Receipts:
    """What is to be receipted."""

    def __init__(self, send: Callable[[bytes, Receipt], Awaitable[bool]]) -> None:
        """Send through ``send``, which gets the recipient's key and the content, and returns whether somebody had it.

        It may raise WaystationError, which counts as nobody.
        """
        self._send = send
        self._waiting: dict[bytes, list[bytes]] = {}
        self._task: asyncio.Task[None] | None = None
        self._again: dict[bytes, list[bytes]] = {}
        self._repeating: set[asyncio.Task[None]] = set()

    @property
    def repeating_count(self) -> int:
        """How many senders have receipts that go again."""
        return len(self._again)

    def add(self, sender: bytes, message_id: bytes) -> None:
        """Receipt a message of ``sender`` soon."""
        if sender not in self._waiting and len(self._waiting) >= SENDERS_MAX:
            return
        self._waiting.setdefault(sender, []).append(message_id)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """Send no more."""
        tasks = [*self._repeating, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def flush(self) -> None:
        """Send what waits now, but for what goes again."""
        waiting, self._waiting = self._waiting, {}
        for sender, ids in waiting.items():
            if left := await self._send_all(sender, ids):
                self._send_again(sender, left)

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(BATCH_S)
            await self.flush()

    async def _send_all(self, sender: bytes, ids: list[bytes]) -> list[bytes]:
        """Send receipts for all of these; return those that have found nobody."""
        for first in range(0, len(ids), RECEIPT_IDS_MAX):
            try:
                is_reached = await self._send(sender, Receipt(tuple(ids[first : first + RECEIPT_IDS_MAX])))
            except WaystationError:
                is_reached = False
            if not is_reached:
                return ids[first:]
        return []

    def _send_again(self, sender: bytes, ids: list[bytes]) -> None:
        if sender in self._again:
            self._again[sender] += ids[: AGAIN_IDS_MAX - len(self._again[sender])]
        elif len(self._again) < AGAIN_MAX:
            self._again[sender] = ids[:AGAIN_IDS_MAX]
            task = asyncio.get_running_loop().create_task(self._repeat(sender))
            self._repeating.add(task)
            task.add_done_callback(self._repeating.discard)

    async def _repeat(self, sender: bytes) -> None:
        try:
            for pause_s in AGAIN_S:
                await asyncio.sleep(pause_s)
                ids, self._again[sender] = self._again[sender], []
                left = await self._send_all(sender, ids)
                self._again[sender] = (left + self._again[sender])[:AGAIN_IDS_MAX]
                if not self._again[sender]:
                    return
        finally:
            del self._again[sender]
