"""Delivers packets to subscriptions: live to those that are current, from pages of the store to all others.

The relay passes committed packets in; EVENT messages come out. Live matching does not visit every subscription. It
finds those with authors by author, and those with only types by type. Only those without both are visited for every
packet. Spec: RFC-0004 3.1, 3.3; specs/strata.md 13; decision STRATA-TAIL.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.packets import PacketEntry, PacketPage, PacketQuery, PacketReader, PacketRow
from waystation.protocols.strata.canonical import canonicalise
from waystation.protocols.strata.provenance import Downgrade, mutated
from waystation.protocols.strata.relay.outbox import Outbox
from waystation.protocols.strata.relay.policy import Policy
from waystation.protocols.strata.relay.subscription import Subscription
from waystation.protocols.strata.session import REPLICATE, Session
from waystation.protocols.strata.wire import encode_end_of_history, splice_event

__all__ = ["Delivery", "served"]

PAGES_PER_TURN_MAX: Final = 8  # of all readers together, so that history never keeps the loop for long
WAIT_MAX_S: Final = 60  # a clock that was put back keeps no reader waiting
REST_S: Final = 1  # of all readers, after a read that failed
MUTATE: Final = "mutate"


class _Listener(NamedTuple):
    session: Session
    subscription: Subscription
    narrow: bool
    """Whether a found packet must still match the filters."""


_Listeners = dict[tuple[int, str], _Listener]


class Delivery:
    """All subscriptions of one relay."""

    def __init__(
        self,
        packets: PacketReader,
        outbox: Outbox,
        mode: str,
        policy: Callable[[], Policy],
        wait_s: Callable[[Session], int],
    ) -> None:
        """Start without subscriptions.

        Args:
            packets: The stored packets.
            outbox: Takes the EVENTs.
            mode: ``annotate`` or ``mutate`` (D12).
            policy: The block lists as of now.
            wait_s: Pays for a page that was looked through in vain; returns 0, or in how many seconds to ask again.
        """
        self._packets = packets
        self._wait_s = wait_s
        self._outbox = outbox
        self._mode = mode
        self._policy = policy
        self._by_author: dict[str, _Listeners] = {}
        self._by_type: dict[str, _Listeners] = {}
        self._of_all: _Listeners = {}
        self._readers: dict[Session, None] = {}
        self._resting: dict[Session, int] = {}
        """Readers that owe for a search, and the Unix second at which they are asked again."""
        self.count = 0
        """Subscriptions there are."""
        self._rest_until_s = 0
        self.newest = packets.newest_seq()
        """Newest committed ``seq`` that was published here."""

    def add(self, session: Session, subscription: Subscription) -> None:
        """Begin to serve a subscription; one of the same id must have been removed."""
        assert subscription.id not in session.subscriptions
        session.subscriptions[subscription.id] = subscription
        filters = subscription.filters
        bounded = filters.since is not None or filters.until is not None or bool(filters.ids)
        listener = _Listener(session, subscription, bounded or bool(filters.authors and filters.types))
        # Each subscription is in one kind of index only: no packet finds it twice.
        for listeners in self._places(subscription):
            listeners[session.peer, subscription.id] = listener
        self.count += 1
        if session not in self._resting:
            self._readers[session] = None

    def remove(self, session: Session, subscription_id: str) -> Subscription | None:
        """Stop serving a subscription and return it, None when there is none."""
        subscription = session.subscriptions.pop(subscription_id, None)
        if subscription is None:
            return None
        self.count -= 1
        key = (session.peer, subscription_id)
        for author in subscription.filters.authors:
            _discard(self._by_author, author, key)
        for content_type in subscription.filters.types:
            _discard(self._by_type, content_type, key)
        self._of_all.pop(key, None)
        if not session.subscriptions:
            self._readers.pop(session, None)
            self._resting.pop(session, None)
        return subscription

    def read_on(self, session: Session) -> None:
        """Note that a connection may take a page."""
        if session.lagging() and session not in self._resting:
            self._readers[session] = None

    # Live

    def publish(self, row: PacketRow, wall_s: int) -> None:
        """Send a packet that has just been committed to every live subscription that it matches."""
        # Spec 13.2: sent right after its durable commit; the history of a new subscription ends here.
        self.newest = max(self.newest, row.seq)
        policy = self._policy()
        expired = row.expires_at is not None and wall_s > row.expires_at
        # Spec 13: expired, blocked and hidden packets are left out.
        if expired or not (policy.is_open or policy.serves(row)):
            return
        cursors: dict[tuple[bytes, bool], bytes] = {}
        given = served(row, self._mode, replicating=False)
        outbox = self._outbox
        for session, subscription, narrow in self._found(row):
            if not subscription.live:
                continue
            # Spec 13: since and until hold live too.
            if narrow and not subscription.filters.match(row.author_id, row.content_type, row.timestamp, row.packet_id):
                continue
            if not outbox.takes_live(session):
                # Spec 13.3: a reader that stops taking bytes falls back to reading the store and loses nothing.
                subscription.fall_behind(row.seq)
                continue
            # Spec 9.1: relays always get the packet as signed.
            packet, note = (row.canonical, row.downgrade) if REPLICATE in session.capabilities else given
            cursor = b""
            # Spec 13.1: after EOSE with has_more true live EVENTs come without cursor.
            if subscription.complete:
                key = (subscription.filter_hash, subscription.filters.descending)
                cursor = cursors.get(key, b"")
                if not cursor:
                    cursor = cursors[key] = subscription.live_cursor(row.seq)
            subscription.live_events += 1
            outbox.send(session, splice_event(packet, row.received_at, cursor, note, subscription.tail))

    def _found(self, row: PacketRow) -> Iterator[_Listener]:
        yield from self._of_all.values()
        for listeners in (self._by_author.get(row.author_id), self._by_type.get(row.content_type)):
            if listeners is not None:
                yield from listeners.values()

    # From the store

    def pump(self, wall_s: int) -> None:
        """Send pages to readers that take them, to each one page in its turn."""
        if 0 < self._rest_until_s - wall_s <= REST_S:
            return
        self._rest_until_s = 0
        for session in [each for each, until_s in self._resting.items() if not 0 < until_s - wall_s <= WAIT_MAX_S]:
            del self._resting[session]
            self._pay(session, wall_s)
        credit = PAGES_PER_TURN_MAX
        for session in list(islice(self._readers, PAGES_PER_TURN_MAX)):
            if credit <= 0:
                break
            del self._readers[session]
            if not self._outbox.takes_page(session):
                continue  # it is queued again when its connection has drained
            lagging = next((entry for entry in session.subscriptions.values() if not entry.live), None)
            if lagging is None:
                continue
            try:
                cost = self._send_page(session, lagging, wall_s)
            except StoreFault as fault:
                self._on_fault(session, lagging, fault, wall_s)
                break
            credit -= cost
            session.subscriptions[lagging.id] = session.subscriptions.pop(lagging.id)  # the others first, next time
            if cost > 1:
                self._pay(session, wall_s)
                continue
            # A page that held nothing to send needs no receipt: the next one may follow in the next turn.
            if not session.awaits_receipt and session.lagging():
                self._readers[session] = None

    def _pay(self, session: Session, wall_s: int) -> None:
        """Let a reader whose last page was a search go on when it has paid for it, or later (STRATA-SEARCH)."""
        wait_s = min(self._wait_s(session), WAIT_MAX_S)
        if wait_s:
            self._readers.pop(session, None)
            self._resting[session] = wall_s + wait_s
        elif not session.awaits_receipt and session.lagging():
            self._readers[session] = None

    @property
    def has_readers(self) -> bool:
        """Whether some reader can take a page in the next turn."""
        return bool(self._readers) and not self._rest_until_s

    def deadlines(self, wall_offset_us: int) -> list[Instant]:
        """Return when ``pump`` has something to do: at once, or after a rest.

        Args:
            wall_offset_us: What the wall clock is ahead of the monotonic one.
        """
        due = [self._rest_until_s] if self._readers else []
        if self._resting:
            due.append(max(min(self._resting.values()), self._rest_until_s))
        return [max(Instant(0), Instant(second * MICROSECONDS_PER_SECOND - wall_offset_us)) for second in due]

    def _on_fault(self, session: Session, subscription: Subscription, fault: StoreFault, wall_s: int) -> None:
        """Keep a reader whose page could not be read (STRATA-UNREAD)."""
        self._readers[session] = None
        # A range that is damaged is not read better later: its reader goes on behind it, and learns so.
        if fault.kind is not StoreFaultKind.DAMAGED or not subscription.skip_history():
            self._rest_until_s = wall_s + REST_S

    def _send_page(self, session: Session, subscription: Subscription, wall_s: int) -> int:
        """Send the next page, and return how many pages it counts for."""
        policy, tail = self._policy(), subscription.tail
        query = subscription.query(self.newest, wall_s)
        # Block lists need the packet's body; without them less of it has to be read.
        page: PacketPage[Any] = self._packets.entries(query) if policy.is_open else self._packets.page(query)
        cost = 1 if page.position is None or _is_full(page.rows, query) else PAGES_PER_TURN_MAX
        if not policy.is_open:  # what is not served must not count against the limit either
            page = PacketPage([row for row in page.rows if policy.serves(row)], page.position)
        replicating = REPLICATE in session.capabilities
        messages = _end_of_history(subscription)
        for row, cursor in subscription.took(page, self.newest):
            packet, note = served(row, self._mode, replicating) if row.downgrade else (row.canonical, b"")
            messages.append(splice_event(packet, row.received_at, cursor, note, tail))
        messages += _end_of_history(subscription)
        if messages:
            self._outbox.send_page(session, messages)
        return cost

    def _places(self, subscription: Subscription) -> Iterator[_Listeners]:
        filters = subscription.filters
        for author in filters.authors:
            yield self._by_author.setdefault(author, {})
        if not filters.authors:
            for content_type in filters.types:
                yield self._by_type.setdefault(content_type, {})
        if not filters.authors and not filters.types:
            yield self._of_all


def served(row: PacketRow | PacketEntry, mode: str, replicating: bool) -> tuple[bytes, bytes]:
    """Return the packet as it is given out and its ``provenance_downgrade``, b"" for none (D12).

    Relays always get the signed bytes, since they check for themselves.
    """
    if not row.downgrade or mode != MUTATE or replicating:
        return row.canonical, row.downgrade
    note = orjson.loads(row.downgrade)
    # Spec 9.1: mutate shows UNKNOWN and puts the signed header beside it.
    packet, header = mutated(orjson.loads(row.canonical), Downgrade(note["claimed"], note["reason"]))
    return packet, canonicalise({**note, "original_provenance_header": header})


def _end_of_history(subscription: Subscription) -> list[bytes]:
    """Return the EOSE that is owed now, at most one; it comes before the first packet of the tail."""
    if not subscription.eose_owed or subscription.in_history:
        return []
    subscription.eose_owed = False
    return [encode_end_of_history(subscription.id, subscription.cursor_text(), has_more=not subscription.complete)]


def _is_full(rows: Sequence[PacketEntry], query: PacketQuery) -> bool:
    """Return whether a page ended for being full; one that goes on and is not full has read thousands of packets.

    Such a page costs as much as eight full ones, and any client can ask for many of them with a rare filter.
    """
    return len(rows) >= query.rows_max or sum(len(row.canonical) for row in rows) >= query.bytes_max


def _discard(index: dict[str, _Listeners], key: str, listener: tuple[int, str]) -> None:
    listeners = index.get(key)
    if listeners is not None:
        listeners.pop(listener, None)
        if not listeners:
            del index[key]
