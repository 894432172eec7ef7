"""Sends requests to one relay over an anonymous connection, which is opened when the first request needs it.

At most 16 requests run at once; more wait. Requests never share a connection with a registered device, because the
relay must not learn the sender (spec section 1).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.protocols.bhumi.client.base import Greeted, Unsent
from waystation.protocols.bhumi.client.sender import OUTSTANDING_MAX, Answered, Lost, SenderClient
from waystation.sdk.bhumi.connection import RelayConnection
from waystation.sdk.bhumi.retry import Verdict, verdict_of_status
from waystation.sdk.connection import now
from waystation.transport.dial import RelayUrl
from waystation.transport.tls import TlsContext

__all__ = ["Channel"]

_UNSENT_REASON: Final = "the connection ended before the request could leave"


class Channel:
    """Requests to one relay; at most 16 at once, more wait their turn."""

    def __init__(
        self,
        relay: RelayUrl,
        tls: TlsContext | None,
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
            note: Called with the seconds from dialling to HELLO; None when the relay did not say it.
        """
        self.relay = relay
        self._note = note or (lambda _relay, _handshake_s: None)
        self._only_public = only_public
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._opened: tuple[SenderClient, RelayConnection] | None = None
        self._waiting: dict[int, asyncio.Future[Answered | Lost]] = {}
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(OUTSTANDING_MAX)

    async def ask(self, recipient: bytes, preimage: bytes, payload: bytes) -> tuple[Verdict, bytes, str]:
        """Send one request and return how the try ended, the answer, and a reason for people.

        Raises:
            LocalError: The payload is larger than this relay takes.
        """
        async with self._slots:
            try:
                machine, connection = await self._open_connection()
            except HostError as error:
                return Verdict.UNREACHABLE, b"", str(error)
            token = machine.send(recipient, preimage, payload, now())
            if token is Unsent.TOO_LARGE:
                raise LocalError(
                    f"{len(payload)} bytes with their envelope; {self.relay} takes at most {machine.max_payload_bytes}"
                )
            if isinstance(token, Unsent):
                return Verdict.UNREACHABLE, b"", _UNSENT_REASON
            waiting: asyncio.Future[Answered | Lost] = asyncio.get_running_loop().create_future()
            self._waiting[token] = waiting
            connection.flush()
            try:
                event = await waiting
            finally:
                self._waiting.pop(token, None)
        if isinstance(event, Lost):
            return Verdict.UNCERTAIN, b"", connection.ended.result().reason
        return verdict_of_status(event.status), event.payload, f"the relay answered with status {event.status}"

    @property
    def is_open(self) -> bool:
        """Whether a connection is established and the relay has said HELLO."""
        return self._opened is not None and self._opened[0].is_open

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for its outcome here."""
        return not self._waiting

    async def close(self) -> None:
        """End the connection, if there is one."""
        if self._opened is not None:
            await self._opened[1].aclose()

    async def _open_connection(self) -> tuple[SenderClient, RelayConnection]:
        """Return a machine whose relay has said HELLO, and its connection; raises HostError."""
        async with self._connecting:
            if self._opened is not None and self.is_open:
                return self._opened
            machine = SenderClient()
            self._waiting = {}
            connection = RelayConnection(machine, self.relay, self._on_event)
            try:
                await connection.reach(self._tls, self._connect_timeout_s, only_public=self._only_public)
            except HostError:
                self._note(self.relay, None)
                raise
            self._note(self.relay, connection.handshake_s)
            self._opened = machine, connection
            return self._opened

    def _on_event(self, event: Greeted | Answered | Lost) -> None:
        if not isinstance(event, Greeted):
            waiting = self._waiting.get(event.token)
            if waiting is not None and not waiting.done():
                waiting.set_result(event)
