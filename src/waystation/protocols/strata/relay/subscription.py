"""One subscription at the relay: it reads history from the store, then gets new packets live.

``delivery`` keeps one for each SUBSCRIBE. There is no queue of live packets. A subscription is a position in the store
and reads pages while its connection accepts them. At the newest packet it becomes ``live`` and gets packets as they are
committed. When its connection is congested it stops being live and later reads on from its position. So a slow reader
costs the relay no memory.

History is at most ``limit`` packets in two parts: A (``seq <= h`` and K beyond ``k``, in history order) and B (``s <
seq <= newest``, in order of arrival; late replicas of old packets are there). The tail follows, in order of arrival,
without limit. Live packets have a cursor only if history was complete, since one cursor cannot name two positions.

Spec: RFC-0004 3.1; specs/strata.md 13; decisions STRATA-TAIL, STRATA-CURSOR.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from waystation.core.instant import Instant
from waystation.core.packets import PacketEntry, PacketPage, PacketQuery
from waystation.protocols.strata.cursor import Cursor, decode_cursor, encode_cursor, filter_hash, first_part_encoder
from waystation.protocols.strata.messages import Subscribe
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError
from waystation.protocols.strata.wire import encode_subscription_tail

__all__ = ["Part", "Subscription", "read_cursor"]

PAGE_ROWS_MAX: Final = 256  # a reader may have one page on its way: its credit
PAGE_BYTES_MAX: Final = 262_144


def read_cursor(message: Subscribe, epoch: bytes, newest: int) -> Cursor | None:
    """Return the cursor of a SUBSCRIBE, None without one.

    Args:
        message: The client's.
        epoch: The store's name.
        newest: Newest committed ``seq``.

    Raises:
        RefusedError: ``invalid_cursor``.
    """
    if message.cursor is None:
        return None
    digest = filter_hash(message.filters)
    cursor = decode_cursor(message.cursor, epoch, digest, descending=message.filters.descending)
    if max(cursor.h, cursor.s) > newest:  # this store was put back to an earlier time
        raise RefusedError(Refusal(Code.INVALID_CURSOR, "other_store"))
    return cursor


class Part(Enum):
    """The part of history that a subscription reads."""

    A = "a"
    B = "b"
    TAIL = "tail"
    LIVE = "live"


class Subscription:
    """The position of one reader."""

    __slots__ = (
        "_cursor",
        "_epoch",
        "_left",
        "_start",
        "complete",
        "eose_owed",
        "filter_hash",
        "filters",
        "history_end",
        "history_events",
        "id",
        "lags",
        "live_events",
        "opened_at",
        "part",
        "tail",
        "tail_seq",
        "want_eose",
    )

    def __init__(
        self,
        message: Subscribe,
        resumed: Cursor | None,
        epoch: bytes,
        newest: int,
        now: Instant,
        continued: "Subscription | None" = None,
    ) -> None:
        """Begin at a cursor, or at the edge of history.

        Args:
            message: The client's SUBSCRIBE.
            resumed: Its cursor, checked; None for a first page.
            epoch: The store's name, for cursors.
            newest: Newest committed ``seq``.
            now: When it began.
            continued: The subscription of the same id and filters that it turns a page of: what that one delivered
                live is not read again, and what it has not delivered yet comes in the tail.
        """
        self.id = message.subscription_id
        self.filters = message.filters
        # Spec 13.1: a cursor is good for the same filters.
        self.filter_hash = filter_hash(message.filters)
        # Spec 13: without it nothing marks the end of history.
        self.want_eose = message.want_eose
        self.tail = encode_subscription_tail(message.subscription_id)
        self.opened_at = now
        self.history_events = 0
        self.live_events = 0
        self.lags = 0
        self.complete = False
        self.eose_owed = message.want_eose
        # Spec 13.1: turning the page under the same id on the same connection sends nothing twice.
        self.tail_seq: int = newest if continued is None or continued.live else continued.tail_seq
        # Spec 13.1: and for the same relay.
        self._epoch = epoch
        self._left = message.limit
        # Spec 13.1: `h` is the newest commit when reading began.
        self.history_end: int = newest if continued is None else continued.history_end
        """Newest ``seq`` of its history; later packets are live."""
        self._cursor = resumed if resumed is not None else Cursor(None, newest, newest)
        self._start: tuple[int, int] | None = resumed.k if resumed is not None else None
        self.part = Part.A
        if resumed is not None and resumed.k is None:
            self._enter_b()
        # Spec 24.5: limit 0 is live only; EOSE comes with END and has_more false.
        if message.limit == 0:
            self._cursor = Cursor(None, self.tail_seq, self.tail_seq)
            self._finish(has_more=False)

    @property
    def live(self) -> bool:
        """Whether packets are delivered as they are committed."""
        return self.part is Part.LIVE

    @property
    def in_history(self) -> bool:
        """Whether packets still count against the limit."""
        # Spec 13.1: both parts count against `limit`, live packets do not.
        return self.part is Part.A or self.part is Part.B

    # Reading the store

    def query(self, newest: int, alive_at: int) -> PacketQuery:
        """Return the next page to read; the answer goes to ``took``.

        One row more than the limit allows is asked for, because only then do we know whether there is more.
        """
        filters = self.filters
        if self.part is Part.A:
            # Spec 13.1: part A: numbers up to h with a place after k, by place.
            start, seq_max, by_seq, rows = self._start, self._cursor.h, False, self._left + 1
        elif self.part is Part.B:
            # Spec 13.1: part B: numbers above s, by number: late copies with an old received_at included.
            start, seq_max, by_seq, rows = (0, self._cursor.s), self.history_end, True, self._left + 1
        else:
            # Spec 13.2: the tail, until it reaches the newest commit and becomes live.
            start, seq_max, by_seq, rows = (0, self.tail_seq), newest, True, PAGE_ROWS_MAX
        return PacketQuery(
            filters.authors,
            filters.types,
            filters.since,
            filters.until,
            alive_at,
            by_seq,
            filters.descending and not by_seq,
            start,
            seq_max,
            min(rows, PAGE_ROWS_MAX),
            PAGE_BYTES_MAX,
            ids=filters.ids,
        )

    def took(self, page: PacketPage[PacketEntry], newest: int) -> list[tuple[PacketEntry, bytes]]:
        """Move after a page and return its packets to deliver, each with its cursor or b"".

        Args:
            page: The result of ``query``.
            newest: The newest ``seq`` that the query could see.
        """
        if self.in_history:
            delivered = self._took_history(page)
            if self.part is Part.TAIL and self.tail_seq >= newest:
                self.part = Part.LIVE
            return delivered
        delivered = [(row, self.live_cursor(row.seq)) for row in page.rows]
        self.live_events += len(delivered)
        # Spec 13.2: it has reached the newest commit, so nothing lies between history and live.
        if page.position is None:
            self.tail_seq = newest
            self.part = Part.LIVE
        else:
            self.tail_seq = page.position[1]
        return delivered

    def skip_history(self) -> bool:
        """Leave the rest of history out, since it cannot be read, and go on with the tail; False when it is over.

        The reader learns with its EOSE that there is more, and may ask again from its cursor.
        """
        if self.in_history:
            self._finish(has_more=True)
            return True
        return False

    def fall_behind(self, seq: int) -> None:
        """Stop being live: the packet ``seq`` and those after it will be read from the store."""
        assert self.part is Part.LIVE
        self.part = Part.TAIL
        self.tail_seq = seq - 1
        self.lags += 1

    def live_cursor(self, seq: int) -> bytes:
        """Return the cursor of a live packet, b"" when history was cut short or runs backwards.

        With END as its first part the cursor's ``h`` has no meaning, so it is ``seq`` as well, and all subscriptions
        with one filter share one text.
        """
        # Spec 13.1: no cursor while history is cut short; descending, a live EVENT never has one.
        if not self.complete or self.filters.descending:
            return b""
        return encode_cursor(Cursor(None, seq, seq), self._epoch, self.filter_hash, descending=False)

    def cursor_text(self) -> str:
        """Return the cursor of the present position in history."""
        return self._encode(self._cursor).decode("ascii")

    # Parts

    def _took_history(self, page: PacketPage[PacketEntry]) -> list[tuple[PacketEntry, bytes]]:
        rows = page.rows[: self._left]
        self._left -= len(rows)
        self.history_events += len(rows)
        delivered = list(zip(rows, self._cursors(rows), strict=True))
        # One row more than the limit was read: there is more.
        if len(rows) < len(page.rows):
            self._finish(has_more=True)
        elif page.position is not None:
            self._skip_to(page.position)
        elif self.part is Part.A and not self.filters.descending:
            self._cursor = Cursor(None, self._cursor.h, self._cursor.s)
            self._enter_b()
        else:
            self._finish(has_more=False)
        return delivered

    def _cursors(self, rows: Sequence[PacketEntry]) -> list[bytes]:
        """Return the cursor after each row, and move after the last."""
        if not rows:
            return []
        last, (_, h, s) = rows[-1], self._cursor
        if self.part is Part.A:
            self._start = (last.order_at, last.seq)
            self._cursor = Cursor(self._start, h, s)
            encode = first_part_encoder(h, s, self._epoch, self.filter_hash, descending=self.filters.descending)
            return [encode(row.order_at, row.seq) for row in rows]
        # Spec 13.1: in part B the first part is done, and only the number goes on.
        self._cursor = Cursor(None, h, last.seq)
        return [self._encode(Cursor(None, h, row.seq)) for row in rows]

    def _skip_to(self, position: tuple[int, int]) -> None:
        # Rows that were read and did not match are passed too, or a rare filter would never get on.
        if self.part is Part.A:
            self._start = position
        else:
            self._cursor = self._cursor._replace(s=position[1])

    def _enter_b(self) -> None:
        # Spec 13.1: descending: only part A, backwards.
        if self.filters.descending or self._cursor.s >= self.history_end:
            self._finish(has_more=False)
        else:
            self.part = Part.B

    def _finish(self, *, has_more: bool) -> None:
        self.complete = not has_more
        if self.complete:
            self._cursor = Cursor(None, self._cursor.h, max(self._cursor.s, self.tail_seq))
        # Spec 13: live EVENTs follow in the order of commits, without limit.
        self.part = Part.TAIL

    def _encode(self, cursor: Cursor) -> bytes:
        return encode_cursor(cursor, self._epoch, self.filter_hash, descending=self.filters.descending)
