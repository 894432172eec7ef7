"""The repository of a device: its groups and peers in memory, and the changes that are not yet on disk.

``sync`` and ``receiving`` make the decisions. The repository applies each consequence: a flag, a row to be sent, or an
acknowledgement or event that waits for the commit. Spec: bsp 2, 4.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from waystation.core.alarms import Alarms
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND, Instant, after_ms
from waystation.core.records import Change, Record, Store
from waystation.protocols.bsp.device.events import Deleted, Delivered, DeviceEvent, Invalidated, Settled, Stored
from waystation.protocols.bsp.device.flags import ACK, HOLD, PeerState, Row, Sharing
from waystation.protocols.bsp.device.ledger import CHUNK_MESSAGES, KeptCopy, KeptFlags, Ledger
from waystation.protocols.bsp.device.links import Visibility
from waystation.protocols.bsp.device.member import Membership
from waystation.protocols.bsp.device.uncommitted import Unsaved, Writing
from waystation.protocols.bsp.graph.order import Changes, State, Vertex
from waystation.protocols.bsp.profile import Profile
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["LAZY_MS", "Repository"]

LAZY_MS: Final = 2_000
"""Changes that only save work after a restart wait this long for another commit."""
_COPIES_MAX: Final = 255  # as many as fit a byte; the interval has long stopped growing
_BASE_S_MAX: Final = (1 << 32) - 1


class Repository:
    """All state of a device in memory, and the part of it that is to be written.

    Cost: O(1) per entry; ``changes`` O(what changed).
    """

    def __init__(self, profile: Profile, store: Store, *, shares_delivered: bool) -> None:
        """Start empty; a group is read from the store when it is opened."""
        self.profile = profile
        self.ledger = Ledger(store)
        self.members: dict[bytes, Membership] = {}
        """By group."""
        self.peers: dict[PublicKey, PeerState] = {}
        self.index: dict[bytes, Membership] = {}
        """The group of every message that we know."""
        self.dirty: dict[PeerState, None] = {}
        """Peers for whom something may have become due."""
        self.alarms = Alarms()
        """When rows of peers may go out next, by the peer's number."""
        self._shares_delivered = shares_delivered
        self._gathering = Unsaved()
        self._writing = Writing()
        self._recent: dict[bytes, bytes] = {}
        self._events: list[DeviceEvent] = []
        self._lazy_at: Instant | None = None
        self._wall_offset_us = 0

    # Time

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Set the wall clock; times on disk are in its time."""
        self._wall_offset_us = wall_us - now

    def wall_ms(self, now: Instant) -> int:
        """Return Unix milliseconds, 0 before 1970."""
        return max(0, (now + self._wall_offset_us) // MICROSECONDS_PER_MS)

    def from_wall(self, wall_ms: int) -> Instant:
        """Return the instant at which the wall clock shows ``wall_ms``."""
        return Instant(wall_ms * MICROSECONDS_PER_MS - self._wall_offset_us)

    # Entries about a message and a peer

    def mark_dirty(self, peer: PeerState) -> None:
        """Mark a peer for which something may have become due."""
        self.dirty[peer] = None

    def alarm(self, peer: PeerState) -> None:
        """Set the alarm for the next row of a peer."""
        at = peer.next_at()
        if at is not None:
            self.alarms.set_by(peer.number, at)

    def note_held(self, sharing: Sharing, vertex: Vertex) -> Row | None:
        """Set the hold flag of a message that a peer holds; return its row, if any."""
        if not sharing.set(vertex.seq, HOLD):
            return sharing.peer.rows.get(vertex.message_id)
        self._gathering.note_flag(sharing, vertex.seq)
        self._gathering.must = True
        sharing.slow.pop(vertex.seq, None)
        peer = sharing.peer
        row = peer.rows.get(vertex.message_id)
        if row is not None:
            peer.unheld_count -= 1
            if not peer.unheld_count:
                self.emit(Settled(peer.key))
            # BSP-HELD: a row that carries a copy stays, so that a REQUEST right after the ACK is not served for free.
            if not row.count and not row.request:
                peer.drop(row)
        return row

    def owe_ack(self, sharing: Sharing, vertex: Vertex) -> None:
        """Owe an acknowledgement for a known message that a peer sent or offered, once it is on disk."""
        # Spec 2: MESSAGE or OFFER of one that we know sets hold and ack.
        is_new = sharing.set(vertex.seq, ACK)
        if is_new:
            self._gathering.note_flag(sharing, vertex.seq)
            self._gathering.must = True
        unsaved = self._unsaved_with(vertex.message_id)
        # BSP-ACKED: ACK means stored: it leaves only when the message is on disk.
        if unsaved is None:
            sharing.peer.to_ack[vertex.message_id] = (sharing, vertex)
            self.mark_dirty(sharing.peer)
        elif is_new:
            unsaved.acks.append((sharing, vertex))

    def received(self, sharing: Sharing, vertex: Vertex) -> None:
        """Enter that a peer sent or offered a message that we know."""
        row = self.note_held(sharing, vertex)
        if row is not None:
            row.request = False
            if not row.count:
                sharing.peer.learn(held=True)  # it held the message before we sent it
        self.owe_ack(sharing, vertex)

    def credit(self, sharing: Sharing, vertex: Vertex) -> None:
        """Enter that a peer sent or offered a new message: it holds it, and we owe it an acknowledgement."""
        # Spec 2: MESSAGE, new: stored; hold = ack = 1 for every peer that sent or offered it.
        sharing.set(vertex.seq, HOLD | ACK)
        self._gathering.note_flag(sharing, vertex.seq)
        self._gathering.acks.append((sharing, vertex))

    def acked(self, sharing: Sharing, vertex: Vertex, *, outlives: bool) -> None:
        """Clear the ack flag of a sent acknowledgement; meanwhile its group may be shared no more, or anew."""
        if sharing.peer.sharings.get(sharing.group_id) is not sharing:
            return
        sharing.clear(vertex.seq, ACK)
        sharing.peer.to_ack.pop(vertex.message_id, None)
        self._gathering.note_flag(sharing, vertex.seq)
        self._gathering.must = self._gathering.must or outlives

    def went_out(self, row: Row) -> None:
        """Remember a copy that has left, if it may still arrive after a restart."""
        assert row.link is not None
        sharing, seq = row.sharing, row.vertex.seq
        # BSP-COPIES: counts and times survive a restart where the copy does.
        if row.link.terms.outlives:
            sharing.slow[seq] = row
            self._gathering.note_flag(sharing, seq)
            self._gathering.must = True
        elif seq in sharing.slow:
            self._gathering.note_flag(sharing, seq)

    def add_row(self, sharing: Sharing, vertex: Vertex, now: Instant) -> None:
        """Enter that a message is shared with a peer (bsp 2, first line of the table)."""
        peer, message_id = sharing.peer, vertex.message_id
        # Spec 2: a message that becomes shared and is in the peer's offered list leaves it; hold = ack = 1.
        if message_id in peer.offered:
            peer.offered.remove((message_id,))
            self.received(sharing, vertex)
            return
        # Spec 2: a message without body is never offered or sent; one that the peer holds needs no copy.
        if not vertex.body_present or message_id in peer.rows or sharing.has(vertex.seq, HOLD):
            return
        row = peer.rows[message_id] = Row(sharing, vertex)
        peer.unheld_count += 1
        self.hand_over(row, now)

    def hand_over(self, row: Row, now: Instant) -> None:
        """Queue a row for its peer, once its message is on disk."""
        unsaved = self._unsaved_with(row.vertex.message_id)
        # Nothing is offered or sent before it is on disk: after a crash we could not serve a REQUEST for it.
        if unsaved is None:
            row.sharing.peer.put(row, now)
            self.mark_dirty(row.sharing.peer)
        else:
            unsaved.rows[row] = None

    # Entries about a message

    def enter(self, member: Membership, vertex: Vertex, body: bytes, now: Instant, peer: PublicKey | None) -> None:
        """Enter a new message; its graph places it next."""
        member.number(vertex)
        member.weigh(vertex, 1)
        vertex.stored_ms = self.wall_ms(now)
        self.index[vertex.message_id] = member
        self._gathering.note_message(member, vertex)
        self._gathering.note_body(vertex.message_id, body)
        self._gathering.fresh.add(vertex.message_id)
        self.emit(Stored(member.group.group_id, vertex.message_id, peer))

    def follow(self, member: Membership, changes: Changes, now: Instant, *, withheld: Vertex | None = None) -> None:
        """Enter the changes of a graph: deliveries, invalid messages, and their sharing, except of ``withheld``."""
        group_id = member.group.group_id
        # Spec 4: the body of an invalid message goes, and so does every message that depends on it.
        for vertex in changes.invalidated:
            self._body_gone(member, vertex, weighs=vertex.message_id not in member.emptied)
            self.emit(Invalidated(group_id, vertex.message_id, vertex.refusal or Refusal.UNPARSABLE))
        for vertex in changes.delivered:
            self._gathering.note_message(member, vertex)
            self.emit(Delivered(group_id, vertex.message_id, vertex.timestamp, vertex.order))
            if self._shares_delivered and vertex is not withheld:
                self.share(member, vertex, now)
        for vertex in changes.shared:
            self._share_one(member, vertex, now)

    def share(self, member: Membership, vertex: Vertex, now: Instant) -> None:
        """Share a delivered message and all that it depends on."""
        for each in member.graph.share(vertex):
            self._share_one(member, each, now)

    def delete(self, member: Membership, vertex: Vertex) -> None:
        """Remove a body; the message's place in the graph and its flags stay."""
        # Spec 4: to delete a message takes its body and nothing else.
        if vertex.body_present:
            member.graph.remove_body(vertex)
            self._body_gone(member, vertex, weighs=True)
            if vertex.state is not State.DELIVERED:
                member.emptied.add(vertex.message_id)  # it may still become invalid
            self.emit(Deleted(member.group.group_id, vertex.message_id))
        for sharing in member.sharings.values():
            # The flags count as for a shared message, so the peer gets its acknowledgement.
            if vertex.message_id in sharing.peer.offered:
                sharing.peer.offered.remove((vertex.message_id,))
                self.received(sharing, vertex)  # as if it were shared (bsp 4)

    def _share_one(self, member: Membership, vertex: Vertex, now: Instant) -> None:
        self._gathering.note_message(member, vertex)
        for sharing in member.sharings.values():
            if sharing.visibility is Visibility.SHARED:
                self.add_row(sharing, vertex, now)

    def _body_gone(self, member: Membership, vertex: Vertex, *, weighs: bool) -> None:
        if weighs:
            member.weigh(vertex, -1)
        self._gathering.note_message(member, vertex)
        self._gathering.bodies.pop(vertex.message_id, None)
        for sharing in member.sharings.values():
            peer = sharing.peer
            row = peer.rows.get(vertex.message_id)
            if row is not None:
                is_last = peer.unheld_count == 1 and not row.holds
                peer.drop(row)
                if is_last:
                    self.emit(Settled(peer.key))

    def keep(self, record: Record) -> None:
        """Write a row of the device's owner in the same commit."""
        self._gathering.records.append(record)
        self._gathering.must = True

    def emit(self, event: DeviceEvent) -> None:
        """Report an event once what it is about is on disk."""
        self._gathering.events.append(event)
        self._gathering.must = True

    def emit_now(self, event: DeviceEvent) -> None:
        """Report an event that changes nothing."""
        self._events.append(event)

    # Bodies

    def _unsaved_with(self, message_id: bytes) -> Unsaved | None:
        """Return the changes with which a message reaches the disk, None when it is there."""
        return self._gathering if message_id in self._gathering.fresh else self._writing.with_message(message_id)

    def read_body(self, group_id: bytes, vertex: Vertex) -> bytes | None:
        """Return the body of a message, None when it is gone."""
        message_id = vertex.message_id
        if not vertex.body_present:
            return None
        body = self._body_at_hand(message_id)
        return body if body is not None else self.ledger.read_body(group_id, vertex)

    def read_bodies(self, wanted: Sequence[tuple[bytes, Vertex]]) -> dict[bytes, bytes]:
        """Return the bodies of messages, given by group and vertex, that are not gone; by identifier."""
        found: dict[bytes, bytes] = {}
        on_disk = []
        for group_id, vertex in wanted:
            if not vertex.body_present:
                continue
            body = self._body_at_hand(vertex.message_id)
            if body is None:
                on_disk.append((group_id, vertex))
            else:
                found[vertex.message_id] = body
        if on_disk:
            found |= self.ledger.read_bodies(on_disk)
        return found

    def _body_at_hand(self, message_id: bytes) -> bytes | None:
        """Return a body that is still in memory."""
        for bodies in (self._gathering.bodies, self._writing.bodies, self._recent):
            if (body := bodies.get(message_id)) is not None:
                return body
        return None

    # Commits

    @property
    def must_commit(self) -> bool:
        """Whether a peer or the owner waits for what is gathered."""
        return self._gathering.must

    @property
    def unsaved_bytes(self) -> int:
        """Bodies that are not on disk yet."""
        return self._gathering.body_bytes + self._writing.body_bytes

    @property
    def lazy_at(self) -> Instant | None:
        """Time at which changes that nothing waits for are written all the same, None without any."""
        return None if self._gathering.must else self._lazy_at

    def be_lazy(self, now: Instant) -> None:
        """Let gathered changes wait for another commit, at most ``LAZY_MS``."""
        if self._lazy_at is None and not self._gathering.is_empty:
            self._lazy_at = after_ms(now, LAZY_MS)

    def wake(self, now: Instant) -> None:
        """Ask for a commit of changes that have waited long enough."""
        if self._lazy_at is not None and self._lazy_at <= now:
            self._gathering.must = True
            self._lazy_at = None

    def changes(self) -> tuple[Change, ...]:
        """Return what is to be written in one group; an answer must follow before this is called again."""
        unsaved, self._gathering = self._gathering, Unsaved()
        self._lazy_at = None
        # Removals come first: a group that was left and joined again in one commit must keep its new rows.
        records: list[Change] = [*unsaved.removals]
        for member, vertex in unsaved.vertices.values():
            records += self._message_rows(unsaved, member.group.group_id, vertex)
        records += [self._flags_record(sharing, chunk) for sharing, chunk in unsaved.chunks]
        records += unsaved.records
        self._writing.begin(unsaved)
        return tuple(records)

    def not_committed(self) -> None:
        """Note that the store refused: what waits for the last ``changes`` waits for the next as well."""
        self._writing.refuse()

    def committed(self, now: Instant) -> None:
        """Release what waited for the last ``changes``, which are on disk."""
        unsaved = self._writing.end()
        self._recent = unsaved.bodies
        for sharing, vertex in unsaved.acks:
            peer = sharing.peer
            if peer.sharings.get(sharing.group_id) is sharing:
                peer.to_ack[vertex.message_id] = (sharing, vertex)
                self.mark_dirty(peer)
        for row in unsaved.rows:
            if row.stamp == 0:
                row.sharing.peer.put(row, now)
                self.mark_dirty(row.sharing.peer)
        self._events += unsaved.events

    def take_events(self) -> list[DeviceEvent]:
        """Return and forget what happened and is on disk."""
        events, self._events = self._events, []
        return events

    def _message_rows(self, unsaved: Unsaved, group_id: bytes, vertex: Vertex) -> Sequence[Record]:
        """Return the rows that a changed message needs: the whole of it only when it is new."""
        if vertex.message_id in unsaved.fresh:
            body = unsaved.bodies.get(vertex.message_id, b"")
            return (self.ledger.message(group_id, vertex, body),)
        if vertex.body_present:
            return (self.ledger.state(group_id, vertex),)
        return self.ledger.emptied(group_id, vertex)

    def _flags_record(self, sharing: Sharing, chunk: int) -> Record:
        start = chunk * CHUNK_MESSAGES
        flags = bytes(sharing.flags[start : start + CHUNK_MESSAGES])
        copies = tuple(self._kept_copies(sharing, start)) if sharing.slow else ()
        return self.ledger.flags(sharing.group_id, sharing.peer.key, KeptFlags(chunk, flags, copies))

    def _kept_copies(self, sharing: Sharing, start: int) -> Iterator[KeptCopy]:
        for seq in range(start, start + CHUNK_MESSAGES):
            row = sharing.slow.get(seq)
            if row is not None:
                next_ms = self.wall_ms(row.kept_until)
                base_s = min(_BASE_S_MAX, row.kept_base_us // MICROSECONDS_PER_SECOND)
                yield KeptCopy(seq - start, min(row.count, _COPIES_MAX), next_ms, base_s)

    # Groups and sharing

    def open_group(self, member: Membership, now: Instant) -> None:
        """Enter a group with what the store has of it."""
        group_id, ledger = member.group.group_id, self.ledger
        kept = [
            each
            for each in ledger.read_messages(group_id)
            if self._is_kept(ledger.no_message(group_id, each.message_id)[0])
        ]
        kept += ledger.stand_ins(kept)
        # BSP-WHOLE: a delivered message whose dependency is gone means a damaged store; the device does not start.
        ledger.check_whole(kept)
        self.members[group_id] = member
        for vertex in kept:
            member.graph.restore(vertex)
            member.next_seq = max(member.next_seq, vertex.seq + 1)
            if vertex.body_present:
                member.weigh(vertex, 1)
            # It was deleted while it waited; its size must not be subtracted again when it turns out invalid.
            elif vertex.state in {State.UNKNOWN, State.PENDING}:
                member.emptied.add(vertex.message_id)
            self.index[vertex.message_id] = member
        # BSP-DAMAGED: the number of a lost message is not used again: its flags say that peers hold it.
        member.next_seq = max(member.next_seq, ledger.seq_after_lost(group_id))
        # A crash between two commits may have left messages ready: they are delivered now.
        self.follow(member, member.graph.settle(), now)

    def close_group(self, member: Membership) -> None:
        """Forget a group, in memory and on disk."""
        group_id = member.group.group_id
        del self.members[group_id]
        for message_id in member.graph.vertices:
            del self.index[message_id]
            for removal in self.ledger.no_message(group_id, message_id):
                self._forget(removal)
        for sharing in list(member.sharings.values()):
            self.close_sharing(member, sharing)
        for key in self.ledger.flag_rows(group_id):
            self._forget(self.ledger.no_flag_row(key))
        self._gathering.forget(member)

    def _forget(self, removal: Record) -> None:
        self._gathering.removals[removal] = None
        self._gathering.must = True

    def _is_kept(self, removal: Record) -> bool:
        """Return whether a row that the store still has is to stay: we may have left a moment ago."""
        return removal not in self._gathering.removals and removal not in self._writing.removals

    def open_sharing(self, member: Membership, peer: PeerState, visibility: Visibility, now: Instant) -> None:
        """Enter that a group is shared with a peer, with what the store has of its flags."""
        group_id, ledger = member.group.group_id, self.ledger
        sharing = Sharing(group_id, peer, visibility, member.sharings)
        copies: dict[int, KeptCopy] = {}
        for kept in ledger.read_flags(group_id, peer.key):
            # We may have stopped to share a moment ago: rows that are about to be removed count as gone.
            if not self._is_kept(ledger.no_flags(group_id, peer.key, kept.chunk)):
                continue
            start = kept.chunk * CHUNK_MESSAGES
            if len(sharing.flags) < start + len(kept.flags):
                sharing.flags.extend(bytes(start + len(kept.flags) - len(sharing.flags)))
            sharing.flags[start : start + len(kept.flags)] = kept.flags
            copies.update((start + copy.place, copy) for copy in kept.copies)
        member.sharings[peer.key] = peer.sharings[group_id] = sharing
        for vertex in member.graph.vertices.values():
            if sharing.has(vertex.seq, ACK):
                self.owe_ack(sharing, vertex)
        self._offer_all(member, sharing, copies, now)

    def change_visibility(self, member: Membership, sharing: Sharing, visibility: Visibility, now: Instant) -> None:
        """Start or stop sending; the peer's flags stay."""
        sharing.visibility = visibility
        if visibility is Visibility.SHARED:
            self._offer_all(member, sharing, {}, now)
        else:
            self._drop_rows(sharing)
            self.be_lazy(now)

    def close_sharing(self, member: Membership, sharing: Sharing) -> None:
        """Forget the state of a group towards a peer (bsp 2, last line of the table)."""
        peer, group_id = sharing.peer, sharing.group_id
        del member.sharings[peer.key]
        del peer.sharings[group_id]
        # Spec 2: group no longer shared with the peer: all of it forgotten.
        self._drop_rows(sharing)
        for message_id in [each for each, (owner, _) in peer.to_ack.items() if owner is sharing]:
            del peer.to_ack[message_id]
        for chunk in range(-(-member.next_seq // CHUNK_MESSAGES)):
            self._forget(self.ledger.no_flags(group_id, peer.key, chunk))
        self._gathering.forget_sharing(sharing)

    def _offer_all(self, member: Membership, sharing: Sharing, copies: dict[int, KeptCopy], now: Instant) -> None:
        if sharing.visibility is not Visibility.SHARED:
            return
        for vertex in [each for each in member.graph.vertices.values() if each.shared]:
            self.add_row(sharing, vertex, now)
            copy = copies.get(vertex.seq)
            row = sharing.peer.rows.get(vertex.message_id)
            if copy is not None and row is not None:
                # BSP-COPIES: the copy in a file or mailbox still counts, so the interval goes on over the restart.
                row.count, row.next_at = copy.copies, self.from_wall(copy.next_ms)
                row.base_us = copy.base_s * MICROSECONDS_PER_SECOND
                row.kept_until, row.kept_base_us = row.next_at, row.base_us
                sharing.slow[vertex.seq] = row
                sharing.peer.put(row, now)

    def _drop_rows(self, sharing: Sharing) -> None:
        peer = sharing.peer
        for row in [row for row in peer.rows.values() if row.sharing is sharing]:
            if row.vertex.seq in sharing.slow:
                self._gathering.note_flag(sharing, row.vertex.seq)
            peer.drop(row)
