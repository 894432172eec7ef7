"""Sends one message to a host as one or more packets, until all are accepted or one fails for good.

``LprpSender.send`` makes one for each message. The first packet is sent alone, to learn whether the recipient has a
lease there. The others follow in a small window. If the mailbox becomes full after an accepted packet, the others are
retried for a while, since the recipient may read.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from waystation.core.errors import HostError
from waystation.protocols.lprp.client.events import RelayFinished, RequestOutcome
from waystation.protocols.lprp.payload.fragments import MESSAGE_ID_BYTES
from waystation.sdk.connection import now
from waystation.sdk.lprp.connection import HostConnection, WorkEnded, Working
from waystation.sdk.lprp.outcome import Outcome, SendProgress, Sent

__all__ = ["Delivery"]

WINDOW: Final = 16  # as many as a sender off the whitelist may have in a mailbox; specs/lprp.md 7
REFUSED_AGAIN_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0, 16.0)  # a minute for a mailbox to be read


class Delivery:
    """Sends the payloads of one message; ``run`` it once."""

    def __init__(
        self,
        connection: HostConnection,
        recipient: bytes,
        payloads: Sequence[bytes],
        message_id: bytes | None,
        on_progress: Callable[[SendProgress], None] | None,
    ) -> None:
        """Describe it.

        Args:
            connection: To the host.
            recipient: Key of 32 bytes.
            payloads: One for each packet, at least one.
            message_id: For the result; None means the name that the recipient will know a raw packet by.
            on_progress: Called while work is done, and after each packet that was accepted.
        """
        self._connection = connection
        self._recipient = recipient
        self._payloads = payloads
        self._message_id = message_id
        self._on_progress = on_progress
        self._waiting: dict[bytes, asyncio.Future[RequestOutcome]] = {}
        self._tickets: set[bytes] = set()
        self._failure: HostError | None = None
        self._accepted_count = 0
        self._hashes = 0
        self.works = False
        """Whether a search for work is under way."""
        self._was_refused = False

    async def run(self) -> Sent:
        """Return what became of the message; raises HostError when the disk says no."""
        try:
            outcome = await self._send_part(self._payloads[0])
            if outcome is Outcome.ACCEPTED and len(self._payloads) > 1:
                outcome = await self._send_others()
        finally:
            waiting, self._waiting = self._waiting, {}
            for ticket, future in waiting.items():
                future.cancel()
                self._connection.stop_work(ticket)
        return self.result(outcome)

    def timed_out(self) -> Sent:
        """Return the message's end when there is no time left: what it has waited for last."""
        if self.works:
            return self.result(Outcome.WORK_FAILED)
        return self.result(Outcome.REFUSED if self._was_refused else Outcome.UNANSWERED)

    def result(self, outcome: Outcome) -> Sent:
        """Return the message's end."""
        return Sent(outcome, self._message_id or b"", len(self._payloads), self._accepted_count, self._hashes)

    def take(self, event: RelayFinished | Working | WorkEnded) -> None:
        """Take an event of the connection, if it is about one of our packets."""
        if isinstance(event, RelayFinished):
            future = self._waiting.pop(event.signature, None)
            if future is not None and not future.done():
                future.set_result(event.outcome)
        elif event.reference in self._tickets:
            if isinstance(event, WorkEnded):
                self._hashes += event.progress.hashes
            if event.reference in self._waiting:
                self.works = isinstance(event, Working)
                self._report(event)

    def fail(self, error: HostError) -> None:
        """End with an error."""
        self._failure = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    async def _send_others(self) -> Outcome:
        """Send all parts but the first; return ACCEPTED, or why the first of those that failed did."""
        room, failures = asyncio.Semaphore(WINDOW), list[Outcome]()

        async def send(payload: bytes) -> None:
            async with room:
                if not failures and (outcome := await self._send_stubbornly(payload)) is not Outcome.ACCEPTED:
                    failures.append(outcome)

        try:
            async with asyncio.TaskGroup() as group:
                for payload in self._payloads[1:]:
                    group.create_task(send(payload))
        except ExceptionGroup as errors:  # each says the same: the disk is full, or we are closed
            raise errors.exceptions[0] from errors
        return failures[0] if failures else Outcome.ACCEPTED

    async def _send_stubbornly(self, payload: bytes) -> Outcome:
        for pause_s in REFUSED_AGAIN_S:
            outcome = await self._send_part(payload)
            if outcome is not Outcome.REFUSED:
                return outcome
            await asyncio.sleep(pause_s)
        return await self._send_part(payload)

    async def _send_part(self, payload: bytes) -> Outcome:
        if self._failure is not None:
            raise self._failure
        ticket = self._connection.machine.send(payload, self._recipient, now())
        self._tickets.add(ticket)
        if self._message_id is None:
            self._message_id = ticket[:MESSAGE_ID_BYTES]
        future = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._connection.flush()
        outcome = Outcome[(await future).name]
        self._was_refused = outcome is Outcome.REFUSED
        if outcome is Outcome.ACCEPTED:
            self._accepted_count += 1
            self._report(None)
        return outcome

    def _report(self, event: Working | WorkEnded | None) -> None:
        if self._on_progress is not None:
            work = event.progress if isinstance(event, Working) else None
            self._on_progress(SendProgress(self._accepted_count, len(self._payloads), work))
