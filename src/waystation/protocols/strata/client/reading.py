"""One subscription of a client: its filters, its cursor, and how it resumes on a new connection.

The client machine keeps one for each subscription of its application. A page is SUBSCRIBE, its EVENTs, and EOSE if the
relay supports it; otherwise a page ends after 2 s without packets. The cursor advances only with packets that have one,
so live packets never skip unread history. If the relay forgets a cursor, reading resumes from a time, which advances
only with the cursor.
Spec: specs/strata.md 13, 13.1, 13.2, 15.
"""

from collections import deque
from dataclasses import replace
from typing import Any, Final

from waystation.core.instant import Instant, after_ms
from waystation.protocols.strata.client.wire import CURSOR_MAX, encode_subscribe
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.wire import LIMIT_MAX

__all__ = ["BACKFILL_MARGIN_S", "QUIET_MS", "Reading"]

QUIET_MS: Final = 2_000  # specs/strata.md 13.2
BACKFILL_MARGIN_S: Final = 86_400 + 300  # specs/strata.md 13.1: a lost cursor
BARREN_PAGES_MAX: Final = 1_000  # pages in a row without one new packet; a relay that goes on repeats itself
CURSOR_LOSSES_MAX: Final = 8  # per connection


class Reading:
    """State of one subscription over any number of connections."""

    __slots__ = (
        "_barren_pages",
        "_effective",
        "_events",
        "_losses",
        "_new_packets",
        "complete",
        "cursor",
        "filters",
        "follow",
        "held",
        "history_open",
        "id",
        "limit",
        "number",
        "profile",
        "quiet_at",
        "received_at",
        "retries",
        "retry_at",
        "sent",
        "waits_for",
    )

    def __init__(
        self,
        number: int,
        subscription_id: str,
        filters: Filters,
        *,
        cursor: str | None = None,
        received_at: int | None = None,
        limit: int,
        follow: bool,
        profile: str | None = None,
    ) -> None:
        self.number = number
        self.id = subscription_id
        self.filters = filters
        self.cursor = cursor
        self.received_at = received_at
        """``received_at`` of the packet that gave the cursor."""
        self.limit = limit
        self.follow = follow
        self.profile = profile
        self.sent = False
        self.held: deque[tuple[dict[str, Any], int]] = deque()
        """EVENTs and EOSEs with their bytes, in their order, that wait for key events; the position is before them."""
        self.waits_for: str | None = None
        """Author of the first of them."""
        self.complete = False
        """Whether history has ever been read to its end."""
        self.history_open = True
        """Whether the end of the current page has not been reported yet."""
        self.quiet_at: Instant | None = None
        self.retry_at: Instant | None = None
        self.retries = 0
        self._effective = filters
        self._events = 0
        self._new_packets = 0
        self._barren_pages = 0
        self._losses = 0

    def reset(self) -> None:
        """Forget what belongs to one connection."""
        self.sent = False
        self.held.clear()  # they come again, since the position has not moved past them
        self.waits_for = None
        self.quiet_at = self.retry_at = None
        self.retries = self._losses = self._barren_pages = 0
        # One page was asked for and has been read: what follows it is live, and was lost with the connection. With a
        # limit of 0 a relay takes no cursor, so what was missed is read in pages from where the live packets stood.
        if not self.history_open and self.limit == 0 and self.cursor is not None:
            self.limit, self.follow = LIMIT_MAX, True
        elif not self.history_open and not self.follow:
            self.limit, self.follow = (LIMIT_MAX, True) if self.complete else (0, False)
        self.history_open = True

    def encode(self, client_msg_id: str, now: Instant) -> bytes:
        """Return the SUBSCRIBE for the next page, and begin it."""
        self.sent = True
        self.retry_at = None
        self._events = self._new_packets = 0
        # Spec 13: without EOSE, assume the end of history after 2 s of quiet.
        self.quiet_at = after_ms(now, QUIET_MS)
        return encode_subscribe(self.id, self._effective, self.limit, self.cursor, self.profile, client_msg_id)

    def took(self, received_at: int, cursor: str | None, wall_s: int, now: Instant) -> None:
        """Note one EVENT; a time from the future is not trusted for resuming."""
        self._events += 1
        self.rest(now)
        if cursor:
            self.cursor = cursor
            # A time from the future would skip packets when it is used for resuming.
            self.received_at = min(received_at, wall_s)

    def count_new(self, *, new: bool) -> None:
        """Note whether the EVENT that was noted last brought a new packet."""
        self._new_packets += new

    def rest(self, now: Instant) -> None:
        """Put the end of a page without EOSE off; something has come, or waits."""
        if self.quiet_at is not None:
            self.quiet_at = after_ms(now, QUIET_MS)

    @property
    def page_full(self) -> bool:
        """Whether as many packets came as were asked for."""
        return self.limit > 0 and self._events >= self.limit

    def end_page(self, cursor: str | None, *, has_more: bool) -> bool:
        """Note the end of a page and return whether the next one is to be asked for."""
        moved = bool(cursor) and cursor != self.cursor
        if cursor and len(cursor) <= CURSOR_MAX:
            self.cursor = cursor
        self.quiet_at = None
        self.complete = self.complete or not has_more
        self.retries = 0  # it was answered; the next page has all its tries
        self._barren_pages = 0 if self._new_packets else self._barren_pages + 1
        # A relay that sends has_more for ever must not keep us busy for ever.
        turning = self._barren_pages > BARREN_PAGES_MAX or not (moved or self._events)
        return has_more and self.follow and self.cursor is not None and not turning

    def lose_cursor(self) -> bool:
        """Fall back to reading by time and return whether that is possible."""
        self._losses += 1
        # A relay that refuses every cursor it gave would have us read the same history for ever.
        if self.cursor is None or self._losses > CURSOR_LOSSES_MAX:
            return False
        self.cursor = None
        since = self.filters.since
        if self.received_at is not None and not self.filters.descending:
            # Spec 13.1: since = received_at of the last packet that had a cursor, less 86 400 + 300.
            fallback = max(0, self.received_at - BACKFILL_MARGIN_S)
            since = fallback if since is None else max(since, fallback)
        self._effective = replace(self.filters, since=since)
        return True

    def due(self) -> Instant | None:
        """Return when this subscription has a timeout, or None."""
        return self.retry_at if self.retry_at is not None else self.quiet_at
