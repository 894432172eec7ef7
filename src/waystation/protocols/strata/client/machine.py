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
anonymously. With ``require_auth`` they are sent only after AUTH_OK. Rate-limited requests are repeated automatically. A
PUBLISH without an answer ends as ``PublishUnknown``, never as success.

Messages of the relay become events of ``take_events`` or are ignored; every table has a named limit. Each ``Send`` is
one text frame.
Spec: RFC-0004 3, 6.1, 7; specs/strata.md 10 to 13, 18.
"""

import itertools
import random
from enum import Enum, auto
from typing import Any, Final

from waystation.core.alarms import Alarms
from waystation.core.dids import encode_did
from waystation.core.effects import Close, Effect, Peer, make_send
from waystation.core.errors import LocalError
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant, after_ms
from waystation.core.machine import AsksNothing, IgnoresPressure
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.canonical import MESSAGE_DEPTH_MAX, parse
from waystation.protocols.strata.client.auth import AUTH_ATTEMPTS_MAX, Authentication
from waystation.protocols.strata.client.bad_packets import BadPackets
from waystation.protocols.strata.client.events import (
    Authenticated,
    AuthFailed,
    ChallengeRefused,
    ClientEnd,
    CursorLost,
    Event,
    HistoryEnded,
    Limited,
    PacketArrived,
    ProtocolFault,
    RelayError,
    ServerNamed,
    SubscriptionRefused,
    Violation,
)
from waystation.protocols.strata.client.inspection import Fault, KeysOf, inspect_packet, own_key
from waystation.protocols.strata.client.limits import LIMIT_RETRIES_MAX, limited_until
from waystation.protocols.strata.client.publishing import Publishing
from waystation.protocols.strata.client.reading import Reading
from waystation.protocols.strata.client.seen_packets import SeenPackets
from waystation.protocols.strata.client.wire import CURSOR_MAX, encode_unsubscribe, integer_in, text_in, texts_in
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import Packet
from waystation.protocols.strata.refusals import RefusedError
from waystation.protocols.strata.wire import ID_CHARS_MAX, LIMIT_DEFAULT, LIMIT_MAX

__all__ = ["READINGS_MAX", "StrataClient"]

READINGS_MAX: Final = 32  # what a relay allows per connection, specs/strata.md 13
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
        self._keys_of = keys_of
        self._deliver_unverified = deliver_unverified
        self._unsolicited = unsolicited
        self._close_on_violation = close_on_violation
        self._state = _State.CLOSED
        self._released = False
        self._eose_known = False
        self._peer: Peer | None = None
        self._wall_offset_us = 0
        self._faults = 0
        self._next_number = itertools.count(_FIRST_NUMBER).__next__
        self._alarms = Alarms()
        self._readings: dict[str, Reading] = {}
        self._by_number: dict[int, Reading] = {}
        self._seen = SeenPackets()
        self._bad = BadPackets()
        self._effects: list[Effect] = []
        self._events: list[Event] = []
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
        self._bad.begin()
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
            elif (reading := self._by_number.get(key)) is not None:
                self._on_reading_due(reading, now)
            else:
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
            LocalError: No id, or 32 subscriptions are open already.
        """
        if not 1 <= len(subscription_id) <= ID_CHARS_MAX:
            raise LocalError(f"a subscription id has 1 to {ID_CHARS_MAX} characters")
        self._drop(subscription_id)
        if len(self._readings) >= READINGS_MAX:
            raise LocalError(f"at most {READINGS_MAX} subscriptions per relay")
        reading = Reading(
            self._next_number(),
            subscription_id,
            filters,
            cursor=cursor,
            received_at=received_at,
            limit=min(limit, LIMIT_MAX),
            follow=follow,
            profile=profile,
        )
        self._readings[subscription_id] = self._by_number[reading.number] = reading
        if self._released:
            self._ask(reading, now)

    def unsubscribe(self, subscription_id: str) -> None:
        """End a subscription; what is under way for it is ignored. An unknown id is ignored, too."""
        reading = self._drop(subscription_id)
        if reading is not None and reading.sent:
            self._send(encode_unsubscribe(subscription_id))

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
        for reading in list(self._readings.values()):
            self._ask(reading, now)

    # Packets

    def _on_event(self, body: dict[str, Any], now: Instant) -> None:
        subscription_id = text_in(body, "subscription_id", ID_CHARS_MAX)
        reading = self._readings.get(subscription_id) if subscription_id is not None else None
        if (reading is None or not reading.sent) and not (self._unsolicited and body.get("subscription_id") is None):
            return  # after an UNSUBSCRIBE, or never asked for
        received_at = integer_in(body, "received_at")
        if received_at is None:
            self._on_fault("received_at")
            return
        filters, number = (reading.filters, reading.number) if reading is not None else (None, 0)
        wall_s = (now + self._wall_offset_us) // MICROSECONDS_PER_SECOND
        inspected = inspect_packet(body, filters, received_at, wall_s, self._keys_of)
        new = not isinstance(inspected, Fault) and self._seen.is_new(number, inspected.packet.packet_id)
        cursor = text_in(body, "cursor", CURSOR_MAX) or None
        if reading is not None:
            # STRATA-BAD: the position moves past a bad packet too, or every connection would end at it.
            reading.took(received_at, cursor, wall_s, now, new=new)
        if isinstance(inspected, Fault):
            self._on_bad_packet(inspected, body)
        elif new and (inspected.verified or self._deliver_unverified or self._keys_of is None):
            packet, origin_type, downgrade, verified = inspected
            arrived = PacketArrived(subscription_id, packet, received_at, cursor, origin_type, downgrade, verified)
            self._events.append(arrived)

    def _on_bad_packet(self, fault: Fault, body: dict[str, Any]) -> None:
        if fault.blame and self._bad.is_new(body.get("packet")):
            self._events.append(Violation(fault.reason, fault.detail, fault.packet_id))
            if self._close_on_violation and self._bad.ends_connection():
                self._close(ClientEnd[fault.reason.upper()])

    # Subscriptions

    def _ask(self, reading: Reading, now: Instant) -> None:
        self._send(reading.encode(f"s{reading.number}", now))
        self._on_reading_due(reading, now)

    def _on_end_of_history(self, body: dict[str, Any], now: Instant) -> None:
        reading = self._readings.get(text_in(body, "subscription_id", ID_CHARS_MAX) or "")
        if reading is None or not reading.sent:
            return
        self._eose_known = True
        self._end_page(reading, text_in(body, "cursor", CURSOR_MAX), body.get("has_more") is True, now)

    def _end_page(self, reading: Reading, cursor: str | None, has_more: bool, now: Instant) -> None:
        if reading.end_page(cursor, has_more=has_more):
            self._ask(reading, now)
        elif reading.history_open:
            reading.history_open = False
            self._events.append(HistoryEnded(reading.id, reading.cursor, has_more))

    def _on_reading_due(self, reading: Reading, now: Instant) -> None:
        due = reading.due()
        if due is None:
            return
        if now < due:
            self._alarms.set_by(reading.number, due)
        elif reading.retry_at is not None:
            self._ask(reading, now)
        elif not self._eose_known:
            self._end_page(reading, None, reading.page_full, now)

    def _drop(self, subscription_id: str) -> Reading | None:
        reading = self._readings.pop(subscription_id, None)
        if reading is not None:
            del self._by_number[reading.number]
            self._alarms.cancel(reading.number)
        return reading

    # Answers

    def _on_ok(self, body: dict[str, Any], now: Instant) -> None:
        self._publishing.on_ok(body, now)

    def _on_error(self, body: dict[str, Any], now: Instant) -> None:
        code, detail = text_in(body, "code") or "", text_in(body, "detail") or ""
        msg_id = text_in(body, "client_msg_id", ID_CHARS_MAX)
        reading = self._reading_of(body, msg_id)
        if self._state is _State.AUTHENTICATING and self._auth.is_answered_by(body, msg_id, code):
            self._on_auth_failed(code, detail, now)
        elif reading is not None:
            self._on_refused(reading, body, code, detail, now)
        elif not self._publishing.on_error(body, msg_id, code, detail, now):
            self._events.append(RelayError(code, detail))

    def _reading_of(self, body: dict[str, Any], msg_id: str | None) -> Reading | None:
        reading = self._readings.get(text_in(body, "subscription_id", ID_CHARS_MAX) or "")
        if reading is None and msg_id is not None and msg_id[:1] == "s" and msg_id[1:].isdecimal():
            reading = self._by_number.get(int(msg_id[1:]))
        return reading

    def _on_refused(self, reading: Reading, body: dict[str, Any], code: str, detail: str, now: Instant) -> None:
        retry_after_s = integer_in(body, "retry_after")
        if code == "rate_limited" and reading.retries < LIMIT_RETRIES_MAX:
            reading.retries += 1
            waited_s, reading.retry_at = limited_until(self._rng, retry_after_s, now)
            self._events.append(Limited(waited_s, None, reading.id))
            self._on_reading_due(reading, now)
        elif code == "invalid_cursor" and reading.lose_cursor():
            self._events.append(CursorLost(reading.id))
            self._ask(reading, now)
        else:
            self._drop(reading.id)
            self._events.append(SubscriptionRefused(reading.id, code, detail, retry_after_s))

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
        for reading in self._readings.values():
            self._alarms.cancel(reading.number)
            reading.reset()
        self._publishing.lose()

    _handlers: Final = {
        "EVENT": _on_event,
        "EOSE": _on_end_of_history,
        "OK": _on_ok,
        "ERROR": _on_error,
        "AUTH_CHALLENGE": _on_challenge,
        "AUTH_OK": _on_auth_ok,
    }
