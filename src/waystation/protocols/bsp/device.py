"""One device: its groups, messages and peers, and what it knows of each peer. Spec: seed 4 and 5, bsp 2 to 4.

A device has no connection and no clock. Its owner hands it records as they come (``hear``), asks what is due for a peer
(``speak``, or ``draft`` and ``sent`` where handing over may fail), and makes its changes durable: ``changes`` begins a
commit, ``committed`` ends it, one at a time. What acknowledges or tells about a message comes out only behind the
commit that stores it.

Group membership, peers and sharing are the owner's to say again after a restart; messages, graph and flags are found in
the store.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.records import Change, Record, Store
from waystation.protocols.bsp.books import Books
from waystation.protocols.bsp.events import DeviceEvent
from waystation.protocols.bsp.flags import HOLD, Link, PeerState
from waystation.protocols.bsp.formats import FORMATS, ClientFormat, InvalidMessageError
from waystation.protocols.bsp.graph import DEPENDENCIES_MAX, MessageGraph, State, Vertex
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.hearing import MESSAGES_MAX, Admission, Hearing, admit_all
from waystation.protocols.bsp.judging import judge
from waystation.protocols.bsp.links import LinkTerms, Mode, Visibility
from waystation.protocols.bsp.member import Membership, Usage
from waystation.protocols.bsp.messages import BODY_BYTES_MAX, TIMESTAMP_MAX
from waystation.protocols.bsp.messages import Record as WireRecord
from waystation.protocols.bsp.profile import Profile
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.speaking import Draft, choose
from waystation.protocols.bsp.standing import Standing, standing_of
from waystation.protocols.bsp.turned_away import TurnedAway

__all__ = ["WRITE_BYTES", "BspDevice", "Draft", "Standing"]

WRITE_BYTES: Final = 524_288
"""Most bytes of records said at one opportunity, so that no peer holds up the others."""


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
            store: Has what earlier lives committed.
            mode: How messages are handed over where the way to a peer leaves a choice.
            formats: What reads the messages of groups, by name.
            shares_delivered: Share every message as it is delivered; else ``share_message`` says which.
            admits: Asked before a new message of a peer is stored.
            messages_max: Most messages in all groups, tombstones included.
        """
        self.profile = profile
        self._mode = mode
        self._formats = formats
        self._books = Books(profile, store, shares_delivered=shares_delivered)
        self._hearing = Hearing(self._books, admits, messages_max, TurnedAway(store))
        self._links: dict[int, tuple[PeerState, Link]] = {}
        self._next_link = 1
        self._next_peer = 1
        self._by_number: dict[int, PeerState] = {}

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Say what the wall clock shows, in Unix microseconds."""
        self._books.set_wall(now, wall_us)

    # Membership

    def join(self, group: Group, now: Instant) -> None:
        """Become a member of a group, and read what earlier lives have stored of it; once more is no matter.

        Raises:
            LocalError: Nothing reads messages of its format.
            HostError: What the store has is damaged.
        """
        if group.group_id in self._books.members:
            return
        form = self._formats.get(group.format)
        if form is None:
            raise LocalError(f"no format {group.format!r} here; known: {', '.join(sorted(self._formats))}")
        graph = MessageGraph(group.group_id, partial(judge, self._books, group.group_id))
        self._books.open_group(Membership(group, graph, form, self.profile.hasher(group.group_id)), now)

    def leave(self, group_id: bytes) -> None:
        """Forget a group and all its messages."""
        member = self._books.members.get(group_id)
        if member is not None:
            self._books.close_group(member)

    def is_member(self, group_id: bytes) -> bool:
        """Return whether this device is a member of a group."""
        return group_id in self._books.members

    def groups(self) -> list[Group]:
        """Return the groups that this device is a member of."""
        return [member.group for member in self._books.members.values()]

    def meet(self, peer: PublicKey) -> None:
        """Take somebody into the table of peers; once more is no matter."""
        if peer not in self._books.peers:
            state = PeerState(peer, self._next_peer, drops_oldest=self.profile.drops_oldest_offer)
            self._books.peers[peer] = self._by_number[self._next_peer] = state
            self._next_peer += 1

    def part(self, peer: PublicKey) -> None:
        """Forget a peer, what is shared with it, and what it holds."""
        state = self._books.peers.pop(peer, None)
        if state is None:
            return
        for sharing in list(state.sharings.values()):
            self._books.close_sharing(self._books.members[sharing.group_id], sharing)
        for link in state.links:
            del self._links[link.number]
        state.links.clear()
        self._books.stirred.pop(state, None)
        self._books.alarms.cancel(state.number)
        del self._by_number[state.number]

    def knows(self, peer: PublicKey) -> bool:
        """Return whether somebody is in the table of peers."""
        return peer in self._books.peers

    def peers(self) -> list[PublicKey]:
        """Return the table of peers."""
        return list(self._books.peers)

    def share(self, group_id: bytes, peer: PublicKey, now: Instant, visibility: Visibility = Visibility.SHARED) -> None:
        """Share a group with a peer, stop sending, or stop sharing; what it was before is no matter.

        Raises:
            LocalError: We are no member of the group, or the peer is not in the table.
        """
        member, state = self._member(group_id), self._books.peers.get(peer)
        if state is None:
            raise LocalError(f"{peer.hex()} is not in the table of peers")
        sharing = member.sharings.get(peer)
        if sharing is None:
            if visibility is not Visibility.INVISIBLE:
                self._books.open_sharing(member, state, visibility, now)
        elif visibility is Visibility.INVISIBLE:
            self._books.close_sharing(member, sharing)
        elif visibility is not sharing.visibility:
            self._books.change_visibility(member, sharing, visibility, now)

    def audience(self, group_id: bytes) -> dict[PublicKey, Visibility]:
        """Return with whom a group is shared, and how far."""
        return {peer: sharing.visibility for peer, sharing in self._member(group_id).sharings.items()}

    # Messages

    def add(self, group_id: bytes, timestamp: int, body: bytes, now: Instant, *, share: bool = True) -> bytes:
        """Create a message of our own: it is delivered at once and not judged (bsp 4); return its identifier.

        The same message once more is no matter.

        Raises:
            LocalError: We are no member of the group, the body or time is out of bounds, the format cannot read the
                body, or a dependency is not delivered.
        """
        member = self._member(group_id)
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
        self._books.enter(member, vertex, body, now, None)
        self._books.follow(member, member.graph.place_delivered(vertex), now, withheld=None if share else vertex)
        if share:
            self._books.share(member, vertex, now)
        return message_id

    def share_message(self, group_id: bytes, message_id: bytes, now: Instant) -> None:
        """Share a message and all that it depends on; once more is no matter.

        Raises:
            LocalError: It is unknown, or not delivered.
        """
        member, vertex = self._found(group_id, message_id)
        if vertex.state is not State.DELIVERED:
            raise LocalError(f"{message_id.hex()} is not delivered, so it cannot be shared")
        self._books.share(member, vertex, now)

    def delete(self, group_id: bytes, message_id: bytes) -> None:
        """Remove the body of a message; its place in the graph stays. Once more is no matter.

        Raises:
            LocalError: It is unknown, or still to be judged by its application.
        """
        member, vertex = self._found(group_id, message_id)
        if member.form.judges and vertex.state is State.PENDING:
            raise LocalError(f"{message_id.hex()} is not delivered yet: without its body nobody could judge it")
        self._books.delete(member, vertex)

    def graph(self, group_id: bytes) -> MessageGraph:
        """Return the graph of a group, to be read only; raises LocalError when we are no member."""
        return self._member(group_id).graph

    def vertex(self, group_id: bytes, message_id: bytes) -> Vertex | None:
        """Return what is known of a message, None when we do not know it; raises LocalError as ``graph``."""
        return self._member(group_id).graph.vertices.get(message_id)

    def messages(self, group_id: bytes) -> list[Vertex]:
        """Return all messages of a group: delivered ones in their order, then the others by age."""
        return self._member(group_id).ordered()

    def body(self, group_id: bytes, message_id: bytes) -> bytes | None:
        """Return the body of a message, None when it is unknown or its body gone."""
        vertex = self.vertex(group_id, message_id)
        return self._books.read_body(group_id, vertex) if vertex is not None else None

    def usage(self, group_id: bytes) -> Usage:
        """Return what a group weighs; raises LocalError as ``graph``."""
        return self._member(group_id).usage()

    def holds(self, peer: PublicKey, group_id: bytes, message_id: bytes) -> bool:
        """Return whether a peer is known to hold a message."""
        _, vertex = self._found(group_id, message_id)
        sharing = self._member(group_id).sharings.get(peer)
        return sharing is not None and sharing.has(vertex.seq, HOLD)

    def standing(self, peer: PublicKey, group_id: bytes, message_id: bytes, now: Instant) -> Standing:
        """Return what is known of a message, which may be unknown, and a peer that shares its group.

        Raises:
            LocalError: We are no member of the group, or do not share it with the peer.
        """
        member = self._member(group_id)
        sharing = member.sharings.get(peer)
        if sharing is None:
            raise LocalError(f"the group {group_id.hex()} is not shared with {peer.hex()}")
        return standing_of(sharing, message_id, member.graph.vertices.get(message_id), now)

    def refused(self, message_id: bytes) -> tuple[PublicKey, Refusal] | None:
        """Return from whom a message came lately and why it was not taken, None when that is not remembered."""
        return self._hearing.turned_away.find(message_id)

    def owes(self, peer: PublicKey) -> int:
        """Return how many messages that we share with a peer it is not known to hold."""
        return self._books.peers[peer].unheld_count

    # Ways to a peer

    def link_up(self, peer: PublicKey, terms: LinkTerms, now: Instant) -> int:
        """A way to a peer stands, spoken over unless a better one does (``LinkTerms.rank``); return its number.

        Raises:
            LocalError: The peer is not in the table.
        """
        state = self._books.peers.get(peer)
        if state is None:
            raise LocalError(f"{peer.hex()} is not in the table of peers")
        link = Link(self._next_link, terms)
        self._next_link += 1
        state.links.append(link)
        self._links[link.number] = (state, link)
        if state.link is link:
            state.revive(link, now)
            self._books.stir(state)
        self._books.alarm(state)
        return link.number

    def link_down(self, number: int, now: Instant) -> None:
        """A way is gone; when an older one is left, that one is spoken over again. Once more is no matter."""
        found = self._links.pop(number, None)
        if found is None:
            return
        state, link = found
        state.links.remove(link)
        if state.link is not None:
            state.revive(state.link, now)
            self._books.stir(state)

    def link_of(self, peer: PublicKey) -> int | None:
        """Return the way over which a peer is spoken to, None when there is none."""
        state = self._books.peers.get(peer)
        return state.link.number if state is not None and state.link is not None else None

    def link_terms(self, number: int) -> LinkTerms | None:
        """Return what kind of way a number stands for, None when it is gone."""
        found = self._links.get(number)
        return found[1].terms if found is not None else None

    # Records

    def hear(self, peer: PublicKey, record: WireRecord, now: Instant, link: int | None = None) -> None:
        """Take one record of a peer; of somebody who is not in the table it is nothing.

        Args:
            peer: Who has proved to be its sender.
            record: What it says.
            now: When it came.
            link: The way it came, if answers on it can be timed.
        """
        state = self._books.peers.get(peer)
        if state is not None:
            found = self._links.get(link) if link is not None else None
            self._hearing.take(state, record, now, found[1] if found is not None else None)

    def speak(self, peer: PublicKey, now: Instant, bytes_max: int = WRITE_BYTES) -> list[bytes]:
        """Return what is due for a peer over the way that is spoken over, encoded, and mark it as sent.

        Nothing when nothing is due or no way is up. When the result fills ``bytes_max``, more may be due.
        """
        state = self._books.peers.get(peer)
        if state is None or state.link is None:
            return []
        draft = choose(self.profile, self._mode, state, state.link, now, bytes_max, self._books.read_bodies)
        self.sent(draft, now)
        return draft.records

    def draft(
        self, peer: PublicKey, terms: LinkTerms, now: Instant, bytes_max: int = WRITE_BYTES, *, again: bool = False
    ) -> Draft:
        """Return what would be said to a peer over a way on these terms; ``sent`` or ``abandon`` must follow.

        Args:
            peer: In the table of peers.
            terms: Of a way that is up, or of one that needs not be, such as a file.
            now: When.
            bytes_max: Most bytes of records; at least one largest record.
            again: Say also what was said before and not acknowledged, however short ago: that copy was lost.

        Raises:
            LocalError: The peer is not in the table.
        """
        state = self._books.peers.get(peer)
        if state is None:
            raise LocalError(f"{peer.hex()} is not in the table of peers")
        link = next((each for each in reversed(state.links) if each.terms is terms), None)
        if link is None:
            link = Link(0, terms)
            state.revive(link, now)
        if again:
            state.repeat(now)
        return choose(self.profile, self._mode, state, link, now, bytes_max, self._books.read_bodies)

    def sent(self, draft: Draft, now: Instant) -> None:
        """What a draft says has left; what it repeats is due again later (seed 4.3)."""
        peer, link = draft.peer, draft.link
        is_slower = peer.link is not None and peer.link.base_us < link.base_us
        if not is_slower:
            for sharing, vertex in draft.acks:
                self._books.acked(sharing, vertex, outlives=link.terms.outlives)
            peer.offered.remove(draft.requests)
        peer.said_at = now
        for rows, body in ((draft.bodies, True), (draft.offers, False)):
            for row in rows:
                if row.stamp >= 0:
                    if is_slower:
                        self._books.stir(peer)  # a faster way goes on as if this copy were none
                    else:
                        row.went_out(link, now, body=body)
                        self._books.went_out(row)
                    peer.put(row, now)
        self._books.be_lazy(now)
        self._books.alarm(peer)

    def abandon(self, draft: Draft, now: Instant) -> None:
        """A draft did not leave: everything is as if it had not been made."""
        for row in (*draft.bodies, *draft.offers):
            if row.stamp >= 0:
                draft.peer.put(row, now)
        if draft.peer.links:
            self._books.stir(draft.peer)
        self._books.alarm(draft.peer)

    def left(self, peer: PublicKey, now: Instant) -> None:
        """What was said to a peer last has left only now: the intervals of what it said begin here (BSP-LEFT)."""
        state = self._books.peers.get(peer)
        if state is not None:
            state.left(now)
            self._books.alarm(state)

    def is_due(self, peer: PublicKey, now: Instant) -> bool:
        """Return whether something would be said to a peer now."""
        state = self._books.peers.get(peer)
        return state is not None and bool(state.to_ack or len(state.offered) or state.has_due(now))

    def take_stirred(self) -> list[PublicKey]:
        """Return the peers for whom something may have become due since the last call."""
        stirred = [state.key for state in self._books.stirred]
        self._books.stirred.clear()
        return stirred

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        return min((at for at in (self._books.alarms.next_at(), self._books.lazy_at) if at is not None), default=None)

    def wake(self, now: Instant) -> None:
        """Time has come for something; early calls do nothing."""
        self._books.wake(now)
        for state in map(self._by_number.__getitem__, self._books.alarms.due(now)):
            if not state.has_due(now):
                self._books.alarm(state)  # it was set for a copy that was answered meanwhile
            elif state.links:
                self._books.stir(state)

    # Durability

    @property
    def must_commit(self) -> bool:
        """Whether somebody waits for changes to become durable."""
        return self._books.must_commit

    @property
    def unsaved_bytes(self) -> int:
        """Bodies that are not on disk yet; a bound for whoever reads from connections."""
        return self._books.unsaved_bytes

    def keep(self, record: Record) -> None:
        """Let a row of the owner's ride with the next changes."""
        self._books.keep(record)

    def changes(self) -> tuple[Change, ...]:
        """Return what is to be made durable in one group; ``committed`` must follow before the next call."""
        return self._books.changes()

    def committed(self, now: Instant) -> None:
        """The last ``changes`` are on disk."""
        self._books.committed(now)

    def take_events(self) -> list[DeviceEvent]:
        """Return and forget what has happened; what an event is about is on disk."""
        return self._books.take_events()

    @property
    def messages_count(self) -> int:
        """Messages in all groups, tombstones included."""
        return len(self._books.index)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        peers = self._books.peers.values()
        return {
            "groups": len(self._books.members),
            "messages": len(self._books.index),
            "pending": sum(member.graph.pending_count for member in self._books.members.values()),
            "peers": len(self._books.peers),
            "links": len(self._links),
            "offered": sum(len(state.offered) for state in peers),
            "unheld": sum(state.unheld_count for state in peers),
            "unsaved_bytes": self._books.unsaved_bytes,
        }

    # Helpers

    def _member(self, group_id: bytes) -> Membership:
        member = self._books.members.get(group_id)
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
