"""Sends receipts for messages that the program has taken: collects ids for a moment, and sends them sealed.

``MerkClient`` has one. A receipt goes to senders of bound messages only, is not repeated when it does not arrive, and
gets no receipt. Many unknown senders cost a bounded table and one key question each.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from waystation.protocols.merk.payload.contents import RECEIPT_IDS_MAX, Receipt
from waystation.sdk.errors import WaystationError

__all__ = ["BATCH_S", "SENDERS_MAX", "Receipts"]

BATCH_S: Final = 0.2  # MERK-RECEIPT: at most a second
SENDERS_MAX: Final = 256
"""Senders whose receipts wait; beyond it those of new ones are not sent."""


class Receipts:
    """What is to be receipted."""

    def __init__(self, send: Callable[[bytes, Receipt], Awaitable[object]]) -> None:
        """Send through ``send``, which gets the recipient's key and the content."""
        self._send = send
        self._waiting: dict[bytes, list[bytes]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, sender: bytes, message_id: bytes) -> None:
        """Receipt a message of ``sender`` soon."""
        if sender not in self._waiting and len(self._waiting) >= SENDERS_MAX:
            return
        self._waiting.setdefault(sender, []).append(message_id)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """Send no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def flush(self) -> None:
        """Send what waits now."""
        waiting, self._waiting = self._waiting, {}
        for sender, ids in waiting.items():
            for first in range(0, len(ids), RECEIPT_IDS_MAX):
                try:
                    await self._send(sender, Receipt(tuple(ids[first : first + RECEIPT_IDS_MAX])))
                except WaystationError:
                    break  # the sender's key is unknown, or there is no relay: nobody waits for a receipt for ever

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(BATCH_S)
            await self.flush()
