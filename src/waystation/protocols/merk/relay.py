"""The MERK relay: who is here, which nodes stand beside it, and where each frame goes.

What moves it: frames of clients and nodes, ends of connections, and time. What it holds is soft: connections,
locations, searches, adverts; only the addresses of nodes survive a restart. What it refuses to know: what is inside a
frame.

Parts, each with its own theory: ``session`` is one connection, ``greeting`` proves who is there, ``routing`` moves
frames with ``delivery``, ``lookups`` and ``forwards``, ``mesh`` knows the other nodes, ``key_directory`` who has
which key. This module says which frame goes to which of them.

Spec: seed "Protocol Details"; specs/merk.md, all of it.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from waystation.core.effects import Commit, Effect, Peer
from waystation.core.facts import LinkEnded
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant, after_ms
from waystation.core.records import Store
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk import wire
from waystation.protocols.merk.delivery import PROTOCOL
from waystation.protocols.merk.key_directory import KeyDirectory, Question
from waystation.protocols.merk.mesh import Mesh
from waystation.protocols.merk.messages import (
    AddServer,
    Auth,
    ClientAbsent,
    ClientFound,
    Delivery,
    DeliveryCode,
    Forward,
    Gone,
    Hello,
    KeyAdvert,
    KeyQuery,
    KeyUnknown,
    Limits,
    MessageType,
    QueryClient,
    RequestServers,
    Servers,
)
from waystation.protocols.merk.outbox import Outbox
from waystation.protocols.merk.refusals import MalformedError, Refusal
from waystation.protocols.merk.routing import CARRIED, SWEEP_MS, Routing
from waystation.protocols.merk.runs import Runs
from waystation.protocols.merk.session import (
    NODES,
    ORIGINALS,
    Session,
    State,
)
from waystation.protocols.merk.sessions import Sessions
from waystation.protocols.merk.settings import MerkSettings
from waystation.protocols.merk.welcome import Welcome

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
        rate_limits: bool = True,
        admits: Callable[[PublicKey], bool] = lambda _identity: True,
    ) -> None:
        """Make a relay without connections.

        Args:
            settings: What the operator chose.
            key_pair: The node's identity.
            store: Holds the table of nodes.
            rng: Source of challenges, nonces and jitter; must be unpredictable to peers.
            rate_limits: False lifts allowances and strikes, and nothing else (MERK-C8).
            admits: Asked with each key that proved itself; False closes the connection.
        """
        self._settings = settings
        self._key = key_pair.public
        self._outbox = Outbox(2 * settings.max_frame_bytes)
        self._sessions = Sessions(self._outbox, self._key, strikes_count=rate_limits)
        self._sessions.on_end.append(self._on_end)
        self._mesh = Mesh(settings, self._key, store, rng, self._outbox)
        self._keys = KeyDirectory()
        self._routing = Routing(
            self._key, self._outbox, self._mesh, rng, settings.max_frame_bytes, self._sessions.strike, admits
        )
        self._runs = Runs(self._routing, settings.max_frame_bytes)
        self._welcome = Welcome(
            settings,
            key_pair,
            rng,
            self._sessions,
            self._outbox,
            self._mesh,
            self._routing,
            admits,
            rate_limits=rate_limits,
        )
        self._sweep_at: Instant | None = None
        self._wall_offset = 0
        self._tickets = 0
        self._retiring = False
        self._on_info: Mapping[type, Callable[[Session, Any, Instant], None]] = {
            RequestServers: self._on_request_servers,
            Servers: self._on_servers,
            AddServer: self._on_add_server,
            QueryClient: self._on_query_client,
            ClientFound: self._on_client_found,
            ClientAbsent: self._on_client_absent,
            Hello: self._welcome.on_hello,
            Auth: self._welcome.on_auth,
            Delivery: self._on_notice,
            Forward: self._on_forward,
            KeyAdvert: self._on_advert,
            KeyQuery: self._on_key_query,
            KeyUnknown: self._on_key_unknown,
            Gone: self._on_gone,
            Limits: self._on_limits,
        }

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset = wall_us - now

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """A connection stands: it gets its challenge."""
        self._welcome.challenge(Session(peer, State.CHALLENGED, now, address=address), now)
        self._begin_sweeping(now)

    def connect_by(self, peer: Peer, door: str, now: Instant, address: str = "") -> None:  # noqa: ARG002 - one door
        """A connection stands at the door for original relays: it speaks first."""
        self._welcome.wait_at_door(Session(peer, State.DOOR, now, address=address), now)
        self._begin_sweeping(now)

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """A connection that we dialled stands; ``name`` is its address."""
        session = Session(peer, State.DIALLED, now, contact=self._mesh.contact(name))
        self._welcome.wait_for_challenge(session, now)
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
            kind, sender = wire.read_head(data)
        except MalformedError as error:
            self._sessions.close(session, error.refusal, now)
            return
        if session.state is State.CLIENT:
            self._on_client_frame(session, kind, sender, data, now)
        elif session.state in NODES:
            self._on_node_frame(session, kind, data, now)
        else:
            self._welcome.receive(session, kind, data, now)

    def receive_many(self, peer: Peer, messages: Sequence[bytes], now: Instant) -> None:
        """Several messages arrived at once: the same as one by one, but runs to one recipient cost less."""
        session = self._sessions.by_peer.get(peer)
        start = 0
        while session is not None and start < len(messages):
            long_way = 1
            if session.state is State.CLIENT:
                taken = self._runs.of_client(session, messages, start, now)
                long_way = max(0, -taken)
                start += max(0, taken)
            elif session.state is State.PEER:
                start += self._runs.of_peer(session, messages, start, now)
            for message in messages[start : start + long_way]:
                self.receive(peer, message, now)
            start += long_way

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

    def committed(self, ticket: int, now: Instant) -> None:
        """The table of nodes is on disk; nobody waits for that."""

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Refuse an answer that nobody asked for; see ``Machine.verified``."""
        raise AssertionError(f"verified {ticket} with {len(answers)} answers at {now}, but nothing was asked")

    def wake(self, now: Instant) -> None:
        """Look after deadlines, searches, slow readers and nodes."""
        for number in self._sessions.alarms.due(now):
            session = self._sessions.by_peer.get(Peer(number))
            if session is not None:
                self._welcome.overdue(session, now)
        self._routing.wake(now)
        for question in self._keys.expired(now):
            self._answer_keys(question)
        for node in self._mesh.refresh(now):
            self._sessions.say(node, RequestServers())
        if self._sweep_at is not None and self._sweep_at <= now:
            left = self._routing.sweep(now)
            self._sweep_at = after_ms(now, SWEEP_MS) if left or len(self._sessions) else None
        self._close_doomed(now)
        if not self._retiring:
            for dial in self._mesh.dials(now):
                self._outbox.add(dial)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        times = [self._sessions.alarms.next_at(), self._routing.deadline(), self._keys.deadline(), self._sweep_at]
        if self._outbox.doomed:
            times.append(Instant(0))
        if not self._retiring:
            times.append(self._mesh.deadline())
        return min((at for at in times if at is not None), default=None)

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered since the last call, in their order."""
        changes = self._mesh.take_changes()
        if changes:
            self._tickets += 1
            self._outbox.add(Commit(self._tickets, changes))
        return self._outbox.take()

    # Commands

    def retire(self) -> None:
        """Search for nobody and dial nobody any more; what is under way gets its outcome."""
        self._retiring = True

    def settled(self) -> bool:
        """Return whether no frame is under way."""
        routing = self._routing
        return not (len(routing.lookups) or len(routing.forwards) or routing.outbox.waiting_bytes)

    def shut(self, now: Instant) -> None:
        """Close every connection."""
        for session in list(self._sessions.by_peer.values()):
            self._sessions.close(session, Refusal.SHUTDOWN, now)
        self._routing.sweep(now)
        self._routing.delivery.tell()

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of a key."""
        for session in list(self._sessions.by_peer.values()):
            if session.identity == identity:
                self._sessions.close(session, Refusal.IDENTITY_BANNED, now)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        routing = self._routing
        return {
            "connections": len(self._sessions),
            "clients": len(routing.clients),
            "nodes": len(self._mesh.links),
            "original_relays": len(self._mesh.originals),
            "addresses": self._mesh.addresses_count,
            "lookups": len(routing.lookups),
            "lookup_bytes": routing.lookups.queued_bytes,
            "places": routing.lookups.places_count,
            "forwards": len(routing.forwards),
            "seen_forwards": len(routing.seen),
            "buffered_bytes": routing.outbox.waiting_bytes,
            "adverts": len(self._keys),
            "key_questions": self._keys.questions_count,
            "slow_readers": len(self._outbox.congested),
        }

    def mesh(self, now: Instant) -> dict[str, Any]:
        """Return what everybody may know: this node, the nodes it is linked with, and their links among each other."""
        clients = len(self._routing.clients)
        return {**self._mesh.view(now), "address": self._settings.public_url, "clients": clients}

    # Frames of those who are known

    def _on_client_frame(self, session: Session, kind: int, sender: bytes, data: bytes, now: Instant) -> None:
        size = len(data)
        if size > self._settings.max_frame_bytes:
            self._sessions.close(session, Refusal.TOO_BIG, now)
        elif kind == MessageType.HANDSHAKE:
            self._sessions.close(session, Refusal.MISPLACED_HANDSHAKE, now)
        elif sender != session.identity:
            self._sessions.strike(session, Refusal.FORGED_SENDER, now)
        elif kind in CARRIED:
            target = wire.target_of(data)
            if target is None:
                self._sessions.strike(session, Refusal.NO_TARGET, now)
            elif not session.affords(size, now):
                self._sessions.note(session, Refusal.RATE)
                self._routing.delivery.refuse(session, DeliveryCode.RATE, target, data, now)
            else:
                self._routing.route(session, target, data, now, may_ask=not self._retiring)
        elif not session.affords(size, now):
            self._sessions.note(session, Refusal.RATE)
        else:
            self._on_node_info(session, kind, data, now)

    def _on_node_frame(self, session: Session, kind: int, data: bytes, now: Instant) -> None:
        """Take a frame of another node; an original may confirm and challenge as often as it likes."""
        link = session.link
        assert link is not None
        if not session.affords(len(data), now):
            self._sessions.note(session, Refusal.RATE, named=False)  # its clients' frames, not its own
            self._routing.arrived_too_fast(session, data, now)
        elif kind == MessageType.NODE_INFO:
            self._on_node_info(session, kind, data, now)
        elif session.state is State.PEER and kind == MessageType.HANDSHAKE:
            self._sessions.close(session, Refusal.MISPLACED_HANDSHAKE, now)
        elif session.state is State.PEER:
            self._sessions.strike(session, Refusal.UNKNOWN_TYPE, now)
        elif kind in CARRIED:
            link.frames_in += 1
            link.bytes_in += len(data)
            self._routing.arrived_bare(session, data, now)

    def _on_node_info(self, session: Session, kind: int, data: bytes, now: Instant) -> None:
        if kind != MessageType.NODE_INFO:
            self._sessions.strike(session, Refusal.UNKNOWN_TYPE, now)
            return
        try:
            info = wire.decode_info_frame(data)
        except MalformedError as error:
            self._sessions.strike(session, error.refusal, now)
            return
        if info is not None:
            self._on_info[type(info)](session, info, now)

    def _from_peer(self, session: Session, now: Instant, refusal: Refusal = Refusal.INFO_NOT_ALLOWED) -> bool:
        """Return whether a peer of ours says this; anybody else gets a strike."""
        if session.state is State.PEER:
            return True
        if session.state in ORIGINALS:
            self._sessions.note(session, refusal)  # specs/merk.md 5: what it says about servers is not believed
        else:
            self._sessions.strike(session, refusal, now)
        return False

    def _on_request_servers(self, session: Session, _info: RequestServers, _now: Instant) -> None:
        self._sessions.say(session, Servers(self._mesh.servers()))

    def _on_servers(self, session: Session, servers: Servers, now: Instant) -> None:
        if self._from_peer(session, now):
            refused = self._mesh.named(session, servers.entries, now)
            if refused:
                self._sessions.note(session, Refusal.PRIVATE_ADDRESS, refused)

    def _on_add_server(self, session: Session, info: AddServer, now: Instant) -> None:
        """Learn an address of a peer's; a client's is taken without a word and not dialled (specs/merk.md 8)."""
        if session.state is not State.PEER:
            return
        assert session.identity is not None
        if not self._mesh.learn(info.address, None, session.identity, now):
            self._sessions.note(session, Refusal.PRIVATE_ADDRESS)

    def _on_query_client(self, session: Session, info: QueryClient, now: Instant) -> None:
        """Tell a node whether a client is here; clients would learn who is present."""
        if session.state in NODES:
            self._routing.asked(session, info.key, now, may_ask=not self._retiring)
        else:
            self._sessions.strike(session, Refusal.INFO_NOT_ALLOWED, now)

    def _on_client_found(self, session: Session, info: ClientFound, now: Instant) -> None:
        if session.state in NODES:
            self._routing.found(session, info, now)
        else:
            self._sessions.strike(session, Refusal.UNASKED_ANSWER, now)

    def _on_client_absent(self, session: Session, info: ClientAbsent, now: Instant) -> None:
        if session.state in NODES:
            self._routing.absent(session, info, now)
        else:
            self._sessions.strike(session, Refusal.UNASKED_ANSWER, now)

    def _on_notice(self, session: Session, notice: Delivery, now: Instant) -> None:
        if self._from_peer(session, now):
            self._routing.noticed(session, notice, now)

    def _on_forward(self, session: Session, forward: Forward, now: Instant) -> None:
        if self._from_peer(session, now):
            assert session.link is not None
            session.link.frames_in += 1
            session.link.bytes_in += len(forward.frame)
            self._routing.arrived(session, forward, now)

    def _on_gone(self, session: Session, gone: Gone, now: Instant) -> None:
        if self._from_peer(session, now):
            self._routing.lookups.moved(gone.key, session)

    def _on_limits(self, session: Session, limits: Limits, now: Instant) -> None:
        """Note what a peer takes: a larger frame would cost us the link."""
        if self._from_peer(session, now):
            session.frame_bytes_max = limits.frame_bytes_max

    # The key directory

    def _on_advert(self, session: Session, advert: KeyAdvert, now: Instant) -> None:
        """Keep what a client says about its own key; take what a peer says about a key that it was asked for."""
        if session.state is State.CLIENT:
            wall_ms = (now + self._wall_offset) // MICROSECONDS_PER_MS
            is_own = advert.key == session.identity
            if not (is_own and wire.is_advert_valid(advert) and self._keys.keep(advert, wall_ms)):
                self._sessions.strike(session, Refusal.BAD_ADVERT, now)
        elif self._from_peer(session, now):
            if not self._keys.expects(advert.key, session):
                self._sessions.strike(session, Refusal.UNASKED_ANSWER, now)
                return
            valid = wire.is_advert_valid(advert)
            if not valid:
                self._sessions.strike(session, Refusal.BAD_ADVERT, now)
            if self._keys.expects(advert.key, session):  # the strike may have ended the connection
                self._answer_keys(self._keys.answered(advert.key, session, advert if valid else None))

    def _on_key_query(self, session: Session, query: KeyQuery, now: Instant) -> None:
        """Tell a peer what we hold ourselves; for a client ask the peers as well, unless the key's owner is here."""
        held = self._keys.held(query.key)
        if session.state is not State.CLIENT:
            if self._from_peer(session, now):
                self._sessions.say(session, held or KeyUnknown(query.key))
            return
        nodes = list(self._mesh.links.values())
        if self._retiring or not nodes or (held is not None and query.key in self._routing.clients):
            self._sessions.say(session, held or KeyUnknown(query.key))
            return
        joined, question = self._keys.ask(query.key, session, nodes, now)
        if question is not None:
            for node in question.open:
                self._sessions.say(node, query)
        if not joined:
            self._sessions.say(session, held or KeyUnknown(query.key))

    def _on_key_unknown(self, session: Session, answer: KeyUnknown, now: Instant) -> None:
        if not self._from_peer(session, now, Refusal.UNASKED_ANSWER):
            return
        if self._keys.expects(answer.key, session):
            self._answer_keys(self._keys.answered(answer.key, session, None))
        else:
            self._sessions.strike(session, Refusal.UNASKED_ANSWER, now)

    def _answer_keys(self, question: Question | None) -> None:
        """Tell the askers of a question that is over."""
        if question is not None:
            for asker in question.askers:
                self._sessions.say(asker, question.best or KeyUnknown(question.key))

    # Ends

    def _on_end(self, session: Session, was: State, now: Instant) -> None:
        """A connection is over: nothing may point at it any more."""
        for question in self._keys.lost(session):
            self._answer_keys(question)
        contact = session.contact
        if contact is not None:
            stood_us = now - session.link.since if session.link is not None else 0
            self._mesh.failed(contact.url, now, stood_ms=stood_us // MICROSECONDS_PER_MS)
        if was not in NODES:
            self._routing.left(session, now)
            return
        self._mesh.lost(session)
        self._routing.node_lost(session, now)
        link = session.link
        if link is not None and was is State.PEER:
            assert session.identity is not None
            traffic = (link.frames_out, link.frames_in, link.bytes_out, link.bytes_in)
            self._outbox.add(LinkEnded(PROTOCOL, session.identity, contact is not None, now - link.since, *traffic))

    def _close_doomed(self, now: Instant) -> None:
        while self._outbox.doomed:
            session, refusal = self._outbox.doomed.pop()
            self._sessions.close(session, refusal, now)

    def _begin_sweeping(self, now: Instant) -> None:
        if self._sweep_at is None:
            self._sweep_at = after_ms(now, SWEEP_MS)
