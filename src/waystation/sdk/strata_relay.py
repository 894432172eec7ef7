"""One Strata relay for programs: publish, subscribe, get, over a connection that comes back by itself.

::

    async with RelayClient("wss://relay.example/strata", identity=identity) as relay:
        receipt = await relay.post({"type": "POST", "text": "hello"})
        async for delivery in relay.subscribe(Filters(types=("POST",))):
            print(delivery.packet.body["content"])

All decisions are ``protocols.strata.client``'s; this drives it over a WebSocket. What happens besides, such as a broken
connection or a violation, goes to ``on_event``: whoever keeps scores listens there.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Self

from waystation.core.errors import HostError, LocalError
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.strata.client import StrataClient
from waystation.protocols.strata.client_events import (
    CloseConnection,
    HistoryEnded,
    PacketArrived,
    Published,
    PublishRefused,
    PublishUnknown,
    SubscriptionRefused,
    Violation,
)
from waystation.protocols.strata.inspection import Fault
from waystation.protocols.strata.key_book import KEY_EVENT_TYPES, KeyBook
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet
from waystation.protocols.strata.wire import LIMIT_MAX
from waystation.sdk.bhumi_retry import Backoff
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.link import now
from waystation.sdk.strata_connection import Connected, Disconnected
from waystation.sdk.strata_errors import OutcomeUnknownError, RelayLiedError, RequestRefusedError
from waystation.sdk.strata_fetch import as_packet_id, check_fetched, fetch_packet
from waystation.sdk.strata_keys import Identity
from waystation.sdk.strata_subscription import BUFFER_MAX, Delivery, Subscription
from waystation.sdk.strata_uri import http_base_of
from waystation.transport.http_get import TlsContext
from waystation.transport.websocket_dial import WebSocketLink, dial_websocket

__all__ = ["Receipt", "RelayClient"]

MESSAGE_BYTES_MAX: Final = 2 * 1_048_576 + 65_536  # the largest packet twice, as `mutate` may carry its header again
KEYS_WAIT_S: Final = 10.0  # for the key events of the authors, before a subscription begins without them
STABLE_S: Final = 30.0  # a connection that lived so long makes the next retry a quick one
CLOSE_WAIT_S: Final = 1.0
KEY_READINGS_MAX: Final = 8  # sets of authors whose key events are followed at a time
_Outcome = Published | PublishRefused | PublishUnknown


class Receipt(NamedTuple):
    """A relay has stored a packet."""

    packet: Packet
    relay: str
    duplicate: bool
    duplicate_of: bytes | None
    downgrade: dict[str, str] | None
    latency_ms: float


class RelayClient:
    """A client of one relay; use it in ``async with``, or ``start`` and ``aclose`` it."""

    def __init__(
        self,
        url: str,
        *,
        identity: Identity | None = None,
        authenticate: bool = True,
        require_auth: bool = False,
        capabilities: tuple[str, ...] = ("publish", "subscribe"),
        server_id: str | None = None,
        http_base: str | None = None,
        tls: TlsContext | None = None,
        book: KeyBook | None = None,
        deliver_unverified: bool = False,
        on_event: Callable[[object], None] | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        retry_first_s: float = 0.5,
        retry_cap_s: float = 60.0,
    ) -> None:
        """Describe a client.

        Args:
            url: ``wss://host/strata``.
            identity: Signs packets and AUTH; None reads only, anonymously.
            authenticate: Whether the identity is shown to the relay; packets can be published without.
            require_auth: Do nothing before AUTH_OK.
            capabilities: What to ask for.
            server_id: The relay's DID as pinned; None takes the first one it names.
            http_base: Base of its HTTP surface; derived from ``url`` when None.
            tls: Context for ``wss`` and ``https``; None means the system's authorities.
            book: Keys of authors, shared between relays.
            deliver_unverified: Deliver packets of authors whose keys nobody knows, marked as such.
            on_event: Gets ``Connected``, ``Disconnected`` and the machine's events that answer no call.
            rng: Source of jitter.
            clock: Unix seconds.
            retry_first_s: First delay between connections.
            retry_cap_s: Longest delay between connections.

        Raises:
            LocalError: ``url`` is no WebSocket address.
        """
        self.url = url
        self._http_base = http_base if http_base is not None else http_base_of(url)
        self._identity = identity
        self._tls = tls
        self.book = book if book is not None else KeyBook()
        self._on_event = on_event or (lambda _event: None)
        self._clock = clock
        chance = rng if rng is not None else random.SystemRandom()
        self._backoff = Backoff(chance, first_s=retry_first_s, cap_s=retry_cap_s)
        self._machine = StrataClient(
            chance,
            server_id=server_id,
            key_pair=identity.key_pair if identity is not None and authenticate else None,
            author_id=identity.did if identity is not None else None,
            capabilities=capabilities,
            require_auth=require_auth,
            keys_of=self.book.keys_of,
            deliver_unverified=deliver_unverified,
        )
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._to_send: asyncio.Queue[bytes | CloseConnection] = asyncio.Queue()
        self._attempted = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._link: WebSocketLink | None = None
        self._failure = ""
        self._closing = ""
        self._numbers = 0
        self._publishes: dict[str, asyncio.Future[_Outcome]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._keys: dict[tuple[str, ...], tuple[str, asyncio.Event]] = {}
        self.connected = False
        """Whether a connection stands now."""

    # Life

    async def __aenter__(self) -> Self:
        self.start()
        try:
            await self.reached()
        except RelayUnreachableError:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def start(self) -> None:
        """Begin to connect, and go on for ever."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """End the connection and everything that waits for it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for subscription in list(self._subscriptions.values()):
            await subscription.aclose()
        for waiting in self._publishes.values():
            if not waiting.done():
                waiting.set_exception(OutcomeUnknownError("the client was closed before the relay answered"))

    async def reached(self) -> None:
        """Return once a connection stands; raises RelayUnreachableError when the last attempt failed."""
        await self._attempted.wait()
        if not self.connected and self._failure:
            raise RelayUnreachableError(self._failure)

    @property
    def server_id(self) -> str | None:
        """The relay's DID, pinned or first named."""
        return self._machine.server_id

    @property
    def ping_ms(self) -> float | None:
        """How long the newest ping took, in milliseconds; None before the first on this connection."""
        return self._link.ping_ms if self._link is not None else None

    @property
    def authenticated(self) -> bool:
        """Whether the relay knows on this connection who we are."""
        return self._machine.authenticated

    # Publishing

    async def post(self, content: Mapping[str, Any], *, timeout_s: float = 30.0, **fields: Any) -> Receipt:
        """Sign content as a packet of now and publish it; ``fields`` as for ``Identity.packet``."""
        if self._identity is None:
            raise LocalError("publishing content needs an identity that signs it")
        packet = self._identity.packet(content, timestamp=int(self._clock()), **fields)
        return await self.publish(packet, timeout_s=timeout_s)

    async def publish(self, packet: Packet, *, timeout_s: float = 30.0, tries: int = 2) -> Receipt:
        """Publish a signed packet and return once the relay has stored it.

        Without an answer the same bytes are published again, which is safe, up to ``tries`` times.

        Raises:
            RequestRefusedError: The relay said no.
            OutcomeUnknownError: No answer came in time; the packet may be stored.
        """
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(tries):
                    outcome = await self._publish_once(packet)
                    if isinstance(outcome, Published):
                        latency_ms = outcome.latency_us / 1_000
                        _, _, duplicate, same, downgrade, _ = outcome
                        return Receipt(packet, self.url, duplicate, same, downgrade, latency_ms)
                    if isinstance(outcome, PublishRefused):
                        _, _, code, detail, reason, retry_after_s, _ = outcome
                        raise RequestRefusedError(self.url, code, detail, retry_after_s, reason)
        except TimeoutError as error:
            raise OutcomeUnknownError(f"{self.url} did not answer within {timeout_s:g} s") from error
        raise OutcomeUnknownError(f"{self.url} did not say whether it has stored the packet")

    async def _publish_once(self, packet: Packet) -> _Outcome:
        msg_id = self._machine.publish(packet, now())
        waiting: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self._publishes[msg_id] = waiting
        self._pump()
        try:
            return await waiting
        finally:
            del self._publishes[msg_id]
            self._machine.withdraw(msg_id)

    # Reading

    def subscribe(
        self,
        filters: Filters = Filters(),  # noqa: B008 - frozen
        *,
        cursor: str | None = None,
        received_at: int | None = None,
        limit: int | None = None,
        follow: bool = True,
        profile: str | None = None,
    ) -> Subscription:
        """Return an iterator over what is stored and, with ``follow``, what comes after it.

        Args:
            filters: What is wanted.
            cursor: Where to go on, from an earlier ``Subscription.cursor`` with the same filters.
            received_at: The ``Subscription.received_at`` beside it, for a relay that has forgotten the cursor.
            limit: At most so many stored packets, 0 to 500; None for all of them.
            follow: Go on with new packets; else end with history.
            profile: Replication profile.

        Raises:
            LocalError: ``limit`` is out of range.
        """
        if limit is not None and not 0 <= limit <= LIMIT_MAX:
            raise LocalError(f"limit is 0 to {LIMIT_MAX}, or None for everything")
        self._numbers += 1
        return Subscription(
            self,
            f"w{self._numbers}",
            filters,
            cursor=cursor,
            received_at=received_at,
            limit=limit,
            follow=follow,
            profile=profile,
        )

    async def get(self, packet_id: bytes | str, *, timeout_s: float = 10.0) -> Delivery | None:
        """Fetch one packet by its id (32 bytes, or ``0x…``) over HTTP; None when the relay does not have it (any more).

        Raises:
            LocalError: That is no packet id.
            HostError: The relay cannot be reached.
            RequestRefusedError: It answers with another status.
            RelayLiedError: What it answers is not that packet, or not its author's.
        """
        packet_id = as_packet_id(packet_id)
        fetched = await fetch_packet(self._http_base, packet_id, tls=self._tls, timeout_s=timeout_s)
        if fetched is None:
            return None
        inspected = check_fetched(fetched, int(self._clock()), self.book.keys_of)
        if isinstance(inspected, Fault) and inspected.reason == "signature" and self.connected:
            await self._read_keys((fetched.body["packet"]["author_id"],))
            inspected = check_fetched(fetched, int(self._clock()), self.book.keys_of)
        if isinstance(inspected, Fault):
            if not inspected.blame:
                return None
            self._on_event(Violation(inspected.reason, inspected.detail, packet_id))
            raise RelayLiedError(f"{self.url} hands out a bad packet: {inspected.reason} ({inspected.detail})")
        packet, origin_type, downgrade, verified = inspected
        return Delivery(packet, fetched.received_at, origin_type, downgrade, verified, None, self.url, live=False)

    # What subscriptions call

    async def begin(self, subscription: Subscription) -> None:
        """Ask the relay for a subscription; see ``SubscriptionOwner``."""
        self._subscriptions[subscription.id] = subscription
        filters = subscription.filters
        if not filters.types or not set(filters.types) <= set(KEY_EVENT_TYPES):
            await self._read_keys(filters.authors)
        if subscription.id not in self._subscriptions:
            return
        self._machine.subscribe(
            subscription.id,
            filters,
            now(),
            cursor=subscription.cursor,
            received_at=subscription.received_at,
            limit=LIMIT_MAX if subscription.limit is None else subscription.limit,
            follow=subscription.limit is None,
            profile=subscription.profile,
        )
        self._pump()

    def end(self, subscription: Subscription) -> None:
        """Forget a subscription; see ``SubscriptionOwner``."""
        if self._subscriptions.pop(subscription.id, None) is not None:
            self._machine.unsubscribe(subscription.id)
            self._pump()

    def has_room(self) -> None:
        """Read on once no subscription has too much waiting; see ``SubscriptionOwner``."""
        if not self._room.is_set() and self._waiting() < BUFFER_MAX // 2:
            self._room.set()

    def _waiting(self) -> int:
        return max((each.waiting for each in self._subscriptions.values()), default=0)

    async def _read_keys(self, authors: tuple[str, ...]) -> None:
        """Follow the key events of these authors, and return once the stored ones are known."""
        if authors not in self._keys:
            if len(self._keys) >= KEY_READINGS_MAX:
                oldest, _ = self._keys.pop(next(iter(self._keys)))
                self._machine.unsubscribe(oldest)
            self._numbers += 1
            self._keys[authors] = (f"k{self._numbers}", asyncio.Event())
            filters = Filters(authors=authors, types=KEY_EVENT_TYPES)
            self._machine.subscribe(self._keys[authors][0], filters, now(), limit=LIMIT_MAX)
            self._pump()
        known = self._keys[authors][1]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEYS_WAIT_S):
                await known.wait()

    # The connection

    async def _run(self) -> None:
        while True:
            up_s = await self._connect_once()
            retry_s = self._backoff.next_s()
            self._on_event(Disconnected(self._failure, up_s, retry_s))
            self._attempted.set()
            await asyncio.sleep(retry_s)

    async def _connect_once(self) -> float | None:
        """Connect and stay connected; return how long, or None."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            link = await dial_websocket(self.url, context=self._tls, message_bytes_max=MESSAGE_BYTES_MAX)
        except (HostError, LocalError) as error:
            self._failure = str(error)
            return None
        stood = loop.time()
        self.connected, self._failure, self._closing = True, "", ""
        self._link = link
        self._on_event(Connected((stood - began) * 1_000))
        try:
            await self._drive(link)
        finally:
            self.connected, self._link = False, None
            self._failure = self._closing or f"the connection to {self.url} ended (status {link.status})"
        if loop.time() - stood >= STABLE_S:
            self._backoff.reset()
        return loop.time() - stood

    async def _drive(self, link: WebSocketLink) -> None:
        self._to_send = asyncio.Queue()
        self._machine.opened(now(), int(self._clock()))
        self._pump()
        self._attempted.set()
        writing = asyncio.create_task(self._write(link))
        try:
            while (data := await link.receive()) is not None:
                self._machine.receive(data, now(), int(self._clock()))
                self._pump()
                await self._room.wait()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._machine.closed(now())
            self._pump()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_WAIT_S):
                    await link.close()

    async def _write(self, link: WebSocketLink) -> None:
        while True:
            item = await self._to_send.get()
            if isinstance(item, CloseConnection):
                self._closing = item.reason
                await link.close(item.status)
                return
            try:
                await link.send(item)
            except HostError:
                return  # the reader ends, too, and knows why

    def _pump(self) -> None:
        """Send and tell what the machine has for us, and set its timer."""
        for output in self._machine.take():
            if isinstance(output, bytes | CloseConnection):
                self._to_send.put_nowait(output)
            else:
                self._handle(output)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._machine.deadline()
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(due / MICROSECONDS_PER_SECOND, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._machine.wake(now())
        self._pump()

    def _handle(self, event: object) -> None:
        if isinstance(event, PacketArrived):
            self._on_packet(event)
        elif isinstance(event, Published | PublishRefused | PublishUnknown):
            waiting = self._publishes.get(event.msg_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(event)
            self._on_event(event)
        elif isinstance(event, HistoryEnded):
            self._on_history_ended(event.subscription_id)
        elif isinstance(event, SubscriptionRefused):
            self._on_refused(event)
        else:
            self._on_event(event)

    def _on_packet(self, event: PacketArrived) -> None:
        packet, received_at = event.packet, event.received_at
        if packet.content_type in KEY_EVENT_TYPES:
            self.book.learn(packet, received_at)
        subscription = self._subscriptions.get(event.subscription_id or "")
        if subscription is None or self.book.judge(packet, received_at) is not None:
            return
        live = subscription.history_ended.is_set()
        origin_type, downgrade, verified = event.origin_type, event.downgrade, event.verified
        subscription.deliver(
            Delivery(packet, received_at, origin_type, downgrade, verified, event.cursor, self.url, live)
        )
        if subscription.waiting >= BUFFER_MAX:
            self._room.clear()

    def _on_history_ended(self, subscription_id: str) -> None:
        if subscription_id in self._subscriptions:
            self._subscriptions[subscription_id].on_history_ended()
        self._keys_known(subscription_id)

    def _on_refused(self, event: SubscriptionRefused) -> None:
        subscription = self._subscriptions.pop(event.subscription_id, None)
        if subscription is not None:
            subscription.fail(RequestRefusedError(self.url, event.code, event.detail, event.retry_after_s))
            self._on_event(event)
        self._keys_known(event.subscription_id)

    def _keys_known(self, subscription_id: str) -> None:
        for name, known in self._keys.values():
            if name == subscription_id:
                known.set()
