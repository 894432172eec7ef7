"""A Bhumi client's connection to one relay, from dialling over HELLO to its end, with the reason for people."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from waystation.core.errors import HostError
from waystation.protocols.bhumi.client.base import Client, Greeted
from waystation.sdk.bhumi.pairing.relay_authorities import HomeTrust, Trust
from waystation.sdk.connection import Connection
from waystation.transport.dial import WEB_PORT, RelayUrl, UntrustedError, dial, speaks_http, speaks_tls
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import TlsContext

__all__ = ["CONNECT_TIMEOUT_S", "RelayConnection", "no_hello"]

CONNECT_TIMEOUT_S: Final = 10.0
SILENT_S: Final = 1.0
"""A relay says HELLO first; a connection that is silent for so long may be one to a TLS port or to a web port."""
TRY_S: Final = 1.0
"""For a look whether it is."""


class RelayConnection(Connection):
    """Drives a client's machine, of any role, over one connection."""

    def __init__(
        self,
        machine: Client,
        relay: RelayUrl,
        on_event: Callable[[Any], None],
        *,
        clock: Callable[[], float] = time.time,
        silence: SilencePolicy = SilencePolicy(),  # noqa: B008 - immutable
    ) -> None:
        """Describe a connection; ``dial`` or ``reach`` makes it, once.

        The arguments are those of ``Driver``, and ``silence``: how long the relay may be silent.
        """
        super().__init__(machine, self._on_machine_event, clock=clock)
        self.relay = relay
        self._silence = silence
        self._hand_on = on_event
        self._began_s = 0.0
        self.handshake_s = 0.0
        """Seconds from dialling to HELLO."""
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        """Done when the relay has said HELLO; never when the connection ends before."""
        self._looking: asyncio.Task[None] | None = None
        self._is_tls_port = False
        self._is_web_port = False

    async def dial(self, tls: Trust, timeout_s: float = CONNECT_TIMEOUT_S, *, only_public: bool = False) -> None:
        """Connect with what is trusted, one authority after the other; see ``transport.dial`` for the other arguments.

        Raises:
            UntrustedError: Nothing that is trusted has signed the relay's certificate.
            HostError: The relay cannot be reached.
        """
        if isinstance(tls, HomeTrust) and self.relay.scheme == "tls":
            await self._dial_trusted(tls, timeout_s, only_public=only_public)
        else:
            given = tls.given if isinstance(tls, HomeTrust) else tls
            await self._dial(given, timeout_s, only_public=only_public)
        if not only_public:
            self._looking = self._loop.create_task(self._look_for_others())

    async def _dial(self, context: TlsContext | None, timeout_s: float, *, only_public: bool) -> None:
        self._began_s = self._loop.time()
        silence = self._silence
        await dial(self.relay, self, context=context, timeout_s=timeout_s, only_public=only_public, silence=silence)

    async def _dial_trusted(self, trust: HomeTrust, timeout_s: float, *, only_public: bool) -> None:
        trouble: UntrustedError | None = None
        for context, der in trust.contexts(self.relay):
            try:
                await self._dial(context, timeout_s, only_public=only_public)
            except UntrustedError as error:
                trouble = error if trouble is None or der is None else trouble
            else:
                if der is not None:
                    trust.works(self.relay, der)
                return
        assert trouble is not None
        raise UntrustedError(
            f"{trouble}; if the relay has changed its authority since this home connected last, ask its operator for "
            "the tls/ca.pem of today"
        ) from trouble

    async def reach(self, tls: Trust, timeout_s: float = CONNECT_TIMEOUT_S, *, only_public: bool = False) -> None:
        """Connect, and return once the relay has said HELLO; raises HostError with the reason when it does not."""
        try:
            await self.dial(tls, timeout_s, only_public=only_public)
            is_greeted = await self.first(self.greeted)
        except BaseException:
            self.close()
            raise
        if not is_greeted:
            await self.wait_closed()
            raise HostError(self.reason())

    async def first(self, result: asyncio.Future[Any]) -> bool:
        """Wait for a result, and return whether it came before the connection ended."""
        either: list[asyncio.Future[Any]] = [result, self.ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return result.done()

    @property
    def has_ended(self) -> bool:
        """Whether the connection is over."""
        return self.ended.done()

    async def wait_closed(self) -> None:
        """Return once nothing of it is left."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await super().wait_closed()

    async def _look_for_others(self) -> None:
        """End a connection that gets no HELLO because the port speaks TLS or HTTP, long before HELLO is overdue."""
        either: list[asyncio.Future[Any]] = [self.greeted, self.ended]
        await asyncio.wait(either, timeout=SILENT_S, return_when=asyncio.FIRST_COMPLETED)
        if self.greeted.done() or self.ended.done():
            return
        is_tls, is_web = await asyncio.gather(self._speaks_tls(), speaks_http(self.relay, TRY_S))
        if not self.greeted.done() and not self.ended.done():
            self._is_tls_port, self._is_web_port = is_tls, is_web
            if is_tls or is_web:
                self.close()

    async def _speaks_tls(self) -> bool:
        return self.relay.scheme == "tcp" and await speaks_tls(self.relay, TRY_S)

    def reason(self) -> str:
        """Return why the connection ended, for people."""
        if self._is_tls_port:
            tls = RelayUrl("tls", self.relay.host, self.relay.port)
            return f"{self.relay} did not greet us: it is a TLS port; try {tls}"
        if self._is_web_port:
            return f"{self.relay} did not greet us: {WEB_PORT}"
        reason = self.ended.result().reason
        return reason if self.greeted.done() else no_hello(self.relay, reason)

    async def aclose(self) -> None:
        """End the connection and wait until nothing is left of it."""
        self.close()
        await self.wait_closed()

    def _on_machine_event(self, event: Any) -> None:
        if isinstance(event, Greeted):
            self.handshake_s = self._loop.time() - self._began_s
            self.greeted.set_result(None)
        self._hand_on(event)


def no_hello(url: RelayUrl, reason: str) -> str:
    """Return the sentence for a connection that ended, for ``reason``, before the relay said HELLO."""
    hint = f"; is this a TLS port? try {RelayUrl('tls', url.host, url.port)}" if url.scheme == "tcp" else ""
    return f"{url} did not greet us: {reason}{hint}"
