"""Sends requests to one relay over an anonymous connection, which is opened when the first request needs it.

Requests never share a connection with a registered device, because the relay must not learn the sender (spec section
1). Results arrive in the order of the requests (BHUMI-9), so ``Channels`` gives each request under way a connection of
its own. At most 16 requests run at once on one connection; more wait.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.protocols.bhumi.client.base import AuthorityShown, Greeted, Unsent
from waystation.protocols.bhumi.client.sender import OUTSTANDING_MAX, Answered, Lost, SenderClient
from waystation.sdk.bhumi.connection import RelayConnection
from waystation.sdk.bhumi.pairing.relay_authorities import HomeTrust, Trust
from waystation.sdk.bhumi.sending.retry import Verdict, verdict_of_status
from waystation.sdk.connection import now
from waystation.transport.dial import RelayUrl

__all__ = ["Channel"]

_UNSENT_REASON: Final = "the connection ended before the request could leave"
_CLOSED_REASON: Final = "the connection was closed here"


class _Opened(NamedTuple):
    machine: SenderClient
    connection: RelayConnection
    waiting: dict[int, asyncio.Future[Answered | Lost]]
    """By token, until the result is there: a caller that left still has its place in the relay's window."""


class Channel:
    """Requests to one relay; at most 16 at once, more wait their turn."""

    def __init__(
        self,
        relay: RelayUrl,
        tls: Trust,
        connect_timeout_s: float,
        *,
        only_public: bool = False,
        note: Callable[[RelayUrl, float | None], None] | None = None,
        gate: asyncio.Semaphore | None = None,
    ) -> None:
        """Describe a channel; it connects by itself.

        Args:
            relay: Where to.
            tls: What a ``tls://`` address is dialled with.
            connect_timeout_s: For one connection.
            only_public: See ``transport.dial``.
            note: Called with the seconds from dialling to HELLO; None when the relay did not say it.
            gate: Held while connecting, so that a relay gets few handshakes at once.
        """
        self.relay = relay
        self._note = note or (lambda _relay, _handshake_s: None)
        self._only_public = only_public
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._gate = gate or asyncio.Semaphore()
        self._opened: _Opened | None = None
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(OUTSTANDING_MAX)
        self.users_count = 0
        """Callers that have it from ``Channels``."""

    async def ask(
        self, recipient: bytes, preimage: bytes, payload: bytes, on_sent: Callable[[], None] = lambda: None
    ) -> tuple[Verdict, bytes, str]:
        """Send one request and return how the try ended, the answer, and a reason for people.

        A caller that is cancelled leaves no gap: its place in the window is free when its result has come.

        Args:
            recipient: 32-byte identity.
            preimage: 32 bytes.
            payload: Opaque.
            on_sent: Called when the request leaves: from then on it may be delivered.

        Raises:
            LocalError: The payload is larger than this relay takes.
        """
        await self._slots.acquire()
        try:
            opened = await self._open_connection()
            token = opened.machine.send(recipient, preimage, payload, now())
            if token is Unsent.TOO_LARGE:
                raise LocalError(
                    f"{len(payload)} bytes with their envelope; {self.relay} takes at most "
                    f"{opened.machine.max_payload_bytes}"
                )
        except HostError as error:
            self._slots.release()
            return Verdict.UNREACHABLE, b"", str(error)
        except BaseException:
            self._slots.release()
            raise
        if isinstance(token, Unsent):
            self._slots.release()
            return Verdict.UNREACHABLE, b"", _UNSENT_REASON
        waiting: asyncio.Future[Answered | Lost] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(lambda _: self._slots.release())
        opened.waiting[token] = waiting
        on_sent()
        opened.connection.flush()
        event = await asyncio.shield(waiting)
        if isinstance(event, Lost):
            ended = opened.connection.ended
            return Verdict.UNCERTAIN, b"", ended.result().reason if ended.done() else _CLOSED_REASON
        return verdict_of_status(event.status), event.payload, f"the relay answered with status {event.status}"

    @property
    def is_open(self) -> bool:
        """Whether a connection is established and the relay has said HELLO."""
        return self._opened is not None and self._opened.machine.is_open

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses it, and no request waits for its outcome here."""
        return not self.users_count and not (self._opened is not None and self._opened.waiting)

    async def close(self) -> None:
        """End the connection, if there is one; what waits there may have been delivered."""
        if self._opened is not None:
            await self._opened.connection.aclose()
            for token in tuple(self._opened.waiting):
                _settle(self._opened.waiting, Lost(token))

    async def _open_connection(self) -> _Opened:
        """Return a connection whose relay has said HELLO; raises HostError."""
        async with self._connecting:
            if self._opened is not None and self.is_open:
                return self._opened
            learns = isinstance(self._tls, HomeTrust) and self._tls.learns_from(self.relay)
            machine = SenderClient(asks_authorities=learns)
            waiting: dict[int, asyncio.Future[Answered | Lost]] = {}
            connection = RelayConnection(machine, self.relay, partial(self._on_event, waiting))
            try:
                async with self._gate:
                    await connection.reach(self._tls, self._connect_timeout_s, only_public=self._only_public)
            except HostError:
                self._note(self.relay, None)
                raise
            self._note(self.relay, connection.handshake_s)
            self._opened = _Opened(machine, connection, waiting)
            return self._opened

    def _on_event(
        self,
        waiting: dict[int, asyncio.Future[Answered | Lost]],
        event: Greeted | AuthorityShown | Answered | Lost,
    ) -> None:
        if isinstance(event, AuthorityShown):
            if isinstance(self._tls, HomeTrust):
                self._tls.learn(self.relay, event.der)
        elif not isinstance(event, Greeted):
            _settle(waiting, event)


def _settle(waiting: dict[int, asyncio.Future[Answered | Lost]], event: Answered | Lost) -> None:
    result = waiting.pop(event.token, None)
    if result is not None:
        result.set_result(event)
