"""What ``MerkClient.send`` returns: the outcome, the message's id, and a way to wait until its recipient has read it.

``ReadWaits`` matches signed receipts with the messages that they name. Only the recipient of a message can say that it
was read, and only in the bound form of encryption.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from waystation.sdk.merk.outcome import Outcome
from waystation.sdk.outcome import Sent

__all__ = ["READ_WAITS_MAX", "MessageRead", "ReadWaits", "SentMessage"]

READ_WAITS_MAX: Final = 16_384
"""Messages of this program whose receipt is still matched; of older ones none is."""


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

    def __init__(self) -> None:
        """Begin with none."""
        self._waits: OrderedDict[tuple[bytes, bytes], asyncio.Future[None]] = OrderedDict()

    def add(self, recipient: bytes, message_id: bytes) -> "asyncio.Future[None]":
        """Return what is done once ``recipient`` has read the message."""
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits[recipient, message_id] = wait
        if len(self._waits) > READ_WAITS_MAX:
            self._waits.popitem(last=False)[1].cancel()
        return wait

    def settle(self, recipient: bytes, message_id: bytes) -> bool:
        """Note a receipt of ``recipient``; return whether it names a message to it that was not read before."""
        wait = self._waits.pop((recipient, message_id), None)
        if wait is not None and not wait.done():
            wait.set_result(None)
        return wait is not None

    def close(self) -> None:
        """End all waiting."""
        for wait in self._waits.values():
            wait.cancel()
        self._waits.clear()
