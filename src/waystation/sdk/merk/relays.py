"""Keeps a MERK client connected to the first relay of its list that accepts it, and matches answers to requests.

``MerkClient`` has one and sends frames through it. A relay that sends four challenges in a row that could be misused is
not tried again. One in sixty honest challenges of a reference relay looks like that, but four in a row do not
(specs/merk.md 8).

Addresses that relays send are tried last, and only where a key came with them, which the relay there must prove. While
such a relay has us, the user's own are tried now and then, and taken as soon as one answers.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from waystation.protocols.merk.client import events
from waystation.protocols.merk.client.machine import UNTOLD_MAX, MerkClient
from waystation.protocols.merk.client.seen_messages import SeenMessages
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import FRAME_BYTES_USUAL, DeliveryCode, Feature, Info, KeyAdvert, ServerEntry
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.wire import frame_hash
from waystation.sdk.backoff import Backoff
from waystation.sdk.connection import NOT_ADMITTED, Connection, Ended, now
from waystation.sdk.errors import HostileRelayError, RelayUnreachableError
from waystation.sdk.merk.outgoing import Outgoing
from waystation.sdk.merk.servers import Servers
from waystation.sdk.relay_list import RelayList
from waystation.sdk.store_news import StoreWatch
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import TlsContext

__all__ = ["HOSTILE_RETRIES_MAX", "RETURN_FIRST_S", "SERVERS_POLL_S", "MerkRelays", "ServersLearnt"]

SERVERS_POLL_S: Final = 30.0  # as the original's clients do; specs/merk.md 4
HOSTILE_RETRIES_MAX: Final = 3  # specs/merk.md 8
FRAME_BYTES_MAX: Final = 67_108_864  # the largest that a relay of ours can be set to forward
RETURN_FIRST_S: Final = 15.0
"""After so long at a relay that another one named, the user's own are tried; then half as often each time."""
_RETURN_CAP_S: Final = 300.0
_RETURN_WITHIN_S: Final = 5.0
_RATE_PAUSES_S: Final = (0.25, 0.5, 1.0, 2.0)  # the operator may have set a lower rate than ``Outgoing`` paces to
_TOO_BIG: Final = 1009
_SMALL_FRAME_BYTES: Final = 1_024  # no relay of ours can be set to take less


class ServersLearnt(NamedTuple):
    """A relay sent addresses that were not in the list."""

    relay: str
    addresses: tuple[str, ...]


class MerkRelays(RelayList):
    """The connection to the first relay that takes us, and what waits for its answers."""

    def __init__(
        self,
        keys: Keys,
        servers: Servers,
        on_event: Callable[[object], None],
        *,
        urls: Sequence[str],
        only: bool,
        tls: TlsContext | None,
        salvage: bool,
        extensions: bool,
        rng: random.Random,
        clock: Callable[[], float],
        backoff: Backoff,
        silence: SilencePolicy,
        disk: StoreWatch,
        seen: SeenMessages,
        is_able: Callable[[bytes], bool],
    ) -> None:
        """Describe it; ``on_event`` gets what answers no call, and the other options are those of the client."""
        super().__init__(on_event, backoff, text=False, message_bytes_max=FRAME_BYTES_MAX, tls=tls, silence=silence)
        self._keys = keys
        self._servers = servers
        self._urls = list(dict.fromkeys(urls))
        self._only = only
        self._salvage = salvage
        self._extensions = extensions
        self._rng = rng
        self._clock = clock
        self._disk = disk
        self._seen = seen
        self._is_able = is_able
        self._pins: dict[str, bytes] = {}
        self._hostile_counts: dict[str, int] = {}
        self._machine: MerkClient
        self._ended: Ended | None = None
        self._outgoing: Outgoing | None = None
        self._returning: asyncio.Task[None] | None = None
        self._outcomes: dict[bytes, deque[asyncio.Future[events.FrameOutcome]]] = {}
        self._advertised: dict[bytes, asyncio.Future[KeyAdvert | None]] = {}

    @property
    def relay(self) -> str | None:
        """Address of the relay that we are connected to now."""
        return self._url if self.connected else None

    @property
    def features(self) -> Feature:
        """What that relay understands; nothing without one."""
        return self._machine.features if self._connection is not None else Feature(0)

    @property
    def frame_bytes_max(self) -> int:
        """Largest frame that the relay takes, header included, as far as it has said so."""
        return self._machine.frame_bytes_max if self._connection is not None else FRAME_BYTES_USUAL

    async def aclose(self) -> None:
        """End the connection; safe to call twice."""
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.gather(self._returning, return_exceptions=True)
        await super().aclose()

    @property
    def server(self) -> bytes:
        """Key that the relay names, 32 bytes; proved where ``features`` are."""
        return self._machine.server

    # Requests

    async def deliver(self, frame: bytes, timeout_s: float) -> DeliveryCode | None:
        """Send a frame and return what became of it; None when that is unknown.

        Raises:
            RelayUnreachableError: No connection was established within ``timeout_s``; the frame was not sent.
        """
        if self._outgoing is None:
            self._outgoing = Outgoing(UNTOLD_MAX)
        async with self._outgoing.room(len(frame)):
            code = await self._deliver(frame, timeout_s)
            for pause_s in _RATE_PAUSES_S:
                if code is not DeliveryCode.RATE:
                    break
                await asyncio.sleep(pause_s)
                code = await self._deliver(frame, timeout_s)
        return code

    async def _deliver(self, frame: bytes, timeout_s: float) -> DeliveryCode | None:
        while True:
            connection = await self.established(timeout_s)
            outcome = await self._send(frame)
            if outcome.sent or outcome.code is not None:
                break
            if self._machine.is_ready:  # frames of callers who gave up fill it
                return DeliveryCode.QUEUE_FULL
        status = connection.ended.result().status if connection.ended.done() else None
        too_big = outcome.code is None and status == _TOO_BIG and len(frame) > _SMALL_FRAME_BYTES
        return DeliveryCode.TOO_LARGE if too_big else outcome.code

    async def advert_of(self, key: bytes, timeout_s: float) -> KeyAdvert | None:
        """Ask the key directory for a 32-byte key; None when it is unknown.

        Raises:
            RelayUnreachableError: No connection was established within ``timeout_s``.
        """
        await self.established(timeout_s)
        answer = self._advertised.get(key)
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
            self._advertised[key] = answer
            self._machine.ask_key(key, now())
            self._flush()
        return await asyncio.shield(answer)

    def say_mail(self, info: Info) -> bool:
        """Say something about our mailbox; False without a relay that proved its key and has mailboxes."""
        said = self._connection is not None and self._machine.say_mail(info)
        if said:
            self._flush()
        return said

    async def _send(self, frame: bytes) -> events.FrameOutcome:
        waiting: asyncio.Future[events.FrameOutcome] = asyncio.get_running_loop().create_future()
        self._outcomes.setdefault(frame_hash(frame), deque()).append(waiting)
        self._machine.send_frame(frame, now())
        self._flush()
        return await waiting

    # The connection

    def _candidates(self) -> list[str]:
        urls = dict.fromkeys([*self._own(), *(() if self._only else self._learnt())])
        return [url for url in urls if self._hostile_counts.get(url, 0) <= HOSTILE_RETRIES_MAX]

    def _own(self) -> list[str]:
        """Return the addresses of the user, in their order."""
        listed = [] if self._only else [server.address for server in self._servers.in_order() if server.added]
        return list(dict.fromkeys([*self._urls, *listed]))

    def _learnt(self) -> list[str]:
        """Return the addresses that relays have named with a key, which the relay there must prove."""
        return [each.address for each in self._servers.in_order() if not each.added and each.key is not None]

    def _make(self, url: str) -> Connection:
        self._ended = None
        self._machine = MerkClient(
            self._keys,
            self._rng,
            extensions=self._extensions,
            salvage=self._salvage,
            pinned_server=self._pin_of(url) if self._extensions else None,
            seen=self._seen,
            is_able=self._is_able,
        )
        return Connection(self._machine, self._handle, clock=self._clock)

    def _why_ended(self, ended: Ended) -> str:
        self._ended = ended
        url, refusal = self._url, ended.refusal
        if isinstance(refusal, Refusal):
            if refusal is Refusal.HOSTILE_CHALLENGE:
                self._hostile_counts[url] = self._hostile_counts.get(url, 0) + 1
            return f"{url} {_REFUSED.get(refusal, f'broke the protocol ({refusal.value})')}"
        said = _STATUSES.get(ended.status or 0, f"ended (status {ended.status})")
        return f"the connection to {url} {said}"

    def _tries_again(self, url: str) -> bool:
        """Return whether the challenge was hostile, perhaps by chance."""
        was_hostile = self._ended is not None and self._ended.refusal is Refusal.HOSTILE_CHALLENGE
        return was_hostile and self._hostile_counts[url] <= HOSTILE_RETRIES_MAX

    def _give_up(self) -> RelayUnreachableError:
        if self._hostile_counts:
            return HostileRelayError(self._failure)
        return RelayUnreachableError("no relay is known; add one, or name one")

    def _ask_servers(self, machine: MerkClient) -> None:
        """Ask the relay now and then which other relays it knows, as long as it has us."""
        if machine.is_ready:
            machine.ask_servers(now())
            self._flush()
            asyncio.get_running_loop().call_later(SERVERS_POLL_S, self._ask_servers, machine)

    def _pin_of(self, url: str) -> bytes | None:
        listed = self._servers.get(url)
        return listed.key if listed is not None and listed.key is not None else self._pins.get(url)

    # Events of the machine

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, events.Ready):
            self._on_ready(event)
        elif isinstance(event, events.FrameOutcome):
            self._on_outcome(event)
        elif isinstance(event, events.KeyFound):
            self._answer(event.advert.key, event.advert)
        elif isinstance(event, events.KeyNotFound):
            self._answer(event.key, None)
        elif isinstance(event, events.ServersListed):
            self._learn(event.entries)
        # An address without a key cannot be held to anything, so a client of ours does nothing with it.
        elif not isinstance(event, events.Ended | events.ServerAdded):  # the connection knows why it ended
            self._on_event(event)

    def _on_ready(self, event: events.Ready) -> None:
        self._hostile_counts.pop(self._url, None)
        if event.authenticated:
            self._pins[self._url] = event.server
            self._disk.attempt(lambda: self._servers.pin(self._url, event.server))
        self._machine.advertise(now(), int(self._clock() * 1_000))
        self._ask_servers(self._machine)
        if self._url not in self._own() and (self._returning is None or self._returning.done()):
            self._returning = asyncio.get_running_loop().create_task(self._return())
        self._on_established(event.server, authenticated=event.authenticated)

    def _on_outcome(self, event: events.FrameOutcome) -> None:
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

    async def _return(self) -> None:
        """Go back to a relay of the user's own as soon as one answers and nothing is under way."""
        pause_s = RETURN_FIRST_S
        while self._url not in self._own():
            await asyncio.sleep(pause_s)
            pause_s = min(_RETURN_CAP_S, 2 * pause_s)
            if self._outcomes or not self.connected or self._connection is None:
                continue
            for url in self._own():
                if await _answers(url) and not self._outcomes:
                    self._connection.close()
                    return

    def _learn(self, entries: Iterable[ServerEntry]) -> None:
        self._disk.attempt(lambda: self._take(entries))

    def _take(self, entries: Iterable[ServerEntry]) -> None:
        fresh = self._servers.learn(entries, learnt_from=self._url)
        if fresh:
            self._on_event(ServersLearnt(self._url, tuple(fresh)))


async def _answers(url: str) -> bool:
    """Return whether anybody listens at an address."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "wss" else 80)
    with contextlib.suppress(OSError):  # TimeoutError too
        async with asyncio.timeout(_RETURN_WITHIN_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()
        return True
    return False


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
    1003: "was closed by the relay: it takes no binary messages, so this is no MERK relay; is the path right?",
    1008: "was closed by the relay: too many frames that break its rules",
    1009: "was closed by the relay: a message was too large",
    1013: "was closed by the relay: it has no room, or we read too slowly",
    4401: f"was closed by the relay: it did not accept our key, and {NOT_ADMITTED}",
    4408: "was closed by the relay: the handshake took too long",
    4409: "was taken over: another program connected with the same key",
}
