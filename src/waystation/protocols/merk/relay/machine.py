"""The MERK relay: it authenticates clients and nodes, and routes every frame.

``server.merk.host`` runs it. Inputs are frames of clients and nodes, ends of connections, and time. Its state is in
memory; only mailboxes and the addresses of other nodes survive a restart. It never reads a frame's contents.

``session`` is one connection; ``authentication`` and ``handshake`` prove its key. ``routing`` forwards frames with
``delivery``, ``lookups`` and ``forwards``; ``notices`` takes what other nodes say became of them. ``mesh`` manages the
links to other nodes, ``key_directory`` the agreement keys. ``known_frames`` dispatches each frame of who is identified
to one of them.

Spec: seed "Protocol Details"; specs/merk.md, all of it.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from waystation.core.commits import Commits
from waystation.core.effects import Effect, Peer
from waystation.core.facts import MeshLinkEnded
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant, after_ms
from waystation.core.records import Store
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import DEFAULT_LIMITS, MerkLimits
from waystation.protocols.merk.messages import RequestServers
from waystation.protocols.merk.refusals import MalformedError, Refusal
from waystation.protocols.merk.relay.delivery import PROTOCOL
from waystation.protocols.merk.relay.fast_path import Runs
from waystation.protocols.merk.relay.handshake import Handshakes
from waystation.protocols.merk.relay.key_directory import KeyDirectory
from waystation.protocols.merk.relay.key_frames import KeyFrames
from waystation.protocols.merk.relay.known_frames import KnownFrames
from waystation.protocols.merk.relay.mailboxes import Mailboxes
from waystation.protocols.merk.relay.mailing import Mailing
from waystation.protocols.merk.relay.mesh import Mesh
from waystation.protocols.merk.relay.notices import Notices
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.relay.presences import WallClock
from waystation.protocols.merk.relay.routing import SWEEP_MS, Routing
from waystation.protocols.merk.relay.sessions import Sessions
from waystation.protocols.merk.session import NODES, Session, State
from waystation.protocols.merk.settings import MerkSettings

__all__ = ["MerkRelay"]


class MerkRelay:
    """One relay; see ``core.machine.Machine`` for how to drive it."""

    def __init__(
        self,
        settings: MerkSettings,
        key_pair: KeyPair,
        store: Store,
        rng: random.Random,
        *,
        limits: MerkLimits = DEFAULT_LIMITS,
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _identity: True,
        is_unlimited: Callable[[PublicKey], bool] = lambda _identity: False,
        admits_unproved: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make a relay without connections.

        Args:
            settings: What the operator chose.
            key_pair: The node's identity.
            store: Holds the table of nodes.
            rng: Source of challenges, nonces and jitter; must be unpredictable to peers.
            limits: What peers may have and do; ``use_limits`` replaces them.
            rate_limits: False lifts allowances and strikes, and nothing else (MERK-C8).
            admits: Asked with each key that proved itself; False closes the connection.
            is_unlimited: Asked with the same; True lifts the allowances of its connection.
            admits_unproved: Whether relays may link with us that prove no key.
        """
        self._settings = settings
        self._limits = InForce(limits)
        self._key = key_pair.public
        # Spec 8: frames wait for a slow reader up to twice the largest frame.
        self._outbox = Outbox(2 * settings.max_frame_bytes, self._limits)
        self._sessions = Sessions(self._outbox, self._key, self._limits, strikes_count=rate_limits)
        self._sessions.on_end.append(self._on_end)
        self._mesh = Mesh(settings, self._key, store, rng, self._limits, self._outbox)
        boxes = Mailboxes(store, self._key, self._limits)
        self._keys = KeyDirectory(self._limits, boxes.advert_of)
        frame_bytes, strike = settings.max_frame_bytes, self._sessions.strike
        self._clock = WallClock()
        self._routing = Routing(
            self._key, self._outbox, self._mesh, self._keys, self._clock, rng, frame_bytes, strike, admits, self._limits
        )
        self._mailing = Mailing(
            boxes,
            self._keys,
            self._key,
            self._sessions,
            self._outbox,
            self._routing,
            self._clock,
            is_on=settings.mailbox,
            has_shares=rate_limits,
        )
        notices = Notices(self._routing, self._sessions)
        self._sessions.on_close.append(self._routing.delivery.flush)
        self._runs = Runs(self._routing, notices, settings.max_frame_bytes)
        self._key_frames = KeyFrames(self._keys, self._sessions, self._mesh, self._routing, self._clock, boxes)
        self.twins = self._mesh.twins
        self._handshakes = Handshakes(
            settings,
            key_pair,
            rng,
            self._sessions,
            self._outbox,
            self._mesh,
            self._routing,
            admits,
            self._limits,
            rate_limits=rate_limits,
            is_unlimited=is_unlimited,
            admits_unproved=admits_unproved,
        )
        self._frames = KnownFrames(
            settings,
            self._sessions,
            self._mesh,
            self._routing,
            self._handshakes,
            self._key_frames,
            self._clock,
            self._mailing,
            notices,
        )
        self._sweep_at: Instant | None = None
        self._commits = Commits()
        self._tickets = 0
        """Of the commits that were asked for: one for the table of nodes and one for mailboxes may be under way."""

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._clock.offset_us = wall_us - now
        self._mailing.begin_sweeping(now)

    def use_limits(self, limits: MerkLimits) -> None:
        """Hold peers to these limits from now on; allowances that are counted already get the new size."""
        self._limits.now = limits
        for session in self._sessions.by_peer.values():
            session.use_limits(limits)
        self._routing.use_limits()

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """A connection stands: it gets its challenge."""
        # Spec 2: the relay speaks first, with a fresh nonce.
        self._handshakes.challenge(Session(peer, State.CHALLENGED, now, address=address), now)
        self._begin_sweeping(now)

    def connect_by(self, peer: Peer, endpoint: str, now: Instant, address: str = "") -> None:  # noqa: ARG002 - one endpoint
        """A connection to the listener for original relays is established: it speaks first."""
        # Spec 5: an original dials ours on /mesh and speaks first; we wait for its challenge.
        self._handshakes.wait_for_original(Session(peer, State.AWAITING_CHALLENGE, now, address=address), now)
        self._begin_sweeping(now)

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """A connection that we dialled stands; ``name`` is its address."""
        session = Session(peer, State.DIALLED, now, contact=self._mesh.contact(name))
        self._handshakes.wait_for_challenge(session, now)
        self._begin_sweeping(now)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """The address ``name`` could not be reached."""
        self._mesh.unreachable(name, now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """One binary message arrived."""
        session = self._sessions.by_peer.get(peer)
        if session is None:
            return
        try:
            # Spec 1: magic, version and exact length are checked before anything else.
            kind, sender = wire.read_head(data)
        except MalformedError as error:
            self._sessions.close(session, error.refusal, now)
            return
        if session.state is State.CLIENT:
            self._frames.of_client(session, kind, sender, data, now)
        elif session.state in NODES:
            self._frames.of_node(session, kind, data, now)
        else:
            self._handshakes.receive(session, kind, data, now)

    def receive_many(self, peer: Peer, messages: Sequence[bytes], now: Instant) -> None:
        """Several messages arrived at once: the same as one by one, but runs to one recipient cost less."""
        session = self._sessions.by_peer.get(peer)
        start = 0
        while session is not None and start < len(messages):
            slow_count = 1
            if session.state is State.CLIENT:
                # The fast path takes as many frames to one recipient as need no second look; negative says how many
                # do.
                taken = self._runs.of_client(session, messages, start, now)
                slow_count = max(0, -taken)
                start += max(0, taken)
            elif session.state is State.PEER and not session.is_unnamed:
                start += self._runs.of_peer(session, messages, start, now)
            for message in messages[start : start + slow_count]:
                self.receive(peer, message, now)
            start += slow_count

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """The connection ended."""
        session = self._sessions.by_peer.get(peer)
        if session is not None:
            self._sessions.forget(session, "disconnected", now)

    def congested(self, peer: Peer, now: Instant) -> None:
        """Bytes wait for the peer, or fewer wait than at the last call."""
        session = self._sessions.by_peer.get(peer)
        if session is not None:
            self._outbox.on_congested(session, now)

    def drained(self, peer: Peer, now: Instant) -> None:
        """No byte waits for the peer."""
        session = self._sessions.by_peer.get(peer)
        if session is not None:
            self._outbox.on_drained(session)
            self._routing.release(session, now)
            self._mailing.release(session, now)

    def committed(self, ticket: int, now: Instant) -> None:
        """Mailboxes are on disk, whose senders learn of it, or the table of nodes, for which nobody waits."""
        if ticket == self._mailing.ticket:
            self._mailing.committed(now)
        else:
            self._commits.committed(ticket)

    def not_committed(self, ticket: int, now: Instant) -> None:
        """What mailboxes promised is refused; removals and the table of nodes are asked for again in a second."""
        if ticket == self._mailing.ticket:
            self._mailing.not_committed(now)
        else:
            self._commits.not_committed(ticket, now)

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Refuse an answer that nobody asked for; see ``Machine.verified``."""
        raise AssertionError(f"verified {ticket} with {len(answers)} answers at {now}, but nothing was asked")

    def wake(self, now: Instant) -> None:
        """Look after deadlines, searches, slow readers and nodes."""
        for number in self._sessions.alarms.due(now):
            session = self._sessions.by_peer.get(Peer(number))
            if session is not None:
                self._handshakes.overdue(session, now)
        self._routing.wake(now)
        for question in self._keys.expired(now):
            self._key_frames.answer(question)
        for node in self._mesh.refresh(now):
            self._sessions.say(node, RequestServers())
        if self._sweep_at is not None and self._sweep_at <= now:
            left = self._routing.sweep(now)
            self._sweep_at = after_ms(now, SWEEP_MS) if left or len(self._sessions) else None
        self._mailing.wake(now)
        self._close_doomed(now)
        self._commits.wake(now)
        if not self._frames.is_retiring:
            for dial in self._mesh.dials(now):
                self._outbox.add(dial)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        times = [self._sessions.alarms.next_at(), self._routing.deadline(), self._keys.deadline(), self._sweep_at]
        times += [self._commits.again_at, self._mailing.deadline()]
        if self._outbox.doomed:
            times.append(Instant(0))
        if not self._frames.is_retiring:
            times.append(self._mesh.deadline())
        return min((at for at in times if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered since the last call, in their order."""
        # MERK-NOTICES: all that has ended alike in this turn leaves as one notice.
        self._routing.delivery.flush()
        # The table of nodes is durable, but no answer waits for it.
        if self._commits.may_begin and (self._mesh.has_changed or self._commits.is_refused):
            self._tickets += 1
            self._outbox.add(self._commits.begin(self._mesh.take_changes(), self._tickets))
        mail = self._mailing.begin(self._tickets + 1)
        if mail is not None:
            self._tickets += 1
            self._outbox.add(mail)
        return self._outbox.take()

    # Commands

    def retire(self) -> None:
        """Search for no client and dial no node any more; what is under way gets its outcome."""
        self._frames.is_retiring = self._key_frames.is_retiring = True

    def settled(self) -> bool:
        """Return whether no frame is under way."""
        routing = self._routing
        is_under_way = len(routing.lookups) or len(routing.forwards) or routing.outbox.waiting_bytes
        return not (is_under_way or self._mailing.boxes.waiting_bytes)

    def shut(self, now: Instant) -> None:
        """Close every connection."""
        for session in list(self._sessions.by_peer.values()):
            self._sessions.close(session, Refusal.SHUTDOWN, now)
        self._routing.sweep(now)
        self._routing.delivery.report_counts()

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of a key."""
        for session in list(self._sessions.by_peer.values()):
            if session.identity == identity:
                self._sessions.close(session, Refusal.IDENTITY_BANNED, now)

    def review(self, now: Instant) -> None:
        """Close the connections of every key that is not admitted any more, and of relays that prove none."""
        self._handshakes.review(now)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        routing = self._routing
        return {
            "connections": len(self._sessions),
            "clients": len(routing.clients),
            "nodes": len(self._mesh.links),
            "original_relays": len(self._mesh.originals),
            "addresses": self._mesh.addresses_count,
            "learnt_addresses": self._mesh.learnt_count,
            "connect_addresses": self._handshakes.addresses_count,
            "lookups": len(routing.lookups),
            "lookup_bytes": routing.lookups.queued_bytes,
            "places": routing.lookups.places_count,
            "forwards": len(routing.forwards),
            "forward_bytes": routing.forwards.carried_bytes,
            "seen_forwards": len(routing.seen),
            "buffered_bytes": routing.outbox.waiting_bytes,
            "unread_bytes": routing.outbox.unread_bytes,
            "adverts": len(self._keys),
            "key_questions": self._keys.questions_count,
            "slow_readers": len(self._outbox.congested),
            "mailboxes": len(self._mailing.boxes),
            "mail_messages": self._mailing.boxes.mail_count,
            "mail_bytes": self._mailing.boxes.mail_bytes,
            "mail_waiting_bytes": self._mailing.boxes.waiting_bytes,
        }

    def mesh(self, now: Instant) -> dict[str, Any]:
        """Return what everybody may know: this node, the nodes it is linked with, and their links among each other."""
        here = {"address": self._settings.public_url, "clients": len(self._routing.clients)}
        return {**self._mesh.view(now), **here}

    # Ends

    def _on_end(self, session: Session, was: State, now: Instant) -> None:
        """A connection is over: nothing may point at it any more."""
        # A node that leaves answers no question any more; others may still.
        for question in self._keys.lost(session):
            self._key_frames.answer(question)
        contact = session.contact
        if contact is not None:
            stood_us = now - session.link.since if session.link is not None else 0
            self._mesh.failed(contact.url, now, stood_ms=stood_us // MICROSECONDS_PER_MS)
        if was not in NODES:
            self._mailing.left(session)
            self._routing.left(session, now)
            return
        self._mesh.lost(session)
        self._routing.node_lost(session, now)
        link = session.link
        if link is not None and was is State.PEER:
            assert session.identity is not None
            fact = MeshLinkEnded(
                PROTOCOL,
                node=session.identity,
                relay=session.identity,
                dialled=int(contact is not None),
                duration_us=now - link.since,
                frames_out=link.frames_out,
                frames_in=link.frames_in,
                bytes_out=link.bytes_out,
                bytes_in=link.bytes_in,
            )
            self._outbox.add(fact)

    def _close_doomed(self, now: Instant) -> None:
        while self._outbox.doomed:
            session, refusal = self._outbox.doomed.pop()
            self._sessions.close(session, refusal, now)

    def _begin_sweeping(self, now: Instant) -> None:
        if self._sweep_at is None:
            self._sweep_at = after_ms(now, SWEEP_MS)
