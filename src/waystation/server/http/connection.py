"""HTTP connections with a time limit for each step and a connection limit for each address.

The admin port and the blind box use it. Uvicorn limits only the idle time between requests. An incomplete request head,
or a client that reads no answer, would occupy a connection for ever. So each connection here has a timer, and is
counted before the TLS handshake.

==================================  =========  ==========================================================
what is awaited                     at most    then
==================================  =========  ==========================================================
a request's whole head              10 s       status 408, then the connection closes
the application's answer            120 s      the connection is cut
that an answer is taken             60 s       the same
==================================  =========  ==========================================================

A full port cuts the connection that has waited longest for a head, and admits the new one. If none waits for a head,
the new connection is rejected. Each address has its own limit. A rejected connection is closed at once.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from waystation.engine.admission import Admission, AdmissionLimits, AdmissionRefusal, address_key

__all__ = ["HEAD_S", "HttpAdmission", "HttpConnection", "HttpLimits", "LateAnswer"]

HEAD_S: Final = 10.0  # as long as a handshake may take at other listeners
REQUEST_S: Final = 120.0  # more than the longest upload and what a disk may take for it
TAKE_S: Final = 60.0  # 17 KiB/s for 1 MiB


class HttpLimits(NamedTuple):
    """How many connections a port has."""

    connections_max: int = 256
    per_address_max: int = 16
    """Of one IPv4 address or IPv6 /64, as ``engine.admission`` counts; enough for two browsers."""
    per_address: bool = True
    """False lifts the share of an address."""


class LateAnswer(NamedTuple):
    """The answer to a client whose request head did not come in time."""

    document: Mapping[str, object]
    """JSON that goes with status 408."""


class HttpAdmission:
    """Counts the connections of one port and knows which of them may be cut."""

    def __init__(self, limits: HttpLimits) -> None:
        """Admit as many as ``limits`` says."""
        ceilings = AdmissionLimits(
            connections=limits.connections_max,
            connections_per_address=limits.per_address_max,
            connections_addressless=limits.connections_max,
        )
        self._admission = Admission(ceilings, per_address=limits.per_address)
        self._waiting: dict[HttpConnection, None] = {}
        """Those that await a head, the longest first."""

    def admit(self, host: str) -> bool:
        """Admit a new connection, if need be in place of one that awaits a head; False to close it at once."""
        key = address_key(host)
        refusal = self._admission.admit(key)
        if refusal is AdmissionRefusal.FULL and self._waiting:
            next(iter(self._waiting)).cut()
            refusal = self._admission.admit(key)
        return refusal is None

    def release(self, host: str) -> None:
        """Release the place of an admitted connection."""
        self._admission.release(address_key(host))

    def await_head(self, connection: "HttpConnection") -> None:
        """Note that a connection may be cut for another one."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def head_came(self, connection: "HttpConnection") -> None:
        """Note that a connection answers a request, or is over."""
        self._waiting.pop(connection, None)


class HttpConnection(H11Protocol):
    """One connection; a ``transport.listen.Arrival``."""

    def __init__(
        self, config: Config, state: ServerState, admission: HttpAdmission, host: str, late: LateAnswer
    ) -> None:
        """Prepare one that ``admission`` has admitted.

        Args:
            config: Loaded; has the application that answers.
            state: The server's, which ends its connections.
            admission: Admitted it, and gets its place back.
            host: The address that it was admitted under.
            late: The answer when a head does not come.
        """
        super().__init__(config=config, server_state=state, app_state={})
        self.is_established = False
        self.admitted: str | None = host
        """What ``admission`` counts it under."""
        self._admission = admission
        self._host = host
        self._late = late
        self._made = asyncio.Event()
        self._is_counted = True
        self._timer: asyncio.TimerHandle | None = None

    async def settled(self) -> None:
        """Return once it is established."""
        await self._made.wait()

    def cut(self) -> None:
        """End it now, and give its place back."""
        self.transport.abort()
        self._leave()

    # What asyncio and uvicorn call

    def connection_made(self, transport: Any) -> None:
        """Bytes may come from now on."""
        super().connection_made(transport)
        if self._host:
            self.client = (self._host, 0)  # a proxy's header may have named another one than the socket
        self.is_established = True
        self._made.set()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._leave()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Look at what has come; a new cycle means that a head is whole."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self._is_counted:
            self._admission.head_came(self)
            self._arm(REQUEST_S, self.cut)

    def on_response_complete(self) -> None:
        """The next head is awaited; it may be here already."""
        if self._is_counted:
            self._await_head()
        super().on_response_complete()

    # The timer

    def _await_head(self) -> None:
        self._arm(HEAD_S, self._on_late)
        if not self.transport.get_write_buffer_size():  # else it is busy with taking an answer
            self._admission.await_head(self)

    def _on_late(self) -> None:
        if self.transport.get_write_buffer_size():
            self._arm(TAKE_S - HEAD_S, self.cut)
            return
        if not self.transport.is_closing():
            self._say_late()
        self.transport.close()
        self._arm(HEAD_S, self.cut)  # TLS waits for the other side's farewell

    def _say_late(self) -> None:
        """Answer a request that is not there, which uvicorn has no way for."""
        body = json.dumps(self._late.document)
        lines = (
            "HTTP/1.1 408 Request Timeout",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
            "",
            body,
        )
        self.transport.write("\r\n".join(lines).encode())

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, then)

    def _leave(self) -> None:
        """Give the place back, once."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_counted:
            self._is_counted = False
            self._admission.head_came(self)
            self._admission.release(self._host)
