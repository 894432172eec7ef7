"""Questions of this program that wait for their answer (MERK-ANSWER).

Only an encrypted, bound message of the peer that was asked, which names the id of the question, is the answer. Whatever
comes later, or from somebody else, is a message like any other.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from waystation.sdk.errors import ClosedError, LocalError, NotTakenError
from waystation.sdk.merk.message import Message
from waystation.sdk.merk.sent import SentMessage

__all__ = ["ASKS_MAX", "Asks", "end_early"]

ASKS_MAX: Final = 4_096  # ours: as many messages as a browser has waiting for their receipts


class Asks:
    """What was asked and is not answered yet."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._waits: dict[tuple[bytes, bytes], asyncio.Future[Message]] = {}

    @contextlib.contextmanager
    def expect(self, peer: bytes, message_id: bytes) -> "Iterator[asyncio.Future[Message]]":
        """Give what is done with the answer of ``peer`` to the message of this id; forget it at the end.

        Raises:
            LocalError: ``ASKS_MAX`` questions wait already.
        """
        if len(self._waits) >= ASKS_MAX:
            raise LocalError(f"{ASKS_MAX} questions wait for their answer; ask again when some have it")
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waits[peer, message_id] = answer
        try:
            yield answer
        finally:
            del self._waits[peer, message_id]
            answer.cancel()

    def settle(self, message: Message) -> bool:
        """Return whether a message is an answer that somebody here waits for; then it is given to him."""
        if message.answers is None:
            return False
        answer = self._waits.get((message.sender, message.answers))
        if answer is None or answer.done():
            return False
        answer.set_result(message)
        return True

    def close(self) -> None:
        """End all waiting."""
        for answer in self._waits.values():
            if not answer.done():
                answer.set_exception(ClosedError("the client was closed before the answer came"))


def end_early(answer: "asyncio.Future[Message]", sending: "asyncio.Task[SentMessage]") -> None:
    """End the waiting for an answer when the question certainly has not arrived."""
    if answer.done() or sending.cancelled():
        return
    error = sending.exception()
    if error is None and not (sent := sending.result()).ok and sent.retry_safe:
        error = sent.failure or NotTakenError(f"{sent.sentence}; {sent.advice}")
    if error is not None:
        answer.set_exception(error)
