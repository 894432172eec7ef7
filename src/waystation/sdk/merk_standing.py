"""The one connection of a MERK client, kept standing: at the first relay of the list that takes us, again and again.

A round tries every relay once, in the order of the list; behind a round, and behind every connection that ended, comes
a pause that doubles, with jitter. A relay whose challenges could be misused is tried again three times and then no
more: one in sixty of an original relay's honest challenges looks like that, four in a row do not (specs/merk.md 8).
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.protocols.merk import client_events as told
from waystation.protocols.merk.client import UNTOLD_MAX, MerkClient
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import DeliveryCode, Feature, KeyAdvert
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.seen_messages import SeenMessages
from waystation.protocols.merk.wire import frame_hash
from waystation.sdk.bhumi_retry import Backoff
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.link import now
from waystation.sdk.merk_connection import Connected, Connection, Disconnected
from waystation.sdk.merk_errors import HostileRelayError
from waystation.sdk.merk_servers import Servers
from waystation.transport.http_get import TlsContext
from waystation.transport.websocket_dial import dial_websocket

__all__ = ["HOSTILE_RETRIES_MAX", "SERVERS_POLL_S", "ServersLearnt", "StandingConnection"]

SERVERS_POLL_S: Final = 30.0  # as the original's clients do; specs/merk.md 4
HOSTILE_RETRIES_MAX: Final = 3  # specs/merk.md 8
STABLE_S: Final = 30.0  # a connection that lived so long makes the next retry a quick one
FRAME_BYTES_MAX: Final = 67_108_864  # the largest that a relay of ours can be told to pass on
_TOO_BIG: Final = 1009
_SMALL_FRAME_BYTES: Final = 1_024  # no relay of ours can be told to take less


class ServersLearnt(NamedTuple):
    """A relay told addresses that were not in the list."""

    relay: str
    addresses: tuple[str, ...]


class StandingConnection:
    """Connects, reconnects, and waits for answers; ``start`` it and ``aclose`` it."""

    def __init__(
        self,
        keys: Keys,
        servers: Servers,
        on_event: Callable[[object], None],
        *,
        urls: Sequence[str] = (),
        only: bool = False,
        tls: TlsContext | None = None,
        salvage: bool = False,
        extensions: bool = True,
        rng: random.Random,
        clock: Callable[[], float] = time.time,
        retry_first_s: float = 0.5,
        retry_cap_s: float = 30.0,
    ) -> None:
        """Describe it.

        Args:
            keys: Who we are.
            servers: The list; what relays tell is added to it.
            on_event: Gets ``Connected``, ``Disconnected`` and the machine's events that answer no call.
            urls: Addresses to try before those of the list.
            only: Try nothing but ``urls``.
            tls: Context for ``wss``; None means the system's authorities.
            salvage: See the machine.
            extensions: See the machine.
            rng: Source of chance.
            clock: Unix seconds.
            retry_first_s: First pause.
            retry_cap_s: Longest pause.
        """
        self._keys = keys
        self._servers = servers
        self._on_event = on_event
        self._urls = list(dict.fromkeys(urls))
        self._only = only
        self._tls = tls
        self._salvage = salvage
        self._extensions = extensions
        self._rng = rng
        self._clock = clock
        self._backoff = Backoff(rng, first_s=retry_first_s, cap_s=retry_cap_s)
        self._seen = SeenMessages()
        self._pins: dict[str, bytes] = {}
        self._hostile_counts: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._ready = asyncio.Event()
        self._attempted = asyncio.Event()
        self._slots = asyncio.Semaphore(UNTOLD_MAX)
        self._outcomes: dict[bytes, deque[asyncio.Future[told.FrameOutcome]]] = {}
        self._advertised: dict[bytes, asyncio.Future[KeyAdvert | None]] = {}
        self._dialled_at = 0.0
        self._url = ""
        self._refusal: Refusal | None = None
        self._ready_at: float | None = None
        self._failure = "no connection yet"
        self._closed = False
        self.fatal: HostileRelayError | None = None
        """Why no relay will be tried any more."""

    # Life

    def start(self) -> None:
        """Begin to connect, and go on for ever."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """End the connection and everything that waits for it; safe to call twice."""
        self._closed = True
        self._ready.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def reached(self) -> None:
        """Return once a relay has taken us; raises RelayUnreachableError when the first round found none."""
        await self._attempted.wait()
        if self.fatal is not None or not self._ready.is_set():
            raise self.fatal or RelayUnreachableError(self._failure)

    @property
    def relay(self) -> str | None:
        """Address of the relay that we are connected to now."""
        return self._url if self._connection is not None and self._connection.machine.is_ready else None

    @property
    def features(self) -> Feature:
        """What that relay understands; nothing without one."""
        return self._connection.machine.features if self._connection is not None else Feature(0)

    # Requests

    async def ready(self, timeout_s: float) -> Connection:
        """Return the connection once it stands; raises RelayUnreachableError after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._connection is None or not self._connection.machine.is_ready:
                    if self.fatal is not None or self._closed:
                        raise self.fatal or RelayUnreachableError("the client is closed")
                    self._ready.clear()
                    await self._ready.wait()
        except TimeoutError as error:
            raise RelayUnreachableError(f"no relay within {timeout_s:g} s: {self._failure}") from error
        return self._connection

    async def deliver(self, frame: bytes, timeout_s: float) -> DeliveryCode | None:
        """Send a frame and return what became of it; None when nobody can tell.

        Raises:
            RelayUnreachableError: No connection stood within ``timeout_s``; the frame was not sent.
        """
        async with self._slots:
            while True:
                connection = await self.ready(timeout_s)
                outcome = await self._send(connection, frame)
                if outcome.sent:
                    break
                if connection.machine.is_ready:  # frames of callers who gave up fill it
                    return DeliveryCode.QUEUE_FULL
        too_big = outcome.code is None and connection.status == _TOO_BIG and len(frame) > _SMALL_FRAME_BYTES
        return DeliveryCode.TOO_LARGE if too_big else outcome.code

    async def advert_of(self, key: bytes, timeout_s: float) -> KeyAdvert | None:
        """Ask the key directory for a 32-byte key; None when nobody knows.

        Raises:
            RelayUnreachableError: No connection stood within ``timeout_s``.
        """
        connection = await self.ready(timeout_s)
        answer = self._advertised.get(key)
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
            self._advertised[key] = answer
            connection.machine.ask_key(key, now())
            connection.flush()
        return await asyncio.shield(answer)

    async def _send(self, connection: Connection, frame: bytes) -> told.FrameOutcome:
        waiting: asyncio.Future[told.FrameOutcome] = asyncio.get_running_loop().create_future()
        self._outcomes.setdefault(frame_hash(frame), deque()).append(waiting)
        connection.machine.send_frame(frame, now())
        connection.flush()
        return await waiting

    # The connection

    async def _run(self) -> None:
        while True:
            candidates = self._candidates()
            if not candidates:
                self._give_up()
                return
            for url in candidates:
                up_s = await self._try(url)
                last = up_s is not None or url == candidates[-1]
                if last and self._candidates():
                    self._attempted.set()
                await self._pause(url, up_s, self._backoff.next_s() if last else 0.0)
                if last:
                    break

    async def _try(self, url: str) -> float | None:
        """Connect, again when the challenge was hostile by chance; return how many seconds we were ready, or None."""
        up_s = await self._connect_once(url)
        while self._refusal is Refusal.HOSTILE_CHALLENGE and self._hostile_counts[url] <= HOSTILE_RETRIES_MAX:
            await self._pause(url, up_s, self._backoff.next_s())
            up_s = await self._connect_once(url)
        return up_s

    async def _pause(self, url: str, up_s: float | None, retry_s: float) -> None:
        self._on_event(Disconnected(url, self._failure, up_s, retry_s))
        await asyncio.sleep(retry_s)

    def _candidates(self) -> list[str]:
        listed = [] if self._only else [server.address for server in self._servers.in_order()]
        urls = dict.fromkeys([*self._urls, *listed])
        return [url for url in urls if self._hostile_counts.get(url, 0) <= HOSTILE_RETRIES_MAX]

    def _give_up(self) -> None:
        known = bool(self._hostile_counts)
        self.fatal = HostileRelayError(self._failure if known else "no relay is known; add one, or name one")
        self._attempted.set()
        self._ready.set()
        self._on_event(self.fatal)

    async def _connect_once(self, url: str) -> float | None:
        """Connect and stay connected; return how many seconds we were ready, or None."""
        loop = asyncio.get_running_loop()
        self._dialled_at = loop.time()
        self._url, self._refusal, self._ready_at = url, None, None
        try:
            link = await dial_websocket(url, context=self._tls, message_bytes_max=FRAME_BYTES_MAX, text=False)
        except (HostError, LocalError) as error:
            self._failure = str(error)
            return None
        machine = MerkClient(
            self._keys,
            self._rng,
            extensions=self._extensions,
            salvage=self._salvage,
            pinned_server=self._pin_of(url) if self._extensions else None,
            seen=self._seen,
        )
        connection = self._connection = Connection(machine, link, self._handle)
        polling = asyncio.create_task(self._poll(connection))
        try:
            await connection.run()
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            self._failure = self._reason(url, link.status)
            self._connection = None
            self._ready.clear()
        return self._up_s()

    def _up_s(self) -> float | None:
        if self._ready_at is None:
            return None
        up_s = asyncio.get_running_loop().time() - self._ready_at
        if up_s >= STABLE_S:
            self._backoff.reset()
        return up_s

    async def _poll(self, connection: Connection) -> None:
        while True:
            await self._ready.wait()
            connection.machine.ask_servers(now())
            connection.flush()
            await asyncio.sleep(SERVERS_POLL_S)

    def _pin_of(self, url: str) -> bytes | None:
        listed = self._servers.get(url)
        return listed.key if listed is not None and listed.key is not None else self._pins.get(url)

    def _reason(self, url: str, status: int | None) -> str:
        if self._refusal is not None:
            return f"{url} {_REFUSED.get(self._refusal, f'broke the protocol ({self._refusal.value})')}"
        said = _STATUSES.get(status or 0, f"ended (status {status})")
        return f"the connection to {url} {said}"

    # What the machine tells

    def _handle(self, event: told.Event) -> None:
        if isinstance(event, told.Ready):
            self._on_ready(event)
        elif isinstance(event, told.FrameOutcome):
            self._on_outcome(event)
        elif isinstance(event, told.KeyTold):
            self._answer(event.advert.key, event.advert)
        elif isinstance(event, told.KeyUnknownTold):
            self._answer(event.key, None)
        elif isinstance(event, told.ServersTold):
            self._learn([entry.address for entry in event.entries])
        elif isinstance(event, told.ServerAdded):
            self._learn([event.address])
        elif isinstance(event, told.Ended):
            self._on_ended(event)
        else:
            self._on_event(event)

    def _on_ready(self, event: told.Ready) -> None:
        loop, connection = asyncio.get_running_loop(), self._connection
        assert connection is not None
        self._ready_at = self._ready_at or loop.time()
        self._hostile_counts.pop(self._url, None)
        if event.authenticated:
            self._pins[self._url] = event.server
            self._servers.pin(self._url, event.server)
        connection.machine.advertise(now(), int(self._clock() * 1_000))
        self._ready.set()
        self._attempted.set()
        handshake_ms = (loop.time() - self._dialled_at) * 1_000
        self._on_event(Connected(self._url, event.server, event.authenticated, handshake_ms))

    def _on_outcome(self, event: told.FrameOutcome) -> None:
        waiting = self._outcomes.get(event.frame_hash)
        if waiting is None:
            return
        future = waiting.popleft()
        if not waiting:
            del self._outcomes[event.frame_hash]
        if not future.done():
            future.set_result(event)

    def _answer(self, key: bytes, advert: KeyAdvert | None) -> None:
        asked = self._advertised.pop(key, None)
        if asked is not None and not asked.done():
            asked.set_result(advert)

    def _learn(self, addresses: list[str]) -> None:
        fresh = self._servers.learn(addresses, told_by=self._url)
        if fresh:
            self._on_event(ServersLearnt(self._url, tuple(fresh)))

    def _on_ended(self, event: told.Ended) -> None:
        self._ready.clear()
        self._refusal = event.refusal
        if event.refusal is Refusal.HOSTILE_CHALLENGE:
            self._hostile_counts[self._url] = self._hostile_counts.get(self._url, 0) + 1


_REFUSED: Final = {
    Refusal.HOSTILE_CHALLENGE: "asks for a signature that could be misused; it was not given",
    Refusal.WRONG_SERVER: (
        "does not prove the key that it had before; if its operator changed the key, remove the server from the list "
        "and add it again, then start anew"
    ),
    Refusal.BAD_PEER_AUTH: "does not hold the key that it names",
    Refusal.AUTH_TIMEOUT: "did not finish the handshake; is it a MERK relay?",
}
_STATUSES: Final = {
    1001: "ended: the relay shuts down",
    1008: "was closed by the relay: too many frames that break its rules",
    1009: "was closed by the relay: a message was too large",
    1013: "was closed by the relay: it has no room, or we read too slowly",
    4401: "was closed by the relay: it did not accept our key",
    4408: "was closed by the relay: the handshake took too long",
    4409: "was taken over: another program connected with the same key",
}
