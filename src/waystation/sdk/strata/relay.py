"""A client of one Strata relay: publish, subscribe and get, over a connection that is restored by itself.

::

    async with RelayClient("wss://relay.example/strata", identity=identity) as relay:
        receipt = await relay.post({"type": "POST", "text": "hello"})
        async for delivery in relay.subscribe(Filters(types=("POST",))):
            print(delivery.packet.body["content"])

``protocols.strata.client`` makes the decisions; ``RelayList`` connects and reconnects. Events that answer no call, such
as a lost connection or a violation, go to ``on_event`` and are used for scores.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Self

from waystation.core.errors import LocalError, WaystationError
from waystation.protocols.strata.client.events import (
    Authenticated,
    AuthFailed,
    HistoryEnded,
    PacketArrived,
    ProtocolFault,
    Published,
    PublishRefused,
    PublishUnknown,
    ServerNamed,
    SubscriptionRefused,
    Violation,
)
from waystation.protocols.strata.client.identity import Identity
from waystation.protocols.strata.client.inspection import Fault
from waystation.protocols.strata.client.key_book import KEY_EVENT_TYPES, KeyBook
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet
from waystation.protocols.strata.relay_uri import http_base_of
from waystation.protocols.strata.wire import LIMIT_MAX
from waystation.sdk.backoff import CAP_S, FIRST_S, Backoff
from waystation.sdk.connection import NOT_ADMITTED, Connection, Ended, now
from waystation.sdk.errors import OutcomeUnknownError, RelayLiedError, RelayUnreachableError, RequestRefusedError
from waystation.sdk.relay_list import Disconnected, RelayList
from waystation.sdk.strata.fetch import as_packet_id, check_fetched, fetch_packet, refusal_of
from waystation.sdk.strata.subscription import BUFFER_MAX, Delivery, Subscription, check_filters
from waystation.transport.silence import SILENCE_S, SilencePolicy
from waystation.transport.tls import TlsContext
from waystation.transport.websocket.pipe import WebSocketPipe

__all__ = ["IN_DOUBT_S", "Receipt", "RelayClient"]

MESSAGE_BYTES_MAX: Final = 2 * 1_048_576 + 65_536  # the largest packet twice, as `mutate` may carry its header again
KEYS_WAIT_S: Final = 10.0  # for the key events of the authors, before a subscription begins without them
KEY_READINGS_MAX: Final = 8  # sets of authors whose key events are followed at a time
IN_DOUBT_S: Final = 90.0  # a relay that stood still for a minute still says whether it has the packet
TRIES_MAX: Final = 16  # every silence takes 10 s, and every connection that ends a pause
_BANNED: Final = "banned"  # specs/strata.md 12: the detail of an AUTH whose signer may not use the relay
_NO_STRATA: Final = "does not say what a Strata relay says; is the path right?"
_NO_TEXT: Final = 1003  # RFC 6455 7.4.1
_Outcome = Published | PublishRefused | PublishUnknown


class Receipt(NamedTuple):
    """A relay has stored a packet."""

    packet: Packet
    relay: str
    duplicate: bool
    duplicate_of: bytes | None
    downgrade: dict[str, str] | None
    latency_ms: float


class _Doubt:
    """Whether a packet has left for its relay."""

    has_left = False


class RelayClient(RelayList):
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
        retry_first_s: float = FIRST_S,
        retry_cap_s: float = CAP_S,
        silence_s: float = SILENCE_S,
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
            deliver_unverified: Deliver packets of authors whose keys are unknown, marked as such.
            on_event: Gets ``Connected``, ``Disconnected`` and the machine's events that answer no call.
            rng: Source of jitter.
            clock: Unix seconds.
            retry_first_s: First delay between connections.
            retry_cap_s: Longest delay between connections.
            silence_s: A relay from which nothing comes for so long is left, 1 to 3,600 seconds.

        Raises:
            LocalError: ``url`` is no WebSocket address.
        """
        chance = rng if rng is not None else random.SystemRandom()
        self._report = on_event or (lambda _event: None)
        super().__init__(
            self._on_contact,
            Backoff(chance, first_s=retry_first_s, cap_s=retry_cap_s),
            text=True,
            message_bytes_max=MESSAGE_BYTES_MAX,
            tls=tls,
            silence=SilencePolicy.of_seconds(silence_s),
        )
        self.url = url
        self._http_base = http_base if http_base is not None else http_base_of(url)
        self._identity = identity
        self.book = book if book is not None else KeyBook()
        self._clock = clock
        self._machine = StrataClient(
            chance,
            server_id=server_id,
            key_pair=identity.key_pair if identity is not None and authenticate else None,
            author_id=identity.did if identity is not None else None,
            capabilities=capabilities,
            require_auth=require_auth,
            book=self.book,
            deliver_unverified=deliver_unverified,
        )
        self._is_full = False
        self._refused: WaystationError | None = None
        """Why it is of no use to ask this relay; None once it serves us."""
        self._is_known = False
        """Whether it has ever said what a Strata relay says."""
        self._numbers = 0
        self._publishes: dict[str, asyncio.Future[_Outcome]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._keys: dict[tuple[str, ...], tuple[str, asyncio.Event]] = {}

    # Life

    async def __aenter__(self) -> Self:
        self.start()
        try:
            await self.reached()
        except BaseException:  # a caller that is cancelled gets no __aexit__
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the connection and everything that waits for it."""
        await super().aclose()
        for subscription in list(self._subscriptions.values()):
            await subscription.aclose()
        for waiting in self._publishes.values():
            if not waiting.done():
                waiting.set_exception(OutcomeUnknownError("the client was closed before the relay answered"))

    @property
    def _is_barred(self) -> bool:
        """Whether this relay does not admit our identity."""
        return isinstance(self._refused, RequestRefusedError)

    def _refuse(self, error: WaystationError) -> None:
        """End what waits for this relay, and what is asked until it serves us."""
        self._refused = error
        self._on_fatal(error)

    def _on_fatal(self, error: Exception) -> None:
        for subscription in list(self._subscriptions.values()):
            subscription.fail(error)
        for waiting in self._publishes.values():
            if not waiting.done():
                waiting.set_exception(error)
        for authors, (number, known) in list(self._keys.items()):
            if not known.is_set():  # who waits for them need not; the next one does, in case that we are served again
                self._keys[authors] = number, asyncio.Event()
                known.set()

    @property
    def server_id(self) -> str | None:
        """The relay's DID, pinned or first named."""
        return self._machine.server_id

    @property
    def ping_ms(self) -> float | None:
        """How long the newest ping took, in milliseconds; None before the first on this connection."""
        return self._pipe.ping_ms if self._pipe is not None else None

    def ping(self) -> None:
        """Measure anew how long a ping takes, if there is a connection."""
        if self._pipe is not None:
            self._pipe.ping()

    @property
    def _pipe(self) -> WebSocketPipe | None:
        pipe = self._connection.pipe if self._connection is not None else None
        return pipe if isinstance(pipe, WebSocketPipe) else None

    @property
    def authenticated(self) -> bool:
        """Whether the relay knows on this connection who we are."""
        return self._machine.authenticated

    # Publishing

    async def post(self, content: Mapping[str, Any], *, timeout_s: float = IN_DOUBT_S, **fields: Any) -> Receipt:
        """Sign content as a packet of now and publish it; ``fields`` as for ``Identity.packet``."""
        if self._identity is None:
            raise LocalError("publishing content needs an identity that signs it")
        packet = self._identity.packet(content, timestamp=int(self._clock()), **fields)
        return await self.publish(packet, timeout_s=timeout_s)

    async def publish(self, packet: Packet, *, timeout_s: float = IN_DOUBT_S, tries: int = TRIES_MAX) -> Receipt:
        """Publish a signed packet and return once the relay has stored it.

        Without an answer, and after a connection has ended, the same bytes are published again, up to ``tries``
        times: a relay that has stored them says so (STRATA-ASKAGAIN).

        Raises:
            RequestRefusedError: The relay said no.
            RelayUnreachableError: The packet has not left within ``timeout_s``.
            OutcomeUnknownError: No answer came in time; the packet may be stored.
        """
        doubt = _Doubt()
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(tries):
                    outcome = await self._publish_once(packet, doubt)
                    if isinstance(outcome, Published):
                        _, _, duplicate, same, downgrade, latency_us = outcome
                        return Receipt(packet, self.url, duplicate, same, downgrade, latency_us / 1_000)
                    if isinstance(outcome, PublishRefused):
                        raise refusal_of(self.url, outcome)
        except TimeoutError as error:
            if not doubt.has_left:
                raise RelayUnreachableError(f"no way to {self.url} within {timeout_s:g} s") from error
            raise OutcomeUnknownError(f"{self.url} did not answer within {timeout_s:g} s") from error
        raise OutcomeUnknownError(f"{self.url} did not say whether it has stored the packet")

    async def _publish_once(self, packet: Packet, doubt: "_Doubt") -> _Outcome:
        if self._refused is not None:
            raise self._in_doubt(self._refused, doubt)
        msg_id = self._machine.publish(packet, now())
        waiting: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self._publishes[msg_id] = waiting
        self._flush()
        try:
            await asyncio.wait([waiting])
        finally:
            del self._publishes[msg_id]
            was_sent = self._machine.withdraw(msg_id)
            is_answered = waiting.done() and not waiting.cancelled() and waiting.exception() is None
            doubt.has_left |= was_sent or is_answered
        error = waiting.exception()
        if error is not None:
            raise self._in_doubt(error, doubt)
        return waiting.result()

    def _in_doubt(self, error: BaseException, doubt: "_Doubt") -> BaseException:
        """Return what to raise for a relay that serves us no more; what has left before may be stored all the same."""
        if not doubt.has_left or isinstance(error, OutcomeUnknownError):
            return error
        return OutcomeUnknownError(f"it is not known whether {self.url} has stored the packet: {error}")

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
            follow: Go on with new packets; else end with history, or when the relay is lost and not reached again.
            profile: Replication profile.

        Raises:
            LocalError: ``limit`` is out of range, or ``filters`` are none.
        """
        check_filters(filters)
        if limit is not None and not 0 <= limit <= LIMIT_MAX:
            raise LocalError(f"limit is 0 to {LIMIT_MAX}, or None for everything")
        self._numbers += 1
        return Subscription(
            f"w{self._numbers}",
            filters,
            begin=self._begin,
            end=self._end,
            has_room=self._has_room,
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
        inspected = check_fetched(fetched, packet_id, int(self._clock()), self.book.keys_of)
        if isinstance(inspected, Fault) and inspected.reason == "signature":
            await self.reached()
            if not await self._read_keys((fetched["packet"]["author_id"],)):
                raise RelayUnreachableError(f"{self.url} does not answer for the key events of the author")
            inspected = check_fetched(fetched, packet_id, int(self._clock()), self.book.keys_of)
        if isinstance(inspected, Fault):
            if not inspected.blame:
                return None
            self._on_event(Violation(inspected.reason, inspected.detail, packet_id))
            raise RelayLiedError(f"{self.url} hands out a bad packet: {inspected.reason} ({inspected.detail})")
        packet, origin_type, downgrade, verified = inspected
        return Delivery(packet, fetched["received_at"], origin_type, downgrade, verified, None, self.url, live=False)

    # What subscriptions call

    async def _begin(self, subscription: Subscription) -> None:
        if (error := self._refused or self._fatal) is not None:
            subscription.fail(error)
            return
        self._subscriptions[subscription.id] = subscription
        filters = subscription.filters
        # Key events of authors who are named are followed, revocations too; those of others are fetched when a
        # signature does not verify, since nobody can follow the authors of a whole relay (STRATA-KEYS).
        if filters.authors and (not filters.types or not set(filters.types) <= set(KEY_EVENT_TYPES)):
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
        subscription.was_asked = self.connected
        self._flush()

    def _end(self, subscription: Subscription) -> None:
        if self._subscriptions.pop(subscription.id, None) is not None:
            self._machine.unsubscribe(subscription.id)
            self._flush()

    def _has_room(self) -> None:
        """Read on once no subscription has too much waiting."""
        waiting = max((each.waiting for each in self._subscriptions.values()), default=0)
        if self._is_full and waiting < BUFFER_MAX // 2:
            self._is_full = False
            if self._pipe is not None:
                self._pipe.resume()

    async def _read_keys(self, authors: tuple[str, ...]) -> bool:
        """Follow the key events of these authors, and return whether the stored ones are known by now."""
        if authors not in self._keys:
            if len(self._keys) >= KEY_READINGS_MAX:
                oldest, _ = self._keys.pop(next(iter(self._keys)))
                self._machine.unsubscribe(oldest)
            self._numbers += 1
            self._keys[authors] = (f"k{self._numbers}", asyncio.Event())
            filters = Filters(authors=authors, types=KEY_EVENT_TYPES)
            self._machine.subscribe(self._keys[authors][0], filters, now(), limit=LIMIT_MAX)
            self._flush()
        known = self._keys[authors][1]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEYS_WAIT_S):
                await known.wait()
        return known.is_set()

    # The connection

    def _candidates(self) -> list[str]:
        return [self.url]

    def _make(self, url: str) -> Connection:  # noqa: ARG002 - there is one
        return Connection(self._machine, self._handle, clock=self._clock)

    def _on_contact(self, event: object) -> None:
        """Report an event; a relay that was lost and cannot be reached again ends readings of history."""
        self._report(event)
        if isinstance(event, Disconnected) and event.up_s is None:
            lost = RelayUnreachableError(f"{self.url} was lost before the end of its history: {event.reason}")
            for each in [each for each in self._subscriptions.values() if each.was_asked and not each.follow]:
                each.fail(lost)
                self._end(each)

    def _on_open(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.was_asked = True
        self._on_established()
        if self._is_full and self._pipe is not None:
            self._pipe.pause()

    def _why_ended(self, ended: Ended) -> str:
        if ended.refusal is not None:
            return str(ended.refusal.value)
        if self._is_barred:
            return f"{self.url} {NOT_ADMITTED}"
        if ended.status == _NO_TEXT:
            sentence = f"{self.url} {_NO_STRATA}"
            self._refuse(RelayUnreachableError(sentence))
            return sentence
        return f"the connection to {self.url} ended (status {ended.status})"

    def _handle(self, event: object) -> None:
        if isinstance(event, AuthFailed) and event.detail == _BANNED:
            self._refuse(RequestRefusedError(self.url, event.code, event.detail, reason=f"it {NOT_ADMITTED}"))
        elif isinstance(event, ProtocolFault) and not self._is_known:
            self._refuse(RelayUnreachableError(f"{self.url} {_NO_STRATA}"))
        elif isinstance(event, Authenticated) or (isinstance(event, ServerNamed) and not self._is_barred):
            self._refused = None
        self._is_known = self._is_known or not isinstance(event, ProtocolFault)
        if isinstance(event, PacketArrived):
            self._on_packet(event)
        elif isinstance(event, Published | PublishRefused | PublishUnknown):
            waiting = self._publishes.get(event.msg_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(event)
            self._on_event(event)
        elif isinstance(event, HistoryEnded):
            if event.subscription_id in self._subscriptions:
                self._subscriptions[event.subscription_id].on_history_ended()
            self._keys_known(event.subscription_id)
        elif isinstance(event, SubscriptionRefused):
            self._on_refused(event)
        else:
            self._on_event(event)

    def _on_packet(self, event: PacketArrived) -> None:
        subscription = self._subscriptions.get(event.subscription_id or "")
        if subscription is None:
            return
        seen = (event.packet, event.received_at, event.origin_type, event.downgrade, event.verified, event.cursor)
        subscription.deliver(Delivery(*seen, self.url, live=subscription.history_ended.is_set()))
        if subscription.waiting >= BUFFER_MAX:
            self._is_full = True
            if self._pipe is not None:
                self._pipe.pause()

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
