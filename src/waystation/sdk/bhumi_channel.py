"""An anonymous connection to one relay, opened when there is something to send.

Sending never shares a connection with a device that has said who it is: the relay must not learn who sends (spec
section 1).
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final

from waystation.core.errors import HostError, LocalError
from waystation.protocols.bhumi.client_base import Greeted, Unsent
from waystation.protocols.bhumi.sender_client import OUTSTANDING_MAX, Answered, Lost, SenderClient
from waystation.sdk.bhumi_retry import Outcome, outcome_of_status
from waystation.sdk.link import Link, no_greeting, now
from waystation.transport.dial import RelayUrl

__all__ = ["Channel"]

_UNSENT_REASON: Final = "the connection ended before the request could leave"


class Channel:
    """Requests to one relay; at most 16 at once, more wait their turn."""

    def __init__(
        self,
        relay: RelayUrl,
        tls: ssl.SSLContext | None,
        connect_timeout_s: float,
        *,
        only_public: bool = False,
        note: Callable[[RelayUrl, float | None], None] | None = None,
    ) -> None:
        """Describe a channel; it connects by itself.

        Args:
            relay: Where to.
            tls: Context for a ``tls://`` address; None trusts the system's authorities.
            connect_timeout_s: For one connection.
            only_public: See ``transport.dial``.
            note: Told how many seconds a connection took to be greeted; None when none was made, or not greeted.
        """
        self.relay = relay
        self._note = note or _note_nothing
        self._only_public = only_public
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._machine: SenderClient | None = None
        self._link: Link | None = None
        self._greeted: asyncio.Future[None] | None = None
        self._waiting: dict[int, asyncio.Future[Answered | Lost]] = {}
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(OUTSTANDING_MAX)

    async def ask(self, recipient: bytes, preimage: bytes, payload: bytes) -> tuple[Outcome, bytes, str]:
        """Send one request and return how the try ended, the answer, and a reason for people.

        Raises:
            LocalError: The payload is larger than this relay takes.
        """
        async with self._slots:
            try:
                machine, link = await self._open_connection()
            except HostError as error:
                return Outcome.NOT_SENT, b"", str(error)
            token = machine.send(recipient, preimage, payload, now())
            if token is Unsent.TOO_LARGE:
                raise LocalError(
                    f"{len(payload)} bytes with their envelope; {self.relay} takes at most {machine.max_payload_bytes}"
                )
            if isinstance(token, Unsent):
                return Outcome.NOT_SENT, b"", _UNSENT_REASON
            waiting: asyncio.Future[Answered | Lost] = asyncio.get_running_loop().create_future()
            self._waiting[token] = waiting
            link.flush()
            try:
                event = await waiting
            finally:
                self._waiting.pop(token, None)
        if isinstance(event, Lost):
            return Outcome.IN_DOUBT, b"", link.ended.result() if link.ended.done() else "the connection broke"
        return outcome_of_status(event.status), event.payload, f"the relay answered with status {event.status}"

    @property
    def is_open(self) -> bool:
        """Whether a connection stands and is greeted."""
        return self._machine is not None and self._machine.is_open

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for its outcome here."""
        return not self._waiting

    async def close(self) -> None:
        """End the connection, if there is one."""
        if self._link is not None:
            self._link.close()
            await self._link.wait_closed()

    async def _open_connection(self) -> tuple[SenderClient, Link]:
        """Return a connection that stands and is greeted; raises HostError."""
        async with self._connecting:
            if self._machine is not None and self._link is not None and self._machine.is_open:
                return self._machine, self._link
            machine = SenderClient()
            greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._greeted = greeted
            self._waiting = {}
            link = Link(machine, self._on_event)
            began = asyncio.get_running_loop().time()
            try:
                await link.open(self.relay, self._tls, self._connect_timeout_s, only_public=self._only_public)
            except HostError:
                self._note(self.relay, None)
                raise
            first: list[asyncio.Future[Any]] = [greeted, link.ended]
            try:
                await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                link.close()
                raise
            if not greeted.done():
                await link.wait_closed()
                self._note(self.relay, None)
                raise HostError(no_greeting(self.relay, link.ended.result()))
            self._note(self.relay, asyncio.get_running_loop().time() - began)
            self._machine, self._link = machine, link
            return machine, link

    def _on_event(self, event: Any) -> None:
        if isinstance(event, Greeted):
            if self._greeted is not None and not self._greeted.done():
                self._greeted.set_result(None)
        elif isinstance(event, Answered | Lost):
            waiting = self._waiting.get(event.token)
            if waiting is not None and not waiting.done():
                waiting.set_result(event)


def _note_nothing(_relay: RelayUrl, _greeting_s: float | None) -> None:
    """Do nothing; for those who keep no account of relays."""
