"""The client of a Strata relay: a machine that publishes, subscribes and authenticates at one relay.

``sdk.strata.relay`` drives it for applications; a relay reads its upstreams with it. With ``keys_of`` every packet is
verified here; without (in replication) the caller verifies it. One machine serves one relay over many connections.
``connect`` begins a connection; ``disconnect`` or a ``Close`` of its own ends it. Subscriptions resume at their
position on the next one. The states::

    CLOSED          connect -> ANONYMOUS
    ANONYMOUS       AUTH_CHALLENGE that passes the guards, with a key -> AUTHENTICATING
    AUTHENTICATING  AUTH_OK -> AUTHENTICATED; ERROR, or 5 s of silence -> ANONYMOUS (again on a new challenge only)
    AUTHENTICATED   until closed

Requests wait for authentication. Without a key, after a failed AUTH, or if no challenge arrives, they are sent
anonymously; with ``require_auth`` only after AUTH_OK. Rate-limited requests are repeated. A PUBLISH without an answer
ends as ``PublishUnknown``, never as success. Messages of the relay become events of ``take_events`` or are ignored;
every table has a named limit. Each ``Send`` is one text frame.
Spec: RFC-0004 3, 6.1, 7; specs/strata.md 10 to 13, 18.
"""

import itertools
import random
from enum import Enum, auto
from typing import Any, Final

from waystation.core.alarms import Alarms
from waystation.core.dids import encode_did
from waystation.core.effects import Close, Effect, Peer, make_send
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant, after_ms
from waystation.core.machine import AsksNothing, IgnoresPressure
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.canonical import MESSAGE_DEPTH_MAX, parse
from waystation.protocols.strata.client.arrivals import Arrivals
from waystation.protocols.strata.client.auth import AUTH_ATTEMPTS_MAX, Authentication
from waystation.protocols.strata.client.events import (
    Authenticated,
    AuthFailed,
    ChallengeRefused,
    ClientEnd,
    Event,
    ProtocolFault,
    RelayError,
    ServerNamed,
)
from waystation.protocols.strata.client.inspection import KeysOf, own_key
from waystation.protocols.strata.client.key_book import KeyBook
from waystation.protocols.strata.client.publishing import Publishing
from waystation.protocols.strata.client.subscriptions import Outlet, Subscriptions
from waystation.protocols.strata.client.wire import text_in, texts_in
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet
from waystation.protocols.strata.refusals import RefusedError
from waystation.protocols.strata.wire import ID_CHARS_MAX, LIMIT_DEFAULT

__all__ = ["StrataClient"]

FAULTS_MAX: Final = 20  # frames in a row that are no messages; the relay closes after as many of ours
CHALLENGE_WAIT_MS: Final = 3_000  # ours: how long requests wait for a challenge that need not come
_POLICY_VIOLATION: Final = 1008  # RFC 6455 7.4.1
_RELEASE_ALARM: Final = 0
_AUTH_ALARM: Final = 1
_FIRST_NUMBER: Final = 2


class _State(Enum):
    CLOSED = auto()
    ANONYMOUS = auto()
    AUTHENTICATING = auto()
    AUTHENTICATED = auto()


class StrataClient(AsksNothing, IgnoresPressure):
    """The client of one relay."""

    def __init__(
        self,
        rng: random.Random,
        *,
        server_id: str | None = None,
        key_pair: KeyPair | None = None,
        author_id: str | None = None,
        capabilities: tuple[str, ...] = ("publish", "subscribe"),
        require_auth: bool = False,
        keys_of: KeysOf | None = own_key,
        book: KeyBook | None = None,
        deliver_unverified: bool = False,
        unsolicited: bool = False,
        close_on_violation: bool = True,
    ) -> None:
        """Describe a client; call ``set_wall`` before the first ``connect``.

        Args:
            rng: Source of jitter.
            server_id: The relay's DID; None takes the first one it names, and holds to it from then on.
            key_pair: Authenticates; None stays anonymous.
            author_id: The DID whose key that is; None means the key's own DID.
            capabilities: What to ask for in AUTH.
            require_auth: Hold every request back until AUTH_OK.
            keys_of: Knows the keys of authors; None leaves signatures to the owner, who gets ``verified`` false.
            book: Takes the place of ``keys_of`` and learns key events; those of an author whose signature does not
                verify are fetched before the packet is judged (STRATA-KEYS).
            deliver_unverified: Deliver packets of authors whom ``keys_of`` does not know, with ``verified`` false,
                instead of dropping them. Neither is a violation.
            unsolicited: Take packets that belong to no subscription (D29).
            close_on_violation: Ask to close at the first bad packet, and at the twentieth of a later connection.
        """
        self._rng = rng
        self._key_pair = key_pair
        identity = author_id or (encode_did(key_pair.public) if key_pair is not None else "")
        self._auth = Authentication(rng, key_pair, identity, capabilities, server_id)
        self._require_auth = require_auth
        self._state = _State.CLOSED
        self._released = False
        self._peer: Peer | None = None
        self._wall_offset_us = 0
        self._faults = 0
        self._next_number = itertools.count(_FIRST_NUMBER).__next__
        self._alarms = Alarms()
        self._effects: list[Effect] = []
        self._events: list[Event] = []
        arrivals = Arrivals(
            self._events,
            self._close,
            keys_of=book.keys_of if book is not None else keys_of,
            book=book,
            deliver_unverified=deliver_unverified,
            close_on_violation=close_on_violation,
        )
        outlet = Outlet(self._send, self._close, self._on_fault)
        self._subscriptions = Subscriptions(
            rng, outlet, self._events, self._alarms, self._next_number, arrivals, book, unsolicited=unsolicited
        )
        self._publishing = Publishing(rng, self._send, self._events, self._alarms, self._next_number)
        self.capabilities: tuple[str, ...] = ()
        """What AUTH_OK granted on this connection; empty while unauthenticated."""

    # Inputs

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset_us = wall_us - now

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:  # noqa: ARG002 - we dialled it
        """A connection to the relay is established."""
        assert self._state is _State.CLOSED
        self._state = _State.ANONYMOUS
        self._peer = peer
        self._faults = 0
        self._subscriptions.begin()
        self._auth.begin()
        if self._key_pair is None:
            self._release(now)
        elif not self._require_auth:
            self._alarms.set_by(_RELEASE_ALARM, after_ms(now, CHALLENGE_WAIT_MS))

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Take one whole text frame from the relay."""
        if peer != self._peer:
            return
        try:
            body = parse(data, MESSAGE_DEPTH_MAX)
        except RefusedError as error:
            self._on_fault(error.refusal.detail)
            return
        kind = body.get("type") if isinstance(body, dict) else None
        handle = self._handlers.get(kind) if isinstance(kind, str) else None
        if handle is None or not isinstance(body, dict):
            self._on_fault("unknown_message_type" if isinstance(kind, str) else "not_a_message")
            return
        self._faults = 0
        handle(self, body, now)

    def disconnect(self, peer: Peer, _now: Instant) -> None:
        """The connection ended from the other side; packets that wait for an answer get none."""
        if peer == self._peer:
            self._end()

    def wake(self, now: Instant) -> None:
        """Do what has become due."""
        for key in self._alarms.due(now):
            if key == _RELEASE_ALARM:
                self._release(now)
            elif key == _AUTH_ALARM:
                self._on_auth_due(now)
            elif not self._subscriptions.on_due(key, now):
                self._publishing.on_due(key, now, sending=self._released)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        return self._alarms.next_at()

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered so far, in their order."""
        effects, self._effects = self._effects, []
        return effects

    def take_events(self) -> list[Event]:
        """Return and forget what happened since the last call, in order."""
        events = self._events[:]
        self._events.clear()
        return events

    # Commands

    @property
    def server_id(self) -> str | None:
        """The relay's DID as pinned or first named."""
        return self._auth.server_id

    @property
    def authenticated(self) -> bool:
        """Whether AUTH_OK came on this connection."""
        return self._state is _State.AUTHENTICATED

    @property
    def unanswered(self) -> int:
        """Packets that wait to be sent or answered."""
        return len(self._publishing)

    def publish(self, packet: Packet, now: Instant) -> str:
        """Send a packet as soon as the connection allows and return the id that the outcome will bear.

        Raises:
            LocalError: ``PUBLISHES_MAX`` packets or ``PUBLISH_BYTES_MAX`` bytes wait already.
        """
        return self._publishing.add(packet, now, sending=self._released)

    def withdraw(self, msg_id: str) -> bool:
        """Forget a packet whose outcome the caller does not wait for; return whether it was sent: it may be stored."""
        return self._publishing.forget(msg_id)

    def subscribe(
        self,
        subscription_id: str,
        filters: Filters,
        now: Instant,
        *,
        cursor: str | None = None,
        received_at: int | None = None,
        limit: int = LIMIT_DEFAULT,
        follow: bool = True,
        profile: str | None = None,
    ) -> None:
        """Subscribe as soon as the connection allows, and again on every later connection, from where it stood.

        A subscription of the same id is replaced and forgotten.

        Args:
            subscription_id: 1 to 128 characters.
            filters: What is wanted; whatever else comes is a violation.
            now: The current instant.
            cursor: Where to begin, from an earlier ``PacketArrived`` or ``HistoryEnded`` with the same filters.
            received_at: Of the packet that bore ``cursor``: where to begin if the relay has forgotten the cursor.
            limit: Packets of history per page, 0 to 500; 0 is live only.
            follow: Turn pages until history is complete; else one page, and live packets.
            profile: ``replication_profile``.

        Raises:
            LocalError: No id, or ``SUBSCRIPTIONS_MAX`` subscriptions are open already.
        """
        self._subscriptions.add(
            subscription_id,
            filters,
            now,
            cursor=cursor,
            received_at=received_at,
            limit=limit,
            follow=follow,
            profile=profile,
        )

    def unsubscribe(self, subscription_id: str) -> None:
        """End a subscription; what is under way for it is ignored. An unknown id is ignored, too."""
        self._subscriptions.end(subscription_id)

    # AUTH

    def _on_challenge(self, body: dict[str, Any], now: Instant) -> None:
        named = self._auth.server_id
        refused = self._auth.challenge(text_in(body, "challenge"), text_in(body, "server_id"))
        if refused is not None:
            self._events.append(ChallengeRefused(refused))
            if refused == "server_id_changed":
                self._close(ClientEnd.SERVER_ID_CHANGED)
            elif not self._require_auth:
                self._release(now)
            return
        if named is None and self._auth.server_id is not None:
            self._events.append(ServerNamed(self._auth.server_id))
        if self._key_pair is not None and self._state is _State.ANONYMOUS:
            self._authenticate(now)

    def _authenticate(self, now: Instant) -> None:
        """Answer the challenge we hold, unless it is too early for another try."""
        frame = self._auth.answer(now)
        if frame is not None:
            self._state = _State.AUTHENTICATING
            self._send(frame)
        self._set_auth_alarm()

    def _on_auth_ok(self, body: dict[str, Any], now: Instant) -> None:
        if self._state is not _State.AUTHENTICATING or not self._auth.fits(body):
            return
        self._state = _State.AUTHENTICATED
        self.capabilities = texts_in(body, "capabilities")
        self._alarms.cancel(_AUTH_ALARM)
        self._events.append(Authenticated(self.capabilities, now - self._auth.sent_at))
        self._release(now)

    def _on_auth_failed(self, code: str, detail: str, now: Instant) -> None:
        self._state = _State.ANONYMOUS
        self._auth.failed(now)
        self._events.append(AuthFailed(code, detail))
        self._set_auth_alarm()
        if not self._require_auth:
            self._release(now)
        elif self._auth.attempts >= AUTH_ATTEMPTS_MAX:
            self._close(ClientEnd.NOT_AUTHENTICATED)

    def _on_auth_due(self, now: Instant) -> None:
        if self._state is _State.AUTHENTICATING and now >= self._auth.answer_by:
            self._on_auth_failed("timeout", "", now)
        elif self._state is _State.ANONYMOUS:
            self._authenticate(now)
        else:
            self._set_auth_alarm()

    def _set_auth_alarm(self) -> None:
        if self._state is _State.AUTHENTICATING:
            self._alarms.set_by(_AUTH_ALARM, self._auth.answer_by)
        elif self._state is _State.ANONYMOUS and self._auth.retry_at is not None:
            self._alarms.set_by(_AUTH_ALARM, self._auth.retry_at)

    def _release(self, now: Instant) -> None:
        """Send what waits; the connection is as good as it gets."""
        if self._released or self._state is _State.CLOSED:
            return
        self._released = True
        self._alarms.cancel(_RELEASE_ALARM)
        self._publishing.send_all(now)
        self._subscriptions.release(now)

    # Answers

    def _on_event(self, body: dict[str, Any], now: Instant) -> None:
        wall_s = (now + self._wall_offset_us) // MICROSECONDS_PER_SECOND
        self._subscriptions.on_event(body, wall_s, now)

    def _on_end_of_history(self, body: dict[str, Any], now: Instant) -> None:
        self._subscriptions.on_end_of_history(body, now)

    def _on_ok(self, body: dict[str, Any], now: Instant) -> None:
        self._publishing.on_ok(body, now)

    def _on_error(self, body: dict[str, Any], now: Instant) -> None:
        code, detail = text_in(body, "code") or "", text_in(body, "detail") or ""
        msg_id = text_in(body, "client_msg_id", ID_CHARS_MAX)
        if self._state is _State.AUTHENTICATING and self._auth.is_answered_by(body, msg_id, code):
            self._on_auth_failed(code, detail, now)
        elif self._subscriptions.on_error(body, msg_id, code, detail, now):
            return
        elif not self._publishing.on_error(body, msg_id, code, detail, now):
            self._events.append(RelayError(code, detail))

    def _on_fault(self, detail: str) -> None:
        self._events.append(ProtocolFault(detail))
        self._faults += 1
        if self._faults >= FAULTS_MAX:
            self._close(ClientEnd.NOT_STRATA)

    # The connection

    def _send(self, frame: bytes) -> None:
        assert self._peer is not None
        self._effects.append(make_send((self._peer, frame, False)))

    def _close(self, reason: ClientEnd) -> None:
        assert self._peer is not None
        self._effects.append(Close(self._peer, reason, status=_POLICY_VIOLATION))
        self._end()

    def _end(self) -> None:
        self._state = _State.CLOSED
        self._peer = None
        self._released = False
        self.capabilities = ()
        self._alarms.cancel(_RELEASE_ALARM)
        self._alarms.cancel(_AUTH_ALARM)
        self._subscriptions.lose()
        self._publishing.lose()

    _handlers: Final = {
        "EVENT": _on_event,
        "EOSE": _on_end_of_history,
        "OK": _on_ok,
        "ERROR": _on_error,
        "AUTH_CHALLENGE": _on_challenge,
        "AUTH_OK": _on_auth_ok,
    }
