"""One BSP device: its groups, messages and peers, and what it must send to each peer. Spec: seed 4, 5; bsp 2 to 4.

The stream machine, the mailbox and the SDK's carriers drive it. A device has no connection and no clock of its own. Its
owner passes received records to ``receive``. It sends the records of ``send_due``, or of ``draft`` and ``sent`` where
sending may fail. ``changes`` begins a commit and ``committed`` ends it, one at a time. Acknowledgements and events of a
message are released after the commit that stores it.

After a restart the owner declares groups, peers and sharing again; messages, graph and flags are read from the store.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.records import Change, Store
from waystation.protocols.bsp.device.delivery_status import DeliveryStatus, delivery_status_of
from waystation.protocols.bsp.device.events import DeviceEvent
from waystation.protocols.bsp.device.flags import HOLD, Link, PeerState
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import LinkTerms, Mode, Visibility
from waystation.protocols.bsp.device.member import Membership, Usage
from waystation.protocols.bsp.device.receiving import MESSAGES_MAX, Admission, Receiver, admit_all
from waystation.protocols.bsp.device.rejected import RejectedMessages
from waystation.protocols.bsp.device.repository import Repository
from waystation.protocols.bsp.device.sending import Draft, choose
from waystation.protocols.bsp.graph.formats import FORMATS, ClientFormat, InvalidMessageError
from waystation.protocols.bsp.graph.order import DEPENDENCIES_MAX, MessageGraph, State, Vertex
from waystation.protocols.bsp.graph.validation import validate
from waystation.protocols.bsp.messages import BODY_BYTES_MAX, TIMESTAMP_MAX
from waystation.protocols.bsp.messages import Record as WireRecord
from waystation.protocols.bsp.profile import Profile
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["WRITE_BYTES", "BspDevice", "DeliveryStatus", "Draft"]

WRITE_BYTES: Final = 524_288
"""Most bytes of records sent at one opportunity, so that no peer holds up the others."""


class BspDevice:
    """A device without its connections.

    Cost: O(1) per identifier of a record, and O(dependencies) per message.
    """

    def __init__(
        self,
        profile: Profile,
        store: Store,
        *,
        mode: Mode = Mode.AUTO,
        formats: Mapping[str, ClientFormat] = FORMATS,
        shares_delivered: bool = True,
        admits: Admission = admit_all,
        messages_max: int = MESSAGES_MAX,
    ) -> None:
        """Begin with no group and no peer.

        Args:
            profile: Hashes and bounds.
            store: Has everything that was committed before a restart.
            mode: How messages are sent where the link to a peer leaves a choice.
            formats: The formats of messages, by name.
            shares_delivered: Share every message as it is delivered; else ``share_message`` chooses.
            admits: Called before a new message of a peer is stored.
            messages_max: Most messages in all groups, tombstones included.
        """
        self.profile = profile
        self._mode = mode
        self._formats = formats
        self._repository = Repository(profile, store, shares_delivered=shares_delivered)
        self.receiver = Receiver(self._repository, admits, messages_max, RejectedMessages(store))
        self.keep = self._repository.keep  # writes a row of the owner with the next changes
        self._links: dict[int, tuple[PeerState, Link]] = {}
        self._next_link = 1
        self._next_peer = 1
        self._by_number: dict[int, PeerState] = {}

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Set the wall clock, in Unix microseconds."""
        self._repository.set_wall(now, wall_us)

    # Membership

    def join(self, group: Group, now: Instant) -> None:
        """Become a member of a group, and read its messages from the store; a second call changes nothing.

        Raises:
            LocalError: The device has no such format.
            HostError: The stored rows are damaged.
        """
        if group.group_id in self._repository.members:
            return
        form = self._formats.get(group.format)
        if form is None:
            raise LocalError(f"no format {group.format!r} here; known: {', '.join(sorted(self._formats))}")
        graph = MessageGraph(group.group_id, partial(validate, self._repository, group.group_id))
        self._repository.open_group(Membership(group, graph, form, self.profile.hasher(group.group_id)), now)

    def leave(self, group_id: bytes) -> None:
        """Forget a group and all its messages."""
        member = self._repository.members.get(group_id)
        if member is not None:
            self._repository.close_group(member)

    def is_member(self, group_id: bytes) -> bool:
        """Return whether this device is a member of a group."""
        return group_id in self._repository.members

    def groups(self) -> list[Group]:
        """Return the groups that this device is a member of."""
        return [member.group for member in self._repository.members.values()]

    def meet(self, peer: PublicKey) -> None:
        """Add a peer to the table of peers; a second call changes nothing."""
        if peer not in self._repository.peers:
            state = PeerState(peer, self._next_peer, drops_oldest=self.profile.drops_oldest_offer)
            self._repository.peers[peer] = self._by_number[self._next_peer] = state
            self._next_peer += 1

    def part(self, peer: PublicKey) -> None:
        """Forget a peer, what is shared with it, and what it holds."""
        state = self._repository.peers.pop(peer, None)
        if state is None:
            return
        for sharing in list(state.sharings.values()):
            # Spec 2: group no longer shared with the peer: all of it forgotten.
            self._repository.close_sharing(self._repository.members[sharing.group_id], sharing)
        for link in state.links:
            del self._links[link.number]
        state.links.clear()
        self._repository.dirty.pop(state, None)
        self._repository.alarms.cancel(state.number)
        del self._by_number[state.number]

    def knows(self, peer: PublicKey) -> bool:
        """Return whether a peer is in the table of peers."""
        return peer in self._repository.peers

    def peers(self) -> list[PublicKey]:
        """Return the table of peers."""
        return list(self._repository.peers)

    def share(self, group_id: bytes, peer: PublicKey, now: Instant, visibility: Visibility = Visibility.SHARED) -> None:
        """Share a group with a peer, stop sending, or stop sharing, whatever it was before.

        Raises:
            LocalError: We are no member of the group, or the peer is not in the table.
        """
        member, state = self._member(group_id), self._repository.peers.get(peer)
        if state is None:
            raise LocalError(f"{peer.hex()} is not in the table of peers")
        sharing = member.sharings.get(peer)
        if sharing is None:
            if visibility is not Visibility.INVISIBLE:
                self._repository.open_sharing(member, state, visibility, now)
        elif visibility is Visibility.INVISIBLE:
            self._repository.close_sharing(member, sharing)
        elif visibility is not sharing.visibility:
            self._repository.change_visibility(member, sharing, visibility, now)

    def audience(self, group_id: bytes) -> dict[PublicKey, Visibility]:
        """Return the peers that share a group, and how far."""
        return {peer: sharing.visibility for peer, sharing in self._member(group_id).sharings.items()}

    # Messages

    def add(self, group_id: bytes, timestamp: int, body: bytes, now: Instant, *, share: bool = True) -> bytes:
        """Create a message of our own: it is delivered at once without validation (bsp 4); return its identifier.

        The same message a second time changes nothing.

        Raises:
            LocalError: We are no member of the group, the body or time is out of bounds, the format cannot read the
                body, or a dependency is not delivered.
        """
        member = self._member(group_id)
        # Spec 1, 7: 0 to 32,768 bytes; Briar asks for one at least.
        if not self.profile.body_bytes_min <= len(body) <= BODY_BYTES_MAX:
            bounds = f"{self.profile.body_bytes_min} to {BODY_BYTES_MAX}"
            raise LocalError(f"a body has {bounds} bytes, this has {len(body)}")
        if not 0 <= timestamp <= TIMESTAMP_MAX:
            raise LocalError(f"a timestamp is 0 to 2**63 - 1 milliseconds, this is {timestamp}")
        message_id = member.hasher(timestamp, body)
        if message_id in member.graph.vertices:
            return message_id
        vertex = Vertex(message_id, timestamp, len(body), self._dependencies(member, body))
        if missing := member.graph.missing(vertex):
            raise LocalError(f"depends on {missing[0].hex()}, which is not delivered")
        self._repository.enter(member, vertex, body, now, None)
        self._repository.follow(member, member.graph.place_delivered(vertex), now, withheld=None if share else vertex)
        if share:
            self._repository.share(member, vertex, now)
        return message_id

    def share_message(self, group_id: bytes, message_id: bytes, now: Instant) -> None:
        """Share a message and all that it depends on; a second call changes nothing.

        Raises:
            LocalError: It is unknown, or not delivered.
        """
        member, vertex = self._found(group_id, message_id)
        # Spec 4: to share a message it must be delivered, and all that it depends on is shared with it.
        if vertex.state is not State.DELIVERED:
            raise LocalError(f"{message_id.hex()} is not delivered, so it cannot be shared")
        self._repository.share(member, vertex, now)

    def delete(self, group_id: bytes, message_id: bytes) -> None:
        """Remove the body of a message; its place in the graph stays. A second call changes nothing.

        Raises:
            LocalError: It is unknown, or its application has still to validate it.
        """
        member, vertex = self._found(group_id, message_id)
        # BSP-JUDGED: without its body the message would become invalid on this device alone.
        if member.form.judges and vertex.state is State.PENDING:
            raise LocalError(f"{message_id.hex()} is not delivered yet: its application validates it with its body")
        self._repository.delete(member, vertex)

    def graph(self, group_id: bytes) -> MessageGraph:
        """Return the graph of a group, to be read only; raises LocalError when we are no member."""
        return self._member(group_id).graph

    def vertex(self, group_id: bytes, message_id: bytes) -> Vertex | None:
        """Return the vertex of a message, None when it is unknown; raises LocalError as ``graph``."""
        return self._member(group_id).graph.vertices.get(message_id)

    def messages(self, group_id: bytes) -> list[Vertex]:
        """Return all messages of a group: delivered ones in their order, then the others by age."""
        return self._member(group_id).ordered()

    def body(self, group_id: bytes, message_id: bytes) -> bytes | None:
        """Return the body of a message, None when it is unknown or its body gone."""
        vertex = self.vertex(group_id, message_id)
        return self._repository.read_body(group_id, vertex) if vertex is not None else None

    def usage(self, group_id: bytes) -> Usage:
        """Return the messages and bytes of a group; raises LocalError as ``graph``."""
        return self._member(group_id).usage()

    def holds(self, peer: PublicKey, group_id: bytes, message_id: bytes) -> bool:
        """Return whether a peer is known to hold a message."""
        _, vertex = self._found(group_id, message_id)
        sharing = self._member(group_id).sharings.get(peer)
        return sharing is not None and sharing.has(vertex.seq, HOLD)

    def delivery_status(self, peer: PublicKey, group_id: bytes, message_id: bytes, now: Instant) -> DeliveryStatus:
        """Return the delivery status of a message, which may be unknown, towards a peer that shares its group.

        Raises:
            LocalError: We are no member of the group, or do not share it with the peer.
        """
        member = self._member(group_id)
        sharing = member.sharings.get(peer)
        if sharing is None:
            raise LocalError(f"the group {group_id.hex()} is not shared with {peer.hex()}")
        return delivery_status_of(sharing, message_id, member.graph.vertices.get(message_id), now)

    def refused(self, message_id: bytes) -> tuple[PublicKey, Refusal] | None:
        """Return the peer that sent a message lately and why it was rejected, None when that is not remembered."""
        return self.receiver.rejected.find(message_id)

    def owes(self, peer: PublicKey) -> int:
        """Return how many messages that we share with a peer it is not known to hold."""
        return self._repository.peers[peer].unheld_count

    # Links to a peer

    def link_up(self, peer: PublicKey, terms: LinkTerms, now: Instant) -> int:
        """Add a link to a peer; we send on it unless a better one is up (``LinkTerms.rank``). Return its number.

        Raises:
            LocalError: The peer is not in the table.
        """
        state = self._repository.peers.get(peer)
        if state is None:
            raise LocalError(f"{peer.hex()} is not in the table of peers")
        link = Link(self._next_link, terms)
        self._next_link += 1
        state.links.append(link)
        self._links[link.number] = (state, link)
        if state.link is link:
            # Spec 3: on a new connection everything is due at once whose last copy left on one that is gone.
            state.revive(link, now)
            self._repository.mark_dirty(state)
        self._repository.alarm(state)
        return link.number

    def link_down(self, number: int, now: Instant) -> None:
        """Remove a link; when an older one is up, we send on that one again. A second call changes nothing."""
        found = self._links.pop(number, None)
        if found is None:
            return
        state, link = found
        state.links.remove(link)
        if state.link is not None:
            state.revive(state.link, now)
            self._repository.mark_dirty(state)

    def link_of(self, peer: PublicKey) -> int | None:
        """Return the link on which we send to a peer, None when none is up."""
        state = self._repository.peers.get(peer)
        return state.link.number if state is not None and state.link is not None else None

    def link_terms(self, number: int) -> LinkTerms | None:
        """Return the terms of a link, None when it is gone."""
        found = self._links.get(number)
        return found[1].terms if found is not None else None

    # Records

    def receive(self, peer: PublicKey, record: WireRecord, now: Instant, link: int | None = None) -> None:
        """Apply one record of a peer; records of an unknown sender are ignored.

        Args:
            peer: The proved sender.
            record: The decoded record.
            now: When it arrived.
            link: The link that it came on, if answers on it can be timed.
        """
        state = self._repository.peers.get(peer)
        if state is not None:
            found = self._links.get(link) if link is not None else None
            self.receiver.receive(state, record, now, found[1] if found is not None else None)

    def send_due(self, peer: PublicKey, now: Instant, bytes_max: int = WRITE_BYTES) -> list[bytes]:
        """Return the records that are due for a peer on its current link, encoded, and mark them as sent.

        Empty when nothing is due or no link is up. When the result fills ``bytes_max``, more may be due.
        """
        state = self._repository.peers.get(peer)
        if state is None or state.link is None:
            return []
        draft = choose(self.profile, self._mode, state, state.link, now, bytes_max, self._repository.read_bodies)
        self.sent(draft, now)
        return draft.records

    def draft(
        self, peer: PublicKey, terms: LinkTerms, now: Instant, bytes_max: int = WRITE_BYTES, *, again: bool = False
    ) -> Draft:
        """Return the records that are due for a peer over a link on these terms; ``sent`` or ``abandon`` must follow.

        Args:
            peer: In the table of peers.
            terms: Of a link that is up, or of one that needs not be, such as a file.
            now: Monotonic time.
            bytes_max: Most bytes of records; at least one largest record.
            again: Repeat also what was sent before and not acknowledged, however short ago: that copy was lost.

        Raises:
            LocalError: The peer is not in the table.
        """
        state = self._repository.peers.get(peer)
        if state is None:
            raise LocalError(f"{peer.hex()} is not in the table of peers")
        link = next((each for each in reversed(state.links) if each.terms is terms), None)
        if link is None:
            link = Link(0, terms)
            state.revive(link, now)
        if again:
            state.repeat(now)
        return choose(self.profile, self._mode, state, link, now, bytes_max, self._repository.read_bodies)

    def sent(self, draft: Draft, now: Instant) -> None:
        """Mark the records of a draft as sent; each copy is due again later (seed 4.3)."""
        peer, link = draft.peer, draft.link
        # BSP-FASTER: a copy over a slower link than one that is up does not count as sent.
        is_slower = peer.link is not None and peer.link.base_us < link.base_us
        if not is_slower:
            for sharing, vertex in draft.acks:
                self._repository.acked(sharing, vertex, outlives=link.terms.outlives)
            peer.offered.remove(draft.requests)
        peer.last_sent_at = now
        for rows, body in ((draft.bodies, True), (draft.offers, False)):
            for row in rows:
                if row.stamp >= 0:
                    if is_slower:
                        self._repository.mark_dirty(peer)  # a faster link goes on as if this copy were none
                    else:
                        row.went_out(link, now, body=body)
                        self._repository.went_out(row)
                    peer.put(row, now)
        # BSP-COPIES: cleared flags and counts wait up to 2 s for another commit.
        self._repository.be_lazy(now)
        self._repository.alarm(peer)

    def abandon(self, draft: Draft, now: Instant) -> None:
        """Undo a draft that did not leave."""
        for row in (*draft.bodies, *draft.offers):
            if row.stamp >= 0:
                draft.peer.put(row, now)
        if draft.peer.links:
            self._repository.mark_dirty(draft.peer)
        self._repository.alarm(draft.peer)

    def drained(self, peer: PublicKey, now: Instant) -> None:
        """Start the intervals of the last write to a peer, which has left only now (BSP-LEFT)."""
        state = self._repository.peers.get(peer)
        if state is not None:
            state.drained(now)
            self._repository.alarm(state)

    def is_due(self, peer: PublicKey, now: Instant) -> bool:
        """Return whether a record is due for a peer now."""
        state = self._repository.peers.get(peer)
        return state is not None and bool(state.to_ack or len(state.offered) or state.has_due(now))

    def take_dirty(self) -> list[PublicKey]:
        """Return the peers for whom something may have become due since the last call."""
        dirty = [state.key for state in self._repository.dirty]
        self._repository.dirty.clear()
        return dirty

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        times = (self._repository.alarms.next_at(), self._repository.lazy_at)
        return min((at for at in times if at is not None), default=None)

    def wake(self, now: Instant) -> None:
        """Queue what has become due; early calls do nothing."""
        self._repository.wake(now)
        for state in map(self._by_number.__getitem__, self._repository.alarms.due(now)):
            if not state.has_due(now):
                self._repository.alarm(state)  # it was set for a copy that was answered meanwhile
            elif state.links:
                self._repository.mark_dirty(state)

    # Durability

    @property
    def must_commit(self) -> bool:
        """Whether a peer or the owner waits for changes to become durable."""
        return self._repository.must_commit

    @property
    def unsaved_bytes(self) -> int:
        """Bodies that are not on disk yet; a bound for the code that reads from connections."""
        return self._repository.unsaved_bytes

    def changes(self) -> tuple[Change, ...]:
        """Return what is to be made durable in one group, behind what was refused; an answer must follow."""
        return self._repository.changes()

    def committed(self, now: Instant) -> None:
        """Release what waited for the last ``changes``, which are on disk."""
        self._repository.committed(now)

    def not_committed(self) -> None:
        """Note that the store refused the last ``changes``: what waits for them waits for the next (BSP-REFUSED)."""
        self._repository.not_committed()

    def take_events(self) -> list[DeviceEvent]:
        """Return and forget what has happened; what an event is about is on disk."""
        return self._repository.take_events()

    @property
    def messages_count(self) -> int:
        """Messages in all groups, tombstones included."""
        return len(self._repository.index)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        peers = self._repository.peers.values()
        return {
            "groups": len(self._repository.members),
            "messages": len(self._repository.index),
            "pending": sum(member.graph.pending_count for member in self._repository.members.values()),
            "peers": len(self._repository.peers),
            "links": len(self._links),
            "offered": sum(len(state.offered) for state in peers),
            "unheld": sum(state.unheld_count for state in peers),
            "unsaved_bytes": self._repository.unsaved_bytes,
        }

    # Helpers

    def _member(self, group_id: bytes) -> Membership:
        member = self._repository.members.get(group_id)
        if member is None:
            raise LocalError(f"this device is no member of the group {group_id.hex()}")
        return member

    def _found(self, group_id: bytes, message_id: bytes) -> tuple[Membership, Vertex]:
        member = self._member(group_id)
        vertex = member.graph.vertices.get(message_id)
        if vertex is None:
            raise LocalError(f"there is no message {message_id.hex()} in this group")
        return member, vertex

    def _dependencies(self, member: Membership, body: bytes) -> tuple[bytes, ...]:
        try:
            dependencies = member.dependencies(body)
        except InvalidMessageError as error:
            raise LocalError(f"the body is not of format {member.group.format}: {error}") from error
        if len(dependencies) > DEPENDENCIES_MAX:
            raise LocalError(f"a message has at most {DEPENDENCIES_MAX} dependencies, this has {len(dependencies)}")
        return dependencies
