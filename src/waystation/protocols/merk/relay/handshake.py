"""Handshakes: identify a new connection as a client, a peer node, or a reference relay.

The relay passes it every frame of a connection that is not identified yet. A reference relay is one of the original
implementation, without our extensions. An accepted connection signs our challenge and is a client. A HELLO as a node,
and a proof over both nonces, make it a peer. A connection that we dialled challenges us and must prove itself the same
way. If it stays silent, it is a reference relay. We sign no challenge that could be read as typed content.

Spec: specs/merk.md 2, 5, 7, 10.1, 10.4; MERK-HANDSHAKE, MERK-ORIGINAL.
"""

import random
from collections import OrderedDict
from collections.abc import Callable

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket, surplus
from waystation.core.settings import InForce
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    AddServer,
    Auth,
    Feature,
    Hello,
    Limits,
    MessageType,
    RequestServers,
    Role,
)
from waystation.protocols.merk.refusals import MalformedError, Refusal
from waystation.protocols.merk.relay import authentication
from waystation.protocols.merk.relay.mesh import Mesh
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.relay.routing import Routing
from waystation.protocols.merk.relay.sessions import Sessions
from waystation.protocols.merk.session import (
    AUTH_DEADLINE_MS,
    CHALLENGE_DEADLINE_MS,
    HELLO_ANSWER_MS,
    Move,
    Session,
    State,
    Traffic,
)
from waystation.protocols.merk.settings import MerkSettings
from waystation.rules.twins import Twin

__all__ = ["Handshakes"]


class Handshakes:
    """Moves connections until it is known who they are."""

    def __init__(
        self,
        settings: MerkSettings,
        key_pair: KeyPair,
        rng: random.Random,
        sessions: Sessions,
        outbox: Outbox,
        mesh: Mesh,
        routing: Routing,
        admits: Callable[[PublicKey], bool],
        limits: InForce[MerkLimits],
        *,
        rate_limits: bool,
        is_unlimited: Callable[[PublicKey], bool] = lambda _identity: False,
        admits_unproved: Callable[[], bool] = lambda: True,
    ) -> None:
        """Bind the parts of one relay; see ``relay.MerkRelay``."""
        self._settings = settings
        self._key_pair = key_pair
        self._key = key_pair.public
        self._rng = rng
        self._sessions = sessions
        self._outbox = outbox
        self._mesh = mesh
        self._routing = routing
        self._admits = admits
        self._limits = limits
        self._rate_limits = rate_limits
        self._is_unlimited = is_unlimited
        self._admits_unproved = admits_unproved
        self._connects: OrderedDict[str, TokenBucket] = OrderedDict()

    @property
    def addresses_count(self) -> int:
        """How many addresses have their connects counted."""
        return len(self._connects)

    # Comings

    def challenge(self, session: Session, now: Instant) -> None:
        """A connection stands: it gets its challenge."""
        self._sessions.enter(session, AUTH_DEADLINE_MS, now)
        if not self._may_connect(session.address, now):
            self._sessions.close(session, Refusal.CONNECT_RATE, now)
            return
        # Spec 10.1: a nonce is fresh for every connection.
        session.challenge = authentication.new_challenge(self._rng)
        self._outbox.reply(session, authentication.challenge_frame(session.challenge))

    def wait_for_original(self, session: Session, now: Instant) -> None:
        """A connection to the listener for original relays is established: it speaks first."""
        self._sessions.enter(session, CHALLENGE_DEADLINE_MS, now)
        if not self._may_connect(session.address, now):
            self._sessions.close(session, Refusal.CONNECT_RATE, now)

    def wait_for_challenge(self, session: Session, now: Instant) -> None:
        """A connection that we dialled stands: the other side speaks first."""
        self._sessions.enter(session, AUTH_DEADLINE_MS, now)

    def _may_connect(self, address: str, now: Instant) -> bool:
        if not self._rate_limits or not address:
            return True
        # Spec 8: 10 new connections a second of one address; the table forgets the address used longest ago.
        bucket, limits = self._connects.pop(address, None), self._limits.now
        if bucket is None:
            for _ in range(surplus(len(self._connects) + 1, limits.connect_addresses)):
                self._connects.popitem(last=False)
            bucket = TokenBucket(limits.connects_per_second, limits.connects_burst, now)
        bucket.change(limits.connects_per_second, limits.connects_burst)  # a reload has replaced them, perhaps
        self._connects[address] = bucket
        return bucket.take(now)

    # The handshake

    def receive(self, session: Session, kind: int, data: bytes, now: Instant) -> None:
        """Take a frame of a connection that nobody knows yet."""
        if session.state is State.AWAITING_HELLO:
            self._on_dialled_frame(session, kind, data, now)
            return
        frame = wire.decode_frame(data)
        if session.state is State.CHALLENGED:
            if kind != MessageType.HANDSHAKE:
                self._sessions.close(session, Refusal.FRAME_BEFORE_AUTH, now)
            # Spec 2 and 10.4: the answer signs this connection's challenge; anything else is 4401.
            elif not authentication.is_answer(frame, session.challenge):
                self._sessions.close(session, Refusal.BAD_ANSWER, now)
            else:
                self._admit(session, PublicKey(frame.sender), now)
        elif session.state in (State.DIALLED, State.AWAITING_CHALLENGE):
            # Spec 2: we sign a challenge of the right form only, so that nobody has us sign other bytes.
            if not authentication.is_challenge(frame):
                self._sessions.close(session, Refusal.HOSTILE_CHALLENGE, now)
                return
            session.challenge = frame.payload
            self._mesh.twins.sign(frame.payload)
            self._outbox.reply(session, authentication.answer_frame(frame.payload, self._key_pair))
            session.move(Move.CHALLENGE)
            self._sessions.expect(session, AUTH_DEADLINE_MS, now)
        elif not authentication.is_confirmation(frame):
            self._sessions.close(session, Refusal.BAD_ANSWER, now)
        else:
            self._on_confirmed(session, PublicKey(frame.sender), now)

    def overdue(self, session: Session, now: Instant) -> None:
        """Look at a connection whose alarm rang."""
        if session.proved_by is not None and session.proved_by <= now:
            is_node = session.hello is not None and session.hello.role is Role.NODE
            self._sessions.close(session, Refusal.BAD_PEER_AUTH if is_node else Refusal.UNPROVED, now)
        elif session.deadline is None:
            if session.proved_by is not None:
                self._sessions.alarms.set_by(session.peer, session.proved_by)
        elif session.deadline > now:
            self._sessions.alarms.set_by(session.peer, session.deadline)
        # Spec 5: no HELLO within 2 s of ours means an original relay.
        elif session.state is State.AWAITING_HELLO:
            session.move(Move.SILENCE)
            self._on_original(session, now)
        else:
            self._sessions.close(session, Refusal.AUTH_TIMEOUT, now)

    def review(self, now: Instant) -> None:
        """Close the connections of every key that is not admitted any more, and of relays that prove none."""
        for session in list(self._sessions.by_peer.values()):
            unproved = session.state is State.DOWNSTREAM and not self._admits_unproved()
            if unproved or (session.identity is not None and not self._admits(session.identity)):
                self._sessions.close(session, Refusal.IDENTITY_BANNED, now)

    def _admit(self, session: Session, key: PublicKey, now: Instant) -> None:
        if not self._admits(key):
            self._sessions.close(session, Refusal.IDENTITY_BANNED, now)
            return
        session.identity = key
        if key == self._key:
            self._mesh.twins.proved_ours(session.challenge, Twin(key, (session.address,)), now)
        session.challenge = b""
        session.move(Move.ANSWER)
        if self._rate_limits and not self._is_unlimited(key):
            session.give_allowances(self._limits.now, now)
        self._sessions.identify(session)
        self._outbox.reply(session, authentication.confirm_frame(self._key))
        # MERK-PROVED: a challenge can be passed on, so what AUTH holds or may hold is given to AUTH alone.
        if self._routing.needs_proof(key):
            self._sessions.demand_proof(session, now)
        else:
            self._register(session, now)

    def _register(self, session: Session, now: Instant) -> None:
        """Give a client the key that it has proved, and close its older connection."""
        # Spec 10.4: the newest connection of a key stays; the older one closes with 4409.
        older = self._routing.came(session, now)
        if older is not None and older.proved_by is None:  # two dials of one node are settled once it has proved itself
            self._sessions.close(older, Refusal.REPLACED, now)

    def _on_confirmed(self, session: Session, key: PublicKey, now: Instant) -> None:
        # An address that leads to ourselves is forgotten.
        if key == self._key:
            if session.contact is not None:
                self._mesh.has_our_key(session.contact.url, session.challenge, now)
            self._sessions.close(session, Refusal.SELF_LINK, now)
            return
        # Two links to one key: the second dial closes.
        if session.contact is not None:
            is_linked = self._mesh.confirmed(session.contact.url, key, now)
            self._recognise(key)
            if is_linked:
                self._sessions.close(session, Refusal.DOUBLE_LINK, now)
                return
        session.identity = key
        session.move(Move.CONFIRM)
        if session.state is State.DOWNSTREAM:
            self._on_original(session, now)
            return
        self._outbox.reply(session, self._hello_frame(session))
        self._sessions.expect(session, HELLO_ANSWER_MS, now)

    def _recognise(self, key: bytes) -> None:
        """Give a link whose key answers at an address of the operator's the rates of such a node."""
        link = self._mesh.links.get(key)
        if link is not None and link.is_unnamed and self._mesh.is_named(link):
            link.is_unnamed = False
            link.use_limits(self._limits.now)

    def _on_original(self, session: Session, now: Instant) -> None:
        """A relay that knows nothing of our extensions stands beside us; its key is only its word."""
        assert session.identity is not None
        contact = session.contact
        if contact is not None and contact.expected_key not in (None, session.identity):
            self._mesh.forget(contact.url)
            self._sessions.close(session, Refusal.WRONG_PEER_KEY, now)
        # NODE-ACCESS: anybody can say a key that is admitted, so where only known identities may come it must not dial.
        elif not (contact or self._admits_unproved()) or not self._admits(session.identity):
            self._sessions.close(session, Refusal.IDENTITY_BANNED, now)
        # Spec 10.1: `accept_peers = false` keeps to the nodes that we dial.
        elif not (contact or self._settings.accept_peers):
            self._sessions.close(session, Refusal.PEERS_NOT_ACCEPTED, now)
        # Spec 8: a bounded number of originals.
        elif len(self._mesh.originals) >= self._limits.now.original_relays:
            self._sessions.close(session, Refusal.PEERS_FULL, now)
        else:
            # An address that others named proves nothing by being silent: what answers there may not claim clients.
            session.is_unnamed = contact is not None and not self._mesh.is_named(session)
            self._mesh.originals[session] = None
            session.link = Traffic(now)
            if self._rate_limits:
                session.give_allowances(self._limits.now, now)

    # HELLO and AUTH

    def _on_dialled_frame(self, session: Session, kind: int, data: bytes, now: Instant) -> None:
        """Take a frame of a dialled node that has not proved itself; anything but an authentication is ignored."""
        try:
            info = wire.decode_info_frame(data) if kind == MessageType.NODE_INFO else None
        except MalformedError as error:
            self._sessions.close(session, error.refusal, now)
            return
        if isinstance(info, Hello):
            self.on_hello(session, info, now)
        elif isinstance(info, Auth):
            self.on_auth(session, info, now)

    def on_hello(self, session: Session, hello: Hello, now: Instant) -> None:
        """Somebody says who it is and what it understands, once."""
        if session.hello is not None or session.state in (State.PEER, State.DOWNSTREAM):
            self._sessions.strike(session, Refusal.INFO_NOT_ALLOWED, now)
        # Spec 7: HELLO names the key that the connection has proved.
        elif hello.key != session.identity:
            self._sessions.close(session, Refusal.BAD_PEER_AUTH, now)
        elif session.state is not State.CLIENT:
            session.hello = hello
        elif hello.role is Role.NODE and (refusal := self._mesh.no_room(hello.key, session.address)) is not None:
            self._sessions.close(session, refusal, now)
        else:
            session.hello = hello
            # Spec 6: notices go only to clients that asked for them by feature 1.
            session.wants_notices = bool(hello.features & Feature.DELIVERY_NOTICES)
            ours = self._hello_frame(session)
            self._outbox.reply(session, ours)
            self._outbox.reply(session, authentication.auth_frame(session, self._key_pair))
            if hello.role is Role.NODE:
                # A node that says so must prove itself in time; until then it has a client's rights.
                self._sessions.demand_proof(session, now)
            else:
                # Spec 7: what a client may send, so that it need not find out by a closed connection.
                self._sessions.say(session, Limits(self._settings.max_frame_bytes))

    def _hello_frame(self, session: Session) -> bytes:
        mailbox = Feature.MAILBOX if self._settings.mailbox else Feature(0)
        features = authentication.FEATURES | mailbox
        # MERK-NOTICES: between nodes only; to a client nothing of it is said.
        if session.hello is None or session.hello.role is Role.NODE:
            features |= Feature.DELIVERIES
        return authentication.hello_frame(session, self._key, self._settings.public_url, self._rng, features)

    def on_auth(self, session: Session, auth: Auth, now: Instant) -> None:
        """A node or a client proves that it speaks with this very node."""
        if session.state in (State.PEER, State.DOWNSTREAM) or session.is_proved:
            self._sessions.strike(session, Refusal.INFO_NOT_ALLOWED, now)
        # Spec 7: AUTH covers both keys, both nonces and both roles, so it is good for this connection only.
        elif not authentication.is_proof(session, self._key, auth):
            self._sessions.close(session, Refusal.BAD_PEER_AUTH, now)
        elif session.hello is not None and session.hello.role is Role.NODE:
            self._on_peer(session, now)
        elif session.state is State.CLIENT:
            session.is_proved, session.proved_by = True, None
            if not self._routing.holds(session):
                self._register(session, now)

    def _on_peer(self, session: Session, now: Instant) -> None:
        """A node has proved itself, and unless there is another link to it this one stands."""
        assert session.identity is not None
        contact = session.contact
        session.is_unnamed = not self._mesh.is_named(session)
        refusal = self._mesh.no_room(session.identity, session.address, contact)
        if refusal is not None:
            self._sessions.close(session, refusal, now)
            return
        if contact is not None:
            if contact.expected_key not in (None, session.identity):
                self._mesh.forget(contact.url)
                self._sessions.close(session, Refusal.WRONG_PEER_KEY, now)
                return
            if not self._admits(session.identity):
                self._sessions.close(session, Refusal.IDENTITY_BANNED, now)
                return
            self._sessions.identify(session)
            self._outbox.reply(session, authentication.auth_frame(session, self._key_pair))
        self._routing.left(session, now)
        session.move(Move.PROOF)
        session.proved_by = None
        session.wants_notices = True
        # Spec 7: both ways as soon as both have said so, and ours has.
        session.gathers_notices = session.hello is not None and bool(session.hello.features & Feature.DELIVERIES)
        session.link = Traffic(now)
        if self._rate_limits and not self._is_unlimited(session.identity):
            session.give_allowances(self._limits.now, now)
        # Two links between two nodes: both sides close the same one.
        spare = self._mesh.stands(session, now)
        if spare is not None:
            self._sessions.close(spare, Refusal.DOUBLE_LINK, now)
        if spare is not session:
            self._mesh.claims(session, now)
            self._introduce(session)

    def _introduce(self, session: Session) -> None:
        """Send a new peer our limits, ask it for its servers, and send its address to the others."""
        self._sessions.say(session, RequestServers())
        self._sessions.say(session, Limits(self._settings.max_frame_bytes))
        entry = self._mesh.entry_of(session)
        for other in self._mesh.links.values():
            if entry is not None and other is not session:
                self._sessions.say(other, AddServer(entry.address))
