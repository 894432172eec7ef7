"""Matches receipts with the messages that they name, so that a client reports as read only what was read.

The SDK and the simulated clients have one. The client machine lets through only receipts that their sender has signed
and encrypted for us, in the bound form. Such a receipt still names whatever ids its sender likes: it counts for
messages to that very sender, once each. What a relay says of a frame never counts.

Spec: specs/merk.md 3; MERK-RECEIPT.
"""

from collections import OrderedDict
from typing import Final, Protocol

from waystation.protocols.merk.client.events import ReceiptArrived

__all__ = ["AWAITED_READS_MAX", "AwaitedReads", "ReadStore"]

AWAITED_READS_MAX: Final = 16_384
"""Messages of this program whose receipt is still matched; of older ones none is."""


class ReadStore(Protocol):
    """Where messages that a mailbox keeps are awaited across restarts."""

    def await_read(self, recipient: bytes, message_id: bytes, time_ms: int) -> None:
        """Remember such a message; ``time_ms`` is now, Unix milliseconds."""

    def was_read(self, recipient: bytes, message_id: bytes) -> bool:
        """Forget such a message, which has been read; return whether it was remembered."""


class AwaitedReads:
    """Messages of ours that may still be read; recipients are 32-byte keys, ids have 16 bytes."""

    def __init__(self, store: ReadStore | None = None, count_max: int = AWAITED_READS_MAX) -> None:
        """Begin with what ``store`` has; None remembers in memory alone, ``count_max`` messages."""
        self._store = store
        self._count_max = count_max
        self._awaited: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()
        self._read: list[tuple[bytes, bytes]] = []

    def sent(self, recipient: bytes, message_id: bytes) -> tuple[bytes, bytes] | None:
        """Await a receipt of a message that is sent now, in the bound form; return the one that gave way, if any."""
        self._awaited[recipient, message_id] = None
        return self._awaited.popitem(last=False)[0] if len(self._awaited) > self._count_max else None

    def stored(self, recipient: bytes, message_id: bytes, now_ms: int) -> None:
        """Await it after a restart too: a mailbox keeps the message."""
        if self._store is not None:
            self._store.await_read(recipient, message_id, now_ms)

    def receipt(self, event: ReceiptArrived) -> None:
        """Count a receipt for the messages to its sender that it names and that were not read before."""
        for message_id in event.message_ids:
            is_kept = self._store is not None and self._store.was_read(event.sender, message_id)
            is_awaited = (event.sender, message_id) in self._awaited
            if is_awaited:
                del self._awaited[event.sender, message_id]
            if is_kept or is_awaited:
                self._read.append((event.sender, message_id))

    def take(self) -> list[tuple[bytes, bytes]]:
        """Return and forget what was read since the last call: recipient and message id."""
        read, self._read = self._read, []
        return read

    def clear(self) -> None:
        """Await nothing any more."""
        self._awaited.clear()
