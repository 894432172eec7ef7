"""Holds the subscriptions of one client: asks for pages, judges what comes, and fetches key events where they lack.

The client machine passes EVENT, EOSE and ERROR in. A subscription that meets a signature of a key that is not known
stands at that packet until the author's key events have been fetched (``key_fetch``); what comes behind it waits, so
that the order stays and the position never passes a packet that was not settled.
Spec: specs/strata.md 13, 13.1, 13.2, 18, 24 (15).
"""

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from waystation.core.alarms import Alarms
from waystation.core.errors import LocalError
from waystation.core.instant import Instant, after_ms
from waystation.protocols.strata.client.arrivals import Arrival, Arrivals
from waystation.protocols.strata.client.events import (
    ClientEnd,
    CursorLost,
    Event,
    HistoryEnded,
    Limited,
    SubscriptionRefused,
)
from waystation.protocols.strata.client.key_book import KeyBook
from waystation.protocols.strata.client.key_fetch import FETCH_ID, KeyFetch
from waystation.protocols.strata.client.limits import LIMIT_RETRIES_MAX, limited_until
from waystation.protocols.strata.client.reading import Reading
from waystation.protocols.strata.client.wire import CURSOR_MAX, encode_unsubscribe, integer_in, text_in
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.wire import ID_CHARS_MAX, LIMIT_MAX

__all__ = ["SUBSCRIPTIONS_MAX", "Outlet", "Subscriptions"]

SUBSCRIPTIONS_MAX: Final = 31
"""Subscriptions of a client; a relay allows 32 per connection (specs/strata.md 13), and one fetches key events."""
KEYS_WAIT_MS: Final = 60_000  # ours: for key events, from a relay that answers other things


class Outlet(NamedTuple):
    """What the machine does for its subscriptions."""

    send: Callable[[bytes], None]
    close: Callable[[ClientEnd], None]
    fault: Callable[[str], None]
    """Counts a frame that is no message."""


class Subscriptions:
    """The table of subscriptions; it writes into the outbox and the events of its client."""

    def __init__(
        self,
        rng: random.Random,
        outlet: Outlet,
        events: list[Event],
        alarms: Alarms,
        next_number: Callable[[], int],
        arrivals: Arrivals,
        book: KeyBook | None,
        *,
        unsolicited: bool,
    ) -> None:
        """Begin with none; ``book`` is what ``arrivals`` verifies by, if key events are to be fetched."""
        self._rng = rng
        self._outlet = outlet
        self._events = events
        self._alarms = alarms
        self._next_number = next_number
        self._arrivals = arrivals
        self._unsolicited = unsolicited
        self._fetch = KeyFetch(book) if book is not None else None
        self._keys_alarm = next_number()
        self._is_released = False
        self._eose_known = False
        self._wall_s = 0
        self._readings: dict[str, Reading] = {}
        self._by_number: dict[int, Reading] = {}

    # The connection

    def begin(self) -> None:
        """Take note of a new connection."""
        self._arrivals.begin()

    def release(self, now: Instant) -> None:
        """Ask for every subscription; the connection is as good as it gets."""
        self._is_released = True
        for reading in list(self._readings.values()):
            self._ask(reading, now)

    def lose(self) -> None:
        """Take note that the connection ended."""
        self._is_released = False
        self._alarms.cancel(self._keys_alarm)
        self._drop(FETCH_ID)
        for reading in self._readings.values():
            self._alarms.cancel(reading.number)
            reading.reset()
        if self._fetch is not None:
            self._fetch.reset()

    def on_due(self, key: int, now: Instant) -> bool:
        """Do what an alarm asks for, and return whether it was of a subscription."""
        reading = self._by_number.get(key)
        if reading is not None:
            self._on_reading_due(reading, now)
        elif key == self._keys_alarm:
            self._on_keys_due(now)
        return reading is not None or key == self._keys_alarm

    # Commands

    def add(
        self,
        subscription_id: str,
        filters: Filters,
        now: Instant,
        *,
        cursor: str | None,
        received_at: int | None,
        limit: int,
        follow: bool,
        profile: str | None,
    ) -> None:
        """Subscribe; as for ``StrataClient.subscribe``."""
        if not 1 <= len(subscription_id) <= ID_CHARS_MAX:
            raise LocalError(f"a subscription id has 1 to {ID_CHARS_MAX} characters")
        self._drop(subscription_id)
        if len(self._readings.keys() - {FETCH_ID}) >= SUBSCRIPTIONS_MAX:
            raise LocalError(f"at most {SUBSCRIPTIONS_MAX} subscriptions per relay")
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
        self._add(reading, now)

    def end(self, subscription_id: str) -> None:
        """End a subscription; an unknown id is ignored."""
        reading = self._drop(subscription_id)
        if reading is not None and reading.sent:
            self._outlet.send(encode_unsubscribe(subscription_id))

    # Packets

    def on_event(self, body: dict[str, Any], wall_s: int, now: Instant) -> None:
        """Take an EVENT in; ``wall_s`` is our clock."""
        self._wall_s = wall_s
        subscription_id = text_in(body, "subscription_id", ID_CHARS_MAX)
        reading = self._readings.get(subscription_id) if subscription_id is not None else None
        if (reading is None or not reading.sent) and not (self._unsolicited and body.get("subscription_id") is None):
            return  # after an UNSUBSCRIBE, or never asked for
        if integer_in(body, "received_at") is None:
            self._outlet.fault("received_at")
        elif reading is not None and reading.held:
            self._hold(reading, body, now)
            inspected = self._arrivals.inspect(self._arrival(reading, body))
            if self._fetch is not None and self._arrivals.lacks_keys(inspected):
                self._fetch.want_ahead(body["packet"]["author_id"])
        else:
            self._judge(reading, body, now)

    def _arrival(self, reading: Reading | None, body: dict[str, Any]) -> Arrival:
        received_at, cursor = integer_in(body, "received_at"), text_in(body, "cursor", CURSOR_MAX) or None
        assert received_at is not None
        return Arrival.of(body, reading, received_at, cursor, self._wall_s)

    def _judge(
        self,
        reading: Reading | None,
        body: dict[str, Any],
        now: Instant,
        *,
        fetched: bool = False,
        answered: bool = True,
    ) -> None:
        """Settle an EVENT, or hold its subscription until the author's key events are ``fetched``."""
        arrival = self._arrival(reading, body)
        inspected = self._arrivals.inspect(arrival)
        lacks_keys = self._fetch is not None and reading is not None and self._arrivals.lacks_keys(inspected)
        if lacks_keys and not fetched and reading is not None and reading.id != FETCH_ID:
            self._wait_for_keys(reading, body, now)
            return
        place = (arrival.received_at, arrival.cursor, arrival.wall_s, now)
        # STRATA-BAD: the position moves past a bad packet too, or every connection would end at it.
        if reading is not None:
            reading.took(*place)
        blames_keys = reading is None or (reading.id != FETCH_ID and answered)
        new = self._arrivals.settle(arrival, inspected, blames_keys=blames_keys)
        if reading is not None:
            reading.count_new(new=new)

    # Key events

    def _hold(self, reading: Reading, body: dict[str, Any], now: Instant, *, first: bool = False) -> None:
        assert self._fetch is not None
        size = len(repr(body))
        (reading.held.appendleft if first else reading.held.append)((body, size))
        reading.rest(now)
        if not self._fetch.hold(size):
            self._outlet.close(ClientEnd.KEYS_PENDING)

    def _wait_for_keys(self, reading: Reading, body: dict[str, Any], now: Instant) -> None:
        """Let a subscription stand at a packet whose signature does not verify with the keys known."""
        assert self._fetch is not None
        reading.waits_for = body["packet"]["author_id"]
        self._hold(reading, body, now, first=True)
        self._fetch.want(reading.waits_for)
        self._fetch_keys(now)

    def _fetch_keys(self, now: Instant) -> None:
        """Ask for the next batch of key events, if one is wanted and none is under way."""
        assert self._fetch is not None
        filters = self._fetch.begin()
        if filters is not None and self._is_released:
            self._add(Reading(self._next_number(), FETCH_ID, filters, limit=LIMIT_MAX, follow=True), now)

    def _end_fetch(self, now: Instant, *, answered: bool) -> None:
        """Judge what waited for the batch that has ended; without an answer it is dropped and nobody blamed."""
        assert self._fetch is not None
        asked = self._fetch.end()
        self._alarms.cancel(self._keys_alarm)
        self.end(FETCH_ID)
        for reading in list(self._readings.values()):
            if reading.held and reading.waits_for in asked:
                # The key may have come behind the events just read when the packet came meanwhile: once more then.
                fetched = not self._fetch.wants(reading.waits_for)
                self._go_on(reading, now, fetched=fetched, answered=answered)
        self._fetch_keys(now)

    def _go_on(self, reading: Reading, now: Instant, *, fetched: bool, answered: bool) -> None:
        """Settle the packet that a subscription stands at, and what came behind it, up to the next that needs keys."""
        assert self._fetch is not None
        reading.waits_for = None
        while reading.held and reading.waits_for is None:
            body, size = reading.held.popleft()
            self._fetch.release(size)
            if body["type"] == "EOSE":
                self._on_eose(reading, body, now)
            else:
                self._judge(reading, body, now, fetched=fetched, answered=answered)
            fetched = False

    def _on_keys_due(self, now: Instant) -> None:
        reading = self._readings.get(FETCH_ID)
        if reading is not None and reading.retry_at is None:
            self._end_fetch(now, answered=False)
        else:
            self._alarms.set_by(self._keys_alarm, after_ms(now, KEYS_WAIT_MS))

    # Subscriptions

    def _ask(self, reading: Reading, now: Instant) -> None:
        self._outlet.send(reading.encode(f"s{reading.number}", now))
        if reading.id == FETCH_ID:
            self._alarms.cancel(self._keys_alarm)
            self._alarms.set_by(self._keys_alarm, after_ms(now, KEYS_WAIT_MS))
        self._on_reading_due(reading, now)

    def on_end_of_history(self, body: dict[str, Any], now: Instant) -> None:
        """Take an EOSE in."""
        reading = self._readings.get(text_in(body, "subscription_id", ID_CHARS_MAX) or "")
        if reading is None or not reading.sent:
            return
        self._eose_known = True
        if reading.held:
            self._hold(reading, body, now)
        else:
            self._on_eose(reading, body, now)

    def _on_eose(self, reading: Reading, body: dict[str, Any], now: Instant) -> None:
        self._end_page(reading, text_in(body, "cursor", CURSOR_MAX), body.get("has_more") is True, now)

    def _end_page(self, reading: Reading, cursor: str | None, has_more: bool, now: Instant) -> None:
        if reading.end_page(cursor, has_more=has_more):
            self._ask(reading, now)
        elif reading.history_open:
            reading.history_open = False
            if reading.id == FETCH_ID:
                self._end_fetch(now, answered=self._eose_known)  # silence may be a slow relay's
                return
            self._events.append(HistoryEnded(reading.id, reading.cursor, has_more))

    def _on_reading_due(self, reading: Reading, now: Instant) -> None:
        if reading.held:
            reading.rest(now)
        due = reading.due()
        if due is None:
            return
        if now < due:
            self._alarms.set_by(reading.number, due)
        elif reading.retry_at is not None:
            self._ask(reading, now)
        elif not self._eose_known:
            self._end_page(reading, None, reading.page_full, now)

    def _add(self, reading: Reading, now: Instant) -> None:
        self._readings[reading.id] = self._by_number[reading.number] = reading
        if self._is_released:
            self._ask(reading, now)

    def _drop(self, subscription_id: str) -> Reading | None:
        reading = self._readings.pop(subscription_id, None)
        if reading is not None:
            for _, size in reading.held:
                assert self._fetch is not None
                self._fetch.release(size)
            del self._by_number[reading.number]
            self._alarms.cancel(reading.number)
        return reading

    # Refusals

    def _reading_of(self, body: dict[str, Any], msg_id: str | None) -> Reading | None:
        reading = self._readings.get(text_in(body, "subscription_id", ID_CHARS_MAX) or "")
        if reading is None and msg_id is not None and msg_id[:1] == "s" and msg_id[1:].isdecimal():
            reading = self._by_number.get(int(msg_id[1:]))
        return reading

    def on_error(self, body: dict[str, Any], msg_id: str | None, code: str, detail: str, now: Instant) -> bool:
        """Take an ERROR in, and return whether it was about a subscription."""
        reading = self._reading_of(body, msg_id)
        if reading is not None:
            self._on_refused(reading, body, code, detail, now)
        return reading is not None

    def _on_refused(self, reading: Reading, body: dict[str, Any], code: str, detail: str, now: Instant) -> None:
        retry_after_s = integer_in(body, "retry_after")
        # Without its keys an author's packets would be lost, so that is asked for as long as it takes.
        if code == "rate_limited" and (reading.retries < LIMIT_RETRIES_MAX or reading.id == FETCH_ID):
            reading.retries += 1
            waited_s, reading.retry_at = limited_until(self._rng, retry_after_s, now)
            self._events.append(Limited(waited_s, None, reading.id))
            self._on_reading_due(reading, now)
        elif code == "invalid_cursor" and reading.lose_cursor():
            self._events.append(CursorLost(reading.id))
            self._ask(reading, now)
        else:
            self._drop(reading.id)
            if reading.id == FETCH_ID:
                self._end_fetch(now, answered=False)
                return
            self._events.append(SubscriptionRefused(reading.id, code, detail, retry_after_s))
