"""What a record of a peer changes. Spec: seed 4.1, bsp 2; clarifications 4 to 6 and 9 of bsp 11.

A peer is answered about nothing that is not shared with it: an OFFER or MESSAGE of another group is to us as one of a
group that we never heard of.
"""

from collections.abc import Callable
from typing import Final

from waystation.core.instant import Instant
from waystation.protocols.bsp.books import Books
from waystation.protocols.bsp.events import Dropped, PeerHolds
from waystation.protocols.bsp.flags import HOLD, Link, PeerState, Row, Sharing
from waystation.protocols.bsp.formats import InvalidMessageError
from waystation.protocols.bsp.graph import DEPENDENCIES_MAX, Vertex
from waystation.protocols.bsp.links import Visibility
from waystation.protocols.bsp.member import Membership
from waystation.protocols.bsp.messages import Ack, Message, Offer, Record, Request
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.turned_away import TurnedAway

__all__ = ["MESSAGES_MAX", "Admission", "Hearing", "admit_all"]

MESSAGES_MAX: Final = 1_000_000
"""Of one device, tombstones included; about half a gigabyte of memory."""

_NOWHERE: Final = b""  # looked up all the same: how long it takes must not tell that we know a message
Admission = Callable[[bytes, int], Refusal | None]
"""Asked with group and body size before a new message of a peer is stored; a refusal leaves it with its author."""


def admit_all(_group_id: bytes, _size_bytes: int) -> Refusal | None:
    """Refuse nothing."""
    return None


class Hearing:
    """Takes records of peers into the books."""

    def __init__(self, books: Books, admits: Admission, messages_max: int, turned_away: TurnedAway) -> None:
        """Enter into ``books``; ``admits`` and ``messages_max`` bound what strangers can make us store."""
        self._books = books
        self._admits = admits
        self._messages_max = messages_max
        self.turned_away = turned_away
        """What was not taken lately."""
        self._takers: dict[type, Callable[..., None]] = {
            Message: self._take_message,
            Ack: self._take_ack,
            Offer: self._take_offer,
            Request: self._take_request,
        }

    def take(self, peer: PeerState, record: Record, now: Instant, link: Link | None) -> None:
        """Take one record; those of other types say nothing to a device."""
        taker = self._takers.get(type(record))
        if taker is not None:
            taker(peer, record, now, link)

    # MESSAGE

    def _take_message(self, peer: PeerState, record: Message, now: Instant, _link: Link | None) -> None:
        group_id, timestamp, body = record
        sharing = peer.sharings.get(group_id)
        if sharing is None:
            self._books.tell_now(Dropped(group_id, peer.key, Refusal.UNSHARED_GROUP))
            return
        books = self._books
        member = books.members[group_id]
        message_id = member.hasher(timestamp, body)
        vertex = member.graph.vertices.get(message_id)
        if vertex is not None:
            books.received(sharing, vertex)
            return
        refusal = self._take_new(sharing, member, message_id, record, now)
        if refusal is not None:
            books.tell_now(Dropped(group_id, peer.key, refusal))
            row = self.turned_away.note(message_id, peer.key, refusal, now)
            if row is not None:
                books.keep(row)

    def _take_new(
        self, sharing: Sharing, member: Membership, message_id: bytes, record: Message, now: Instant
    ) -> Refusal | None:
        """Store a message and place it, or return why not."""
        group_id, timestamp, body = record
        books, graph = self._books, member.graph
        if len(books.index) >= self._messages_max:
            return Refusal.DEVICE_FULL
        refusal = self._admits(group_id, len(body))
        if refusal is not None:
            return refusal
        fault, dependencies = _read_dependencies(member, body)
        vertex = Vertex(message_id, timestamp, len(body), dependencies)
        if dependencies and not graph.has_room(vertex):
            return Refusal.PENDING_FULL
        books.enter(member, vertex, body, now, sharing.peer.key)
        self._credit(member, vertex, sharing)  # before it is shared: who holds it needs no row
        changes = graph.place(vertex) if fault is None else graph.place_invalid(vertex, fault)
        books.follow(member, changes, now)
        return None

    def _credit(self, member: Membership, vertex: Vertex, sharing: Sharing) -> None:
        """The peer that sent a new message holds it, and so does everybody who has offered it."""
        books, message_id = self._books, vertex.message_id
        for other in member.sharings.values():
            if other is sharing or message_id in other.peer.offered:
                other.peer.offered.remove((message_id,))
                books.credit(other, vertex)

    # ACK, OFFER, REQUEST

    def _take_ack(self, peer: PeerState, record: Ack, now: Instant, link: Link | None) -> None:
        for message_id in record.ids:
            row = peer.rows.get(message_id)
            if row is not None:
                self._held(row.sharing, row.vertex, row, now, link)
                continue
            found = self._shared(peer, message_id)
            if found is not None and found[1].shared:
                self._held(*found, None, now, link)

    def _held(self, sharing: Sharing, vertex: Vertex, row: Row | None, now: Instant, link: Link | None) -> None:
        told: tuple[int, Instant | None, Instant | None, Instant | None] = (0, None, None, None)
        if row is not None:
            told = row.count, row.offered_at, row.requested_at, row.message_at
            self._learn(row, now, link, held=True)
            row.request = False
        is_new = not sharing.has(vertex.seq, HOLD)
        self._books.note_held(sharing, vertex)
        if is_new:
            self._books.tell(PeerHolds(sharing.group_id, vertex.message_id, sharing.peer.key, *told))

    def _take_offer(self, peer: PeerState, record: Offer, _now: Instant, _link: Link | None) -> None:
        books = self._books
        index, offered = books.index, peer.offered
        for message_id in record.ids:
            member = index.get(message_id)
            sharing = peer.sharings.get(member.group.group_id if member is not None else _NOWHERE)
            if member is None or sharing is None:
                offered.add(message_id)
            else:
                books.received(sharing, member.graph.vertices[message_id])
        if len(offered):
            books.stir(peer)

    def _take_request(self, peer: PeerState, record: Request, now: Instant, link: Link | None) -> None:
        for message_id in record.ids:
            found = self._shared(peer, message_id)
            if found is None or not found[1].shared or not found[1].body_present:
                continue
            sharing, vertex = found
            holds = sharing.has(vertex.seq, HOLD)
            if holds and not self._books.profile.serves_held:
                continue
            row = peer.rows.get(message_id)
            if row is None:
                row = peer.rows[message_id] = Row(sharing, vertex)
                if not holds:
                    peer.unheld_count += 1
            self._learn(row, now, link, held=False)
            self._requested(peer, row, now)

    def _requested(self, peer: PeerState, row: Row, now: Instant) -> None:
        """Serve a request at once, but not twice within a base interval (bsp 2; clarification 9)."""
        base_us = row.base_us if peer.link is None else min(row.base_us, peer.link.base_us)
        is_early = row.message_at is not None and now - row.message_at < base_us
        if row.request and (is_early or not row.count):
            return
        row.request, row.requested_at = True, now
        if not is_early:
            row.count, row.next_at = 0, now
        self._books.hand_over(row, now)
        self._books.alarm(peer)

    def _shared(self, peer: PeerState, message_id: bytes) -> tuple[Sharing, Vertex] | None:
        """Return what a peer may hear of: a message of a group that we share with it."""
        member = self._books.index.get(message_id)
        sharing = peer.sharings.get(member.group.group_id if member is not None else _NOWHERE)
        if member is None or sharing is None or sharing.visibility is not Visibility.SHARED:
            return None
        return sharing, member.graph.vertices[message_id]

    def _learn(self, row: Row, now: Instant, link: Link | None, *, held: bool) -> None:
        """Learn from the answer to a copy: the round trip, and whether an offer was of something held already."""
        if row.sent_at is None:
            return
        if link is not None and row.link is link and row.count == 1:
            link.measure(now - row.sent_at)
        if row.offered_last:
            row.sharing.peer.learn(held=held)
        row.sent_at, row.offered_last = None, False


def _read_dependencies(member: Membership, body: bytes) -> tuple[Refusal | None, tuple[bytes, ...]]:
    """Return what a body depends on, or why it is invalid."""
    try:
        dependencies = member.dependencies(body)
    except InvalidMessageError:
        return Refusal.UNPARSABLE, ()
    if len(dependencies) > DEPENDENCIES_MAX:
        return Refusal.TOO_MANY_DEPENDENCIES, ()
    return None, dependencies
