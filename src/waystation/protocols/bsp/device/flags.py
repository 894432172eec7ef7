"""What each peer has of each group: flags per message, rows of messages still to be sent, and links.

The repository keeps one ``PeerState`` for each peer; ``receiving`` sets flags from records, ``sending`` takes what is
due. A message that a peer holds costs one byte here. Only a message that the peer does not hold, or asks for, has a
``Row`` with the count and time of its copies. Rows are in two heaps: waiting rows by their next send time, due rows by
the age of their message. Spec: seed 4.1, 4.3; bsp 2, 3.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.bsp.device.links import CAP_FACTOR, LinkTerms, Visibility
from waystation.protocols.bsp.device.offered import OfferedList
from waystation.protocols.bsp.graph.order import Vertex

__all__ = ["ACK", "HOLD", "Link", "PeerState", "Row", "Sharing"]

HOLD: Final = 1
"""The peer is known to hold the message."""
ACK: Final = 2
"""We owe the peer an acknowledgement."""

_DOUBLINGS_MAX: Final = 40  # a second doubled so often is longer than any wait; keeps the shift small
_SMOOTHING: Final = 8  # of measured round trips and of the estimate of what a peer holds: an eighth is the newest
_NOTICED: Final = 4  # a part of the base interval that is worth moving rows for
_ONE: Final = 1 << 16  # the estimate counts in units of this
_VOID_MAX: Final = 1_024  # void entries in the heaps of a peer, besides as many as there are rows


class Link:
    """One link to a peer while it is up."""

    __slots__ = ("_round_trip_us", "number", "terms")

    def __init__(self, number: int, terms: LinkTerms) -> None:
        self.number = number
        self.terms = terms
        self._round_trip_us: int | None = None

    @property
    def round_trip_us(self) -> int | None:
        """Smoothed round trip in microseconds, None as long as nothing was answered."""
        return self._round_trip_us

    @property
    def base_us(self) -> int:
        """Interval after the first copy (BSP-D11)."""
        # Spec 3: base is the link's own, or twice the measured round trip, whichever is longer.
        least = self.terms.base_ms * MICROSECONDS_PER_MS
        return least if self._round_trip_us is None else max(least, 2 * self._round_trip_us)

    def measure(self, round_trip_us: int) -> None:
        """Take a round trip into account."""
        if self.terms.measures:
            # A file or mailbox answers when its reader comes: that time says nothing about the link.
            before = self._round_trip_us
            self._round_trip_us = (
                round_trip_us if before is None else (before * (_SMOOTHING - 1) + round_trip_us) // _SMOOTHING
            )

    def interval_us(self, count: int) -> int:
        """Return how long to wait after copy number ``count`` + 1."""
        base = self.base_us
        # Spec 3: the interval grows as base * 2^count and stops at 64 * base, for files at 14 days.
        cap = base * CAP_FACTOR if self.terms.cap_ms is None else self.terms.cap_ms * MICROSECONDS_PER_MS
        return min(cap, base << min(count, _DOUBLINGS_MAX))


class Sharing:
    """One group that we share with one peer, and the flags of its messages."""

    __slots__ = ("_audience", "flags", "group_id", "peer", "slow", "visibility")

    def __init__(
        self, group_id: bytes, peer: "PeerState", visibility: Visibility, audience: "Mapping[PublicKey, Sharing]"
    ) -> None:
        """Begin with nothing known.

        Args:
            group_id: 32 bytes.
            peer: The peer that shares the group.
            visibility: Whether we send to it, or only take from it.
            audience: All peers that share the group.
        """
        self._audience = audience
        self.group_id = group_id
        self.peer = peer
        self.visibility = visibility
        self.flags = bytearray()
        """One byte of ``HOLD`` and ``ACK`` per message, by its ``seq``; may be shorter than there are messages."""
        self.slow: dict[int, Row] = {}
        """Rows whose last copy may still arrive when this device has ended, by ``seq``."""

    @property
    def is_only_source(self) -> bool:
        """Whether, as far as we know, the peer gets the group's messages from us alone."""
        return len(self._audience) == 1

    def has(self, seq: int, bit: int) -> bool:
        """Return whether a flag is set."""
        return seq < len(self.flags) and bool(self.flags[seq] & bit)

    def set(self, seq: int, bits: int) -> bool:
        """Set flags; return whether one of them was not set before."""
        flags = self.flags
        if seq >= len(flags):
            flags.extend(bytes(seq + 1 - len(flags)))
        before = flags[seq]
        flags[seq] = before | bits
        return before | bits != before

    def clear(self, seq: int, bits: int) -> None:
        """Clear flags."""
        if seq < len(self.flags):
            self.flags[seq] &= ~bits


class Row:
    """A message that a peer does not hold, or asks for, or that went out to it not long ago."""

    __slots__ = (
        "base_us",
        "count",
        "kept_base_us",
        "kept_until",
        "link",
        "message_at",
        "next_at",
        "offered_at",
        "offered_last",
        "request",
        "requested_at",
        "sent_at",
        "sharing",
        "stamp",
        "vertex",
    )

    def __init__(self, sharing: Sharing, vertex: Vertex) -> None:
        self.sharing = sharing
        self.vertex = vertex
        self.request = False
        """The peer asked for it since we last offered or sent it."""
        self.count = 0
        """How often it was offered or sent."""
        self.next_at = Instant(0)
        """When it may be offered or sent next; meaningless while ``count`` is 0."""
        self.base_us = 0
        """Base interval of the link that carried its last copy."""
        self.kept_until = Instant(0)
        """When a copy that outlives its link may be followed by another one like it (BSP-KEPT)."""
        self.kept_base_us = 0
        """Base interval of the link that carried such a copy."""
        self.link: Link | None = None
        """The link of the last copy; None when it went out before a restart."""
        self.sent_at: Instant | None = None
        """When its last copy went out."""
        self.offered_at: Instant | None = None
        """When it was offered last."""
        self.requested_at: Instant | None = None
        """When the peer asked for it last."""
        self.message_at: Instant | None = None
        """When its body went out last."""
        self.offered_last = False
        """Whether the last copy was an offer."""
        self.stamp = 0
        """Number of its valid entry in a heap; negative when the row is dropped."""

    @property
    def holds(self) -> bool:
        """Whether the peer is known to hold the message."""
        return self.sharing.has(self.vertex.seq, HOLD)

    def went_out(self, link: Link, now: Instant, *, body: bool) -> None:
        """Note a copy: the send count and the send time grow (seed 4.3)."""
        # Spec 2: OFFER or MESSAGE written clears the request.
        self.request = False
        # Seed 4.3: send count and send time grow with every copy, the time exponentially.
        self.next_at = Instant(now + link.interval_us(self.count))
        # BSP-KEPT: this copy may still arrive when the link is gone, so it is not repeated on a like one before.
        if link.terms.outlives:
            self.kept_until, self.kept_base_us = self.next_at, link.base_us
        self.count += 1
        self.base_us = link.base_us
        self.link = link
        self.sent_at = now
        self.offered_last = not body
        if body:
            self.message_at = now
        else:
            self.offered_at = now


class PeerState:
    """All state of one peer."""

    __slots__ = (
        "_due",
        "_held_estimate",
        "_serial",
        "_waiting",
        "key",
        "last_sent_at",
        "links",
        "number",
        "offered",
        "rows",
        "sharings",
        "to_ack",
        "unheld_count",
    )

    def __init__(self, key: PublicKey, number: int, *, drops_oldest: bool) -> None:
        self.key = key
        self.number = number
        """Small, and never used twice by one device."""
        self.sharings: dict[bytes, Sharing] = {}
        """By group."""
        self.offered = OfferedList(drops_oldest=drops_oldest)
        self.links: list[Link] = []
        """Those that are up, the newest last."""
        self.last_sent_at: Instant | None = None
        """When something was sent last, None once that has left."""
        self.to_ack: dict[bytes, tuple[Sharing, Vertex]] = {}
        """By message; what it is about is on disk."""
        self.rows: dict[bytes, Row] = {}
        """By message, of all groups."""
        self.unheld_count = 0
        """Rows of messages that the peer is not known to hold."""
        self._due: list[tuple[int, bytes, int, Row]] = []
        self._waiting: list[tuple[Instant, int, Row]] = []
        self._serial = 0
        self._held_estimate: int | None = None

    @property
    def link(self) -> Link | None:
        """The link on which we send: the newest of the fastest kind (BSP-NEWEST)."""
        if len(self.links) < 2:
            return self.links[0] if self.links else None
        return max(self.links, key=_preference)

    # The estimate of what it holds already (BSP-D10)

    def learn(self, *, held: bool) -> None:
        """Take into account whether the peer held a message before we sent it."""
        # BSP-D10: d is a moving mean over the peer's answers.
        sample = _ONE if held else 0
        before = sample if self._held_estimate is None else self._held_estimate
        self._held_estimate = (before * (_SMOOTHING - 1) + sample) // _SMOOTHING

    def probably_holds(self, size_bytes: int) -> bool:
        """Return whether an offer is expected to cost fewer bytes than sending a body of ``size_bytes`` at once.

        Before the first answer a message is offered: that is the first measurement (BSP-ESTIMATE).
        """
        estimate = self._held_estimate
        if estimate is None:
            return True
        return estimate * (76 + size_bytes) > 64 * _ONE  # d > 64 / (76 + b), bsp 3

    # Rows and their order

    def put(self, row: Row, now: Instant) -> None:
        """Queue a row by its send time; its former entry in a heap is void."""
        self._serial += 1
        row.stamp = self._serial
        # Spec 3: due rows are taken by the age of their message, the others wait for their send time.
        if row.count == 0 or row.next_at <= now:
            heapq.heappush(self._due, (row.vertex.timestamp, row.vertex.message_id, row.stamp, row))
        else:
            heapq.heappush(self._waiting, (row.next_at, row.stamp, row))
        if len(self._due) + len(self._waiting) > 2 * len(self.rows) + _VOID_MAX:
            self._clear_void()

    def drop(self, row: Row) -> None:
        """Forget a row."""
        if row.stamp >= 0:
            row.stamp = -1
            row.sharing.slow.pop(row.vertex.seq, None)
            self.rows.pop(row.vertex.message_id, None)
            if not row.holds:
                self.unheld_count -= 1

    def promote_due(self, now: Instant) -> None:
        """Move rows whose send time has come to the heap of due rows; drop those that are needless."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            _, stamp, row = heapq.heappop(waiting)
            if row.stamp == stamp and not self._is_needless(row):
                heapq.heappush(self._due, (row.vertex.timestamp, row.vertex.message_id, stamp, row))

    def next_due(self) -> Row | None:
        """Take out and return the row of the oldest message that is due, or None."""
        due = self._due
        while due:
            _, _, stamp, row = heapq.heappop(due)
            if row.stamp == stamp and not self._is_needless(row):
                return row
        return None

    def has_due(self, now: Instant) -> bool:
        """Return whether ``next_due`` would find a row, before ``promote_due``."""
        due = self._due
        while due and (due[0][3].stamp != due[0][2] or self._is_needless(due[0][3])):
            heapq.heappop(due)
        if due:
            return True
        top = self._waiting_top()
        return top is not None and top[0] <= now

    def next_at(self) -> Instant | None:
        """Return when the next row that waits may go out, or None."""
        top = self._waiting_top()
        return top[0] if top is not None else None

    def _waiting_top(self) -> tuple[Instant, int, Row] | None:
        waiting = self._waiting
        while waiting and waiting[0][2].stamp != waiting[0][1]:
            heapq.heappop(waiting)
        return waiting[0] if waiting else None

    def _clear_void(self) -> None:
        """Remove void entries, which a peer that requests again and again, or reconnects, makes without end."""
        self._due = [place for place in self._due if place[3].stamp == place[2]]
        self._waiting = [place for place in self._waiting if place[2].stamp == place[1]]
        heapq.heapify(self._due)
        heapq.heapify(self._waiting)

    def drained(self, now: Instant) -> None:
        """Start the intervals of what was sent now, if it took noticeably long to leave.

        Of all that is not answered, not only of the last write: the link keeps the order, and buffers that we do not
        see have taken in earlier writes without a report of when they left.
        """
        link, last_sent_at = self.link, self.last_sent_at
        self.last_sent_at = None
        # Writes that left within a quarter of the base interval change no send time worth moving.
        if link is None or last_sent_at is None or (now - last_sent_at) * _NOTICED < link.base_us:
            return
        # BSP-LEFT: the interval of a slow write begins when its last byte has left.
        for row in [row for row in self._rows_sent() if row.link is link and not row.request]:
            row.sent_at = now
            row.next_at = Instant(now + link.interval_us(row.count - 1))
            self.put(row, now)

    def revive(self, link: Link, now: Instant) -> None:
        """Make due at once what a new link can deliver sooner than the last copy's link (bsp 3, BSP-D11)."""
        base_us = link.base_us
        live = {each.number for each in self.links} | {link.number}
        revived = []
        for row in self._rows_sent():
            before = row.link
            # Spec 3: on a new connection everything is due at once whose last copy left on one that is gone.
            if before is not None and before.number not in live and not before.terms.outlives:
                row.message_at = None  # lost with its link, so a request for it is no repetition
            # Spec 3: so is everything when the new link has a smaller base than the last one.
            elif base_us >= row.base_us:
                continue
            revived.append(row)
        if link.terms.outlives:
            for row in revived:
                if row.kept_until > now:  # a copy that is kept on such a link may still arrive (BSP-KEPT)
                    row.next_at = row.kept_until
                    self.put(row, now)
            revived = [row for row in revived if row.kept_until <= now]
        self._make_due(revived, now)

    def repeat(self, now: Instant) -> None:
        """Make due at once every message that the peer is not known to hold."""
        self._make_due(list(self._rows_sent()), now)

    def _make_due(self, rows: list[Row], now: Instant) -> None:
        """Make many rows due at once: one by one, a peer that reconnects often would cost us much."""
        for row in rows:
            self._serial += 1
            row.stamp, row.next_at = self._serial, now
            self._due.append((row.vertex.timestamp, row.vertex.message_id, row.stamp, row))
        self._clear_void()

    def _is_needless(self, row: Row) -> bool:
        """Return whether the peer holds the message and does not request it; the row is dropped then."""
        # BSP-HELD: what a peer holds keeps a flag, not a row, unless the peer requests it again.
        if row.request or not row.holds:
            return False
        self.drop(row)
        return True

    def _rows_sent(self) -> Iterator[Row]:
        return (row for row in self.rows.values() if row.count and (row.request or not row.holds))


def _preference(link: Link) -> tuple[int, int]:
    # BSP-NEWEST: streams before relays before mailboxes and files; of one kind the newest.
    return link.terms.rank, link.number
