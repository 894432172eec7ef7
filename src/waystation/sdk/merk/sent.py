"""What ``MerkClient.send`` returns: the outcome, the message's id, and a way to wait until its recipient has read it.

``protocols.merk.client.awaited_reads`` says which receipts count; ``ReadWaits`` ends the waiting for what was read.
"""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from waystation.protocols.merk.client.awaited_reads import AWAITED_READS_MAX, AwaitedReads, ReadStore
from waystation.protocols.merk.client.events import ReceiptArrived
from waystation.sdk.merk.outcome import Outcome
from waystation.sdk.outcome import Sent

__all__ = ["MessageRead", "ReadWaits", "SentMessage"]


class MessageRead(NamedTuple):
    """A recipient's program has taken a message of ours; the recipient signed that."""

    recipient: bytes
    """32-byte key."""
    message_id: bytes
    """16 bytes: ``SentMessage.id``."""


@dataclass(frozen=True, slots=True)
class SentMessage(Sent[Outcome]):
    """The end of one ``send``."""

    id: bytes = field(kw_only=True)
    """16 bytes; the recipient's ``Message.id`` is the same. Zero bytes where nothing was sent."""
    reading: "asyncio.Future[None] | None" = field(default=None, kw_only=True, repr=False, compare=False)
    """Done with the receipt; None where none can come."""

    async def read(self, timeout_s: float = 30.0) -> bool:
        """Wait until the recipient's program has taken the message, and return whether it has.

        False after ``timeout_s``, and at once where no receipt can come: the message was not sent, was not encrypted in
        the bound form, or is a client of the original's to read.
        """
        if self.reading is None:
            return False
        await asyncio.wait([self.reading], timeout=timeout_s)
        return self.reading.done() and not self.reading.cancelled()


class ReadWaits:
    """Messages that may still be read."""

    def __init__(self, store: ReadStore | None = None, count_max: int = AWAITED_READS_MAX) -> None:
        """Begin as ``AwaitedReads`` does."""
        self._reads = AwaitedReads(store, count_max)
        self._waits: dict[tuple[bytes, bytes], asyncio.Future[None]] = {}

    def add(self, recipient: bytes, message_id: bytes) -> "asyncio.Future[None]":
        """Return what is done once ``recipient`` has read the message."""
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits[recipient, message_id] = wait
        forgotten = self._reads.sent(recipient, message_id)
        if forgotten is not None:
            self._waits.pop(forgotten).cancel()
        return wait

    def stored(self, recipient: bytes, message_id: bytes, now_ms: int) -> None:
        """Wait for it after a restart too: a mailbox keeps the message."""
        self._reads.stored(recipient, message_id, now_ms)

    def settle(self, receipt: ReceiptArrived) -> list[MessageRead]:
        """End the waiting for what a receipt shows to be read, and return that."""
        self._reads.receipt(receipt)
        read = [MessageRead(*each) for each in self._reads.take()]
        for each in read:
            wait = self._waits.pop(each, None)
            if wait is not None and not wait.done():
                wait.set_result(None)
        return read

    def close(self) -> None:
        """End all waiting."""
        for wait in self._waits.values():
            wait.cancel()
        self._waits.clear()
        self._reads.clear()
