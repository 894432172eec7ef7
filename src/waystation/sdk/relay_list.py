"""Keeps one connection to the first relay of a list that accepts the client, and reconnects when it ends.

MERK's and Strata's clients subclass or own one. Each pass tries the relays in list order until one accepts. After a
failed pass, and after a connection has ended, it waits. The pause doubles each time, with jitter, and is reset by a
connection that lasted.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from waystation.core.contacts import Connected, Disconnected
from waystation.core.errors import HostError, LocalError
from waystation.sdk.backoff import STABLE_S, Backoff, Pause
from waystation.sdk.connection import Connection, Ended
from waystation.sdk.errors import RelayUnreachableError
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import TlsContext
from waystation.transport.websocket.dial import WebSocketDialler

__all__ = ["Connected", "Disconnected", "RelayList"]


class RelayList(ABC):
    """Connects, and connects again; ``start`` it and ``aclose`` it. A protocol's client says how."""

    def __init__(
        self,
        on_event: Callable[[object], None],
        backoff: Backoff,
        *,
        text: bool,
        message_bytes_max: int,
        tls: TlsContext | None,
        silence: SilencePolicy = SilencePolicy(),  # noqa: B008 - immutable
    ) -> None:
        """Prepare.

        Args:
            on_event: Gets ``Connected`` and ``Disconnected``.
            backoff: Pauses between rounds.
            text: Whether messages are text; else binary.
            message_bytes_max: Of a message from a relay.
            tls: Context for ``wss``; None means the system's authorities.
            silence: How long a relay may be silent.
        """
        self._on_event = on_event
        self._backoff = backoff
        self._pausing = Pause()
        self._text = text
        self._message_bytes_max = message_bytes_max
        self._tls = tls
        self._silence = silence
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._established = asyncio.Event()
        self._attempted = asyncio.Event()
        self._dialled_at = 0.0
        self._established_at: float | None = None
        self._url = ""
        self._failure = "no connection yet"
        self._closed = False
        self._fatal: Exception | None = None

    # What a protocol's client adds

    @abstractmethod
    def _candidates(self) -> list[str]:
        """Return the addresses to try in this round, in their order; none ends all tries."""

    @abstractmethod
    def _make(self, url: str) -> Connection:
        """Return a driver of a machine, not open."""

    @abstractmethod
    def _why_ended(self, ended: Ended) -> str:
        """Return for people why a connection is over."""

    def _on_open(self) -> None:  # noqa: B027 - most relays take us at the end of a handshake
        """Note that a connection is open; with some protocols it is established by then."""

    def _tries_again(self, url: str) -> bool:  # noqa: ARG002 - most have no such reason
        """Return whether this address is tried once more in this round."""
        return False

    def _give_up(self) -> RelayUnreachableError:
        """Return why there is no candidate."""
        return RelayUnreachableError("there is no relay to connect to; add one first")

    def _on_fatal(self, error: Exception) -> None:  # noqa: B027 - most have nothing else that waits
        """End what waits for a relay with the reason why none will be tried any more."""

    # Life

    def start(self) -> None:
        """Begin to connect, and go on for ever."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def reconnect(self) -> None:
        """Try now, if no relay has us; pauses begin with the shortest again. A connection that stands stays."""
        if not self.connected:
            self._backoff.reset()
            self._pausing.end()

    async def aclose(self) -> None:
        """End the connection; safe to call twice."""
        self._closed = True
        self._established.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @property
    def connected(self) -> bool:
        """Whether a relay has taken us, and the connection has not ended."""
        connection = self._connection
        return self._established_at is not None and connection is not None and not connection.closed

    @property
    def fatal(self) -> Exception | None:
        """Why no relay will be tried any more; None while relays are tried."""
        return self._fatal

    async def reached(self) -> None:
        """Return once a connection is established; raises RelayUnreachableError when the last round found none."""
        await self._attempted.wait()
        if self._fatal is not None or not self.connected:
            raise self._fatal or RelayUnreachableError(self._failure)

    async def established(self, timeout_s: float) -> Connection:
        """Return the connection once it is established; raises RelayUnreachableError after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.connected or self._connection is None:
                    if self._fatal is not None or self._closed:
                        raise self._fatal or RelayUnreachableError("the client is closed")
                    self._established.clear()
                    await self._established.wait()
        except TimeoutError as error:
            raise RelayUnreachableError(f"no relay within {timeout_s:g} s: {self._failure}") from error
        return self._connection

    def _flush(self) -> None:
        """Carry out what the machine wants, if there is a connection to carry it out on."""
        if self._connection is not None:
            self._connection.flush()

    def _on_established(self, server: bytes | None = None, *, authenticated: bool = False) -> None:
        """Note that the relay has taken us."""
        at = asyncio.get_running_loop().time()
        self._established_at = self._established_at or at
        self._established.set()
        self._attempted.set()
        self._on_event(Connected(self._url, (at - self._dialled_at) * 1_000, server, authenticated))

    # Rounds

    async def _run(self) -> None:
        """Try relays for ever; whatever ends that reaches the owner, and every call that waits or comes later."""
        try:
            await self._rounds()
            self._fatal = self._give_up()
        except Exception as error:  # noqa: BLE001 - a fault of ours or of the owner's callback must not be a silent hang
            self._fatal = error
        self._attempted.set()
        self._established.set()
        self._on_fatal(self._fatal)
        self._on_event(self._fatal)

    async def _rounds(self) -> None:
        dialler = WebSocketDialler(
            text=self._text,
            message_bytes_max=self._message_bytes_max,
            context=self._tls,
            silence=lambda: self._silence,
        )
        while candidates := self._candidates():
            for url in candidates:
                up_s = await self._connect(url, dialler)
                while self._tries_again(url):
                    await self._pause(url, up_s, self._backoff.next_s())
                    up_s = await self._connect(url, dialler)
                last = up_s is not None or url == candidates[-1]
                if last and self._candidates():
                    self._attempted.set()
                await self._pause(url, up_s, self._backoff.next_s() if last else 0.0)
                if last:
                    break

    def _up_s(self) -> float | None:
        at = self._established_at
        return None if at is None else asyncio.get_running_loop().time() - at

    async def _pause(self, url: str, up_s: float | None, retry_s: float) -> None:
        self._on_event(Disconnected(url, self._failure, up_s, retry_s))
        await self._pausing.wait(retry_s)

    async def _connect(self, url: str, dialler: WebSocketDialler) -> float | None:
        """Connect and stay connected; return for how many seconds the connection was established, or None."""
        self._url, self._dialled_at = url, asyncio.get_running_loop().time()
        connection = self._connection = self._make(url)
        try:
            await dialler.dial(url, connection)
            self._on_open()
            self._failure = self._why_ended(await asyncio.shield(connection.ended))
        except (HostError, LocalError) as error:
            self._failure = str(error)
        finally:
            connection.close()
            await connection.wait_closed()
            up_s = self._up_s()
            self._connection, self._established_at = None, None
            self._established.clear()
        if up_s is not None and up_s >= STABLE_S:
            self._backoff.reset()
        return up_s
