"""Applies a peer's records (OFFER, REQUEST, ACK, MESSAGE) to the state of a BSP device.

``BspDevice.receive`` calls it with decoded records; the repository keeps what follows from them. A peer gets no answer
about a group that is not shared with it: its OFFER or MESSAGE is treated as of an unknown group. Spec: seed 4.1, bsp 2;
clarifications 4 to 6 and 9 of bsp 11.
"""

from collections.abc import Callable
from typing import Final

from waystation.core.instant import Instant
from waystation.protocols.bsp.device.events import Dropped, PeerHolds
from waystation.protocols.bsp.device.flags import HOLD, Link, PeerState, Row, Sharing
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.member import Membership
from waystation.protocols.bsp.device.rejected import RejectedMessages
from waystation.protocols.bsp.device.repository import Repository
from waystation.protocols.bsp.graph.formats import InvalidMessageError
from waystation.protocols.bsp.graph.order import DEPENDENCIES_MAX, Vertex
from waystation.protocols.bsp.messages import Ack, Message, Offer, Record, Request
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["MESSAGES_MAX", "Admission", "Receiver", "admit_all"]

MESSAGES_MAX: Final = 1_000_000
"""Of one device, tombstones included; about half a gigabyte of memory."""

_NOWHERE: Final = b""  # looked up all the same: the time that it takes must not show that we know a message
Admission = Callable[[bytes, int], Refusal | None]
"""Asked with group and body size before a new message of a peer is stored; a refusal leaves it with its author."""


def admit_all(_group_id: bytes, _size_bytes: int) -> Refusal | None:
    """Refuse nothing."""
    return None


class Receiver:
    """Applies the records of peers to the repository."""

    def __init__(
        self, repository: Repository, admits: Admission, messages_max: int, rejected: RejectedMessages
    ) -> None:
        """Enter into ``repository``; ``admits`` and ``messages_max`` bound what peers can make us store."""
        self._repository = repository
        self._admits = admits
        self.messages_max = messages_max
        self.rejected = rejected
        """The messages that were refused lately."""
        self._handlers: dict[type, Callable[..., None]] = {
            Message: self._on_message,
            Ack: self._on_ack,
            Offer: self._on_offer,
            Request: self._on_request,
        }

    def receive(self, peer: PeerState, record: Record, now: Instant, link: Link | None) -> None:
        """Apply one record; other types change nothing in a device."""
        handler = self._handlers.get(type(record))
        if handler is not None:
            handler(peer, record, now, link)

    # MESSAGE

    def _on_message(self, peer: PeerState, record: Message, now: Instant, _link: Link | None) -> None:
        group_id, timestamp, body = record
        sharing = peer.sharings.get(group_id)
        # Spec 2: a MESSAGE of a group that is unknown or not shared is dropped without an ACK, which would show
        # that we are a member (BSP-D8).
        if sharing is None:
            self._repository.emit_now(Dropped(group_id, peer.key, Refusal.UNSHARED_GROUP))
            return
        repository = self._repository
        member = repository.members[group_id]
        # Spec 1: the identifier is the hash of group, time and body; it is never read off the wire.
        message_id = member.hasher(timestamp, body)
        vertex = member.graph.vertices.get(message_id)
        # Spec 2: a MESSAGE that we know, in whatever state: hold = ack = 1, request = 0.
        if vertex is not None:
            repository.received(sharing, vertex)
            return
        refusal = self._on_new(sharing, member, message_id, record, now)
        # Spec 2: a refused message is not acknowledged, so that its author tries again.
        if refusal is not None:
            repository.emit_now(Dropped(group_id, peer.key, refusal))
            row = self.rejected.note(message_id, peer.key, refusal, now)
            if row is not None:
                repository.keep(row)

    def _on_new(
        self, sharing: Sharing, member: Membership, message_id: bytes, record: Message, now: Instant
    ) -> Refusal | None:
        """Store a message and place it in its graph, or return why not."""
        group_id, timestamp, body = record
        repository, graph = self._repository, member.graph
        # Spec 9: 1,000,000 messages of a device, tombstones included; no acknowledgement beyond.
        if len(repository.index) >= self.messages_max:
            return Refusal.DEVICE_FULL
        # Spec 6, 9: the mailbox's quota or the node's bound for this group.
        refusal = self._admits(group_id, len(body))
        if refusal is not None:
            return refusal
        fault, dependencies = _read_dependencies(member, body)
        vertex = Vertex(message_id, timestamp, len(body), dependencies)
        # Spec 9: 100,000 pending messages of a group, which wait for 400,000 others.
        if dependencies and not graph.has_room(vertex):
            return Refusal.PENDING_FULL
        # Spec 2: ACK means stored, not valid: an invalid message is stored and acknowledged too.
        repository.enter(member, vertex, body, now, sharing.peer.key)
        self._credit(member, vertex, sharing)  # before it is shared: a peer that holds it needs no row
        # Spec 4: what cannot be parsed or names more than 64 others is INVALID, and so is what waits for it.
        changes = graph.place(vertex) if fault is None else graph.place_invalid(vertex, fault)
        repository.follow(member, changes, now)
        return None

    def _credit(self, member: Membership, vertex: Vertex, sharing: Sharing) -> None:
        """Mark a new message as held by the peer that sent it and by every peer that has offered it."""
        repository, message_id = self._repository, vertex.message_id
        for other in member.sharings.values():
            # Spec 2: hold = ack = 1 for the sender and for every peer of the group that has offered it.
            if other is sharing or message_id in other.peer.offered:
                other.peer.offered.remove((message_id,))
                repository.credit(other, vertex)

    # ACK, OFFER, REQUEST

    def _on_ack(self, peer: PeerState, record: Ack, now: Instant, link: Link | None) -> None:
        for message_id in record.ids:
            row = peer.rows.get(message_id)
            if row is not None:
                self._held(row.sharing, row.vertex, row, now, link)
                continue
            # Spec 2: an ACK of what is not shared with the sender changes nothing.
            found = self._shared(peer, message_id)
            if found is not None and found[1].shared:
                self._held(*found, None, now, link)

    def _held(self, sharing: Sharing, vertex: Vertex, row: Row | None, now: Instant, link: Link | None) -> None:
        history: tuple[int, Instant | None, Instant | None, Instant | None] = (0, None, None, None)
        if row is not None:
            history = row.count, row.offered_at, row.requested_at, row.message_at
            self._learn(row, now, link, held=True)
            # Spec 2: ACK: hold = 1, request = 0.
            row.request = False
        is_new = not sharing.has(vertex.seq, HOLD)
        self._repository.note_held(sharing, vertex)
        if is_new:
            self._repository.emit(PeerHolds(sharing.group_id, vertex.message_id, sharing.peer.key, *history))

    def _on_offer(self, peer: PeerState, record: Offer, _now: Instant, _link: Link | None) -> None:
        repository = self._repository
        index, offered = repository.index, peer.offered
        for message_id in record.ids:
            member = index.get(message_id)
            sharing = peer.sharings.get(member.group.group_id if member is not None else _NOWHERE)
            if member is None or sharing is None:
                # Spec 2: an OFFER of an unknown message, or of one that the sender may not know of, goes into the list.
                offered.add(message_id)
            else:
                # Spec 2: an OFFER of a known message is acknowledged, be it pending, invalid or without body.
                repository.received(sharing, member.graph.vertices[message_id])
        if len(offered):
            repository.mark_dirty(peer)

    def _on_request(self, peer: PeerState, record: Request, now: Instant, link: Link | None) -> None:
        for message_id in record.ids:
            found = self._shared(peer, message_id)
            # Spec 2: REQUEST is served only for messages that we share with the sender and have the body of.
            if found is None or not found[1].shared or not found[1].body_present:
                continue
            sharing, vertex = found
            holds = sharing.has(vertex.seq, HOLD)
            # Spec 7: profile briar ignores a REQUEST while hold = 1.
            if holds and not self._repository.profile.serves_held:
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
        # The interval of the faster of both links: a slow copy must not hold up a fast one.
        base_us = row.base_us if peer.link is None else min(row.base_us, peer.link.base_us)
        is_early = row.message_at is not None and now - row.message_at < base_us
        # Spec 11.9: repeated REQUESTs bring at most two copies within a base interval.
        if row.request and (is_early or not row.count):
            return
        # Spec 2: a body that left less than one base interval ago sets only request = 1, any other is due now.
        row.request, row.requested_at = True, now
        if not is_early:
            row.count, row.next_at = 0, now
        self._repository.hand_over(row, now)
        self._repository.alarm(peer)

    def _shared(self, peer: PeerState, message_id: bytes) -> tuple[Sharing, Vertex] | None:
        """Return a message of a group that we share with a peer, None for every other."""
        member = self._repository.index.get(message_id)
        sharing = peer.sharings.get(member.group.group_id if member is not None else _NOWHERE)
        # Spec 7: a group that is only visible is taken from, and nothing of it is sent.
        if member is None or sharing is None or sharing.visibility is not Visibility.SHARED:
            return None
        return sharing, member.graph.vertices[message_id]

    def _learn(self, row: Row, now: Instant, link: Link | None, *, held: bool) -> None:
        """Measure the answer to a copy: the round trip, and whether the peer held the message already."""
        if row.sent_at is None:
            return
        # Karn: a second copy makes it unknown which one was answered.
        if link is not None and row.link is link and row.count == 1:
            link.measure(now - row.sent_at)
        # BSP-D10: the answer to an offer shows whether the peer held the message already.
        if row.offered_last:
            row.sharing.peer.learn(held=held)
        row.sent_at, row.offered_last = None, False


def _read_dependencies(member: Membership, body: bytes) -> tuple[Refusal | None, tuple[bytes, ...]]:
    """Return the dependencies of a body, or why it is invalid."""
    try:
        dependencies = member.dependencies(body)
    # Spec 4: INVALID when it cannot be parsed.
    except InvalidMessageError:
        return Refusal.UNPARSABLE, ()
    # Spec 11.6: more than 64, repeats counted once: invalid and acknowledged.
    if len(dependencies) > DEPENDENCIES_MAX:
        return Refusal.TOO_MANY_DEPENDENCIES, ()
    return None, dependencies
