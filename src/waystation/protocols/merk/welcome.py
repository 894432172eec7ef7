"""From a bare connection to somebody known: clients, nodes of ours, and original relays on either side.

Who comes to us signs our challenge and is a client; a HELLO in the role of a node, and a proof over both nonces, make
it a peer. Whom we dialled challenges us and must then prove itself the same way, or turns out to be an original relay
by its silence. What anybody may have signed here is bounded: 32 bytes that cannot be read as typed content.

Spec: specs/merk.md 2, 5, 7, 10.1, 10.4; MERK-HANDSHAKE, MERK-ORIGINAL.
"""

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.limits import TokenBucket
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk import greeting, wire
from waystation.protocols.merk.mesh import ORIGINALS_MAX, Mesh
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
from waystation.protocols.merk.outbox import Outbox
from waystation.protocols.merk.refusals import MalformedError, Refusal
from waystation.protocols.merk.routing import Routing
from waystation.protocols.merk.session import (
    AUTH_DEADLINE_MS,
    DOOR_DEADLINE_MS,
    GREETING_MS,
    PEER_PROOF_MS,
    Move,
    Session,
    State,
    Traffic,
)
from waystation.protocols.merk.sessions import Sessions
from waystation.protocols.merk.settings import MerkSettings

__all__ = ["Welcome"]

CONNECTS_PER_SECOND: Final = 10  # of one address, specs/merk.md 8
CONNECTS_BURST: Final = 64
ADDRESSES_MAX: Final = 4_096
"""Addresses whose connects are counted."""


class Welcome:
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
        *,
        rate_limits: bool,
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
        self._rate_limits = rate_limits
        self._connects: OrderedDict[str, TokenBucket] = OrderedDict()

    # Comings

    def challenge(self, session: Session, now: Instant) -> None:
        """A connection stands: it gets its challenge."""
        self._sessions.enter(session, AUTH_DEADLINE_MS, now)
        if not self._may_connect(session.address, now):
            self._sessions.close(session, Refusal.CONNECT_RATE, now)
            return
        session.challenge = greeting.new_challenge(self._rng)
        self._outbox.reply(session, greeting.challenge_frame(session.challenge))

    def wait_at_door(self, session: Session, now: Instant) -> None:
        """A connection stands at the door for original relays: it speaks first."""
        self._sessions.enter(session, DOOR_DEADLINE_MS, now)
        if not self._may_connect(session.address, now):
            self._sessions.close(session, Refusal.CONNECT_RATE, now)

    def wait_for_challenge(self, session: Session, now: Instant) -> None:
        """A connection that we dialled stands: the other side speaks first."""
        self._sessions.enter(session, AUTH_DEADLINE_MS, now)

    def _may_connect(self, address: str, now: Instant) -> bool:
        if not self._rate_limits or not address:
            return True
        bucket = self._connects.pop(address, None)
        if bucket is None:
            if len(self._connects) >= ADDRESSES_MAX:
                self._connects.popitem(last=False)
            bucket = TokenBucket(CONNECTS_PER_SECOND, CONNECTS_BURST, now)
        self._connects[address] = bucket
        return bucket.take(now)

    # The handshake

    def receive(self, session: Session, kind: int, data: bytes, now: Instant) -> None:
        """Take a frame of a connection that nobody knows yet."""
        if session.state is State.GREETING:
            self._on_greeting(session, kind, data, now)
            return
        frame = wire.decode_frame(data)
        if session.state is State.CHALLENGED:
            if kind != MessageType.HANDSHAKE:
                self._sessions.close(session, Refusal.FRAME_BEFORE_AUTH, now)
            elif not greeting.is_answer(frame, session.challenge):
                self._sessions.close(session, Refusal.BAD_ANSWER, now)
            else:
                self._admit(session, PublicKey(frame.sender), now)
        elif session.state in (State.DIALLED, State.DOOR):
            if not greeting.is_challenge(frame):
                self._sessions.close(session, Refusal.HOSTILE_CHALLENGE, now)
                return
            self._outbox.reply(session, greeting.answer_frame(frame.payload, self._key_pair))
            session.move(Move.CHALLENGE)
            self._sessions.expect(session, AUTH_DEADLINE_MS, now)
        elif not greeting.is_confirmation(frame):
            self._sessions.close(session, Refusal.BAD_ANSWER, now)
        else:
            self._on_confirmed(session, PublicKey(frame.sender), now)

    def overdue(self, session: Session, now: Instant) -> None:
        """Look at a connection whose alarm rang."""
        if session.proved_by is not None and session.proved_by <= now:
            self._sessions.close(session, Refusal.BAD_PEER_AUTH, now)
        elif session.deadline is None:
            if session.proved_by is not None:
                self._sessions.alarms.set_by(session.peer, session.proved_by)
        elif session.deadline > now:
            self._sessions.alarms.set_by(session.peer, session.deadline)
        elif session.state is State.GREETING:
            session.move(Move.SILENCE)
            self._on_original(session, now)
        else:
            self._sessions.close(session, Refusal.AUTH_TIMEOUT, now)

    def _admit(self, session: Session, key: PublicKey, now: Instant) -> None:
        if not self._admits(key):
            self._sessions.close(session, Refusal.IDENTITY_BANNED, now)
            return
        session.identity = key
        session.challenge = b""
        session.move(Move.ANSWER)
        if self._rate_limits:
            session.give_allowances(now)
        self._sessions.identify(session)
        self._outbox.reply(session, greeting.confirm_frame(self._key))
        older = self._routing.came(session, now)
        if older is not None and older.proved_by is None:  # two dials of one node are settled once it has proved itself
            self._sessions.close(older, Refusal.REPLACED, now)

    def _on_confirmed(self, session: Session, key: PublicKey, now: Instant) -> None:
        if key == self._key:
            if session.contact is not None:
                self._mesh.is_ourselves(session.contact.url)
            self._sessions.close(session, Refusal.SELF_LINK, now)
            return
        if session.contact is not None and self._mesh.confirmed(session.contact.url, key):
            self._sessions.close(session, Refusal.DOUBLE_LINK, now)
            return
        session.identity = key
        session.move(Move.CONFIRM)
        if session.state is State.DOWNSTREAM:
            self._on_original(session, now)
            return
        self._outbox.reply(session, greeting.hello_frame(session, self._key, self._settings.public_url, self._rng))
        self._sessions.expect(session, GREETING_MS, now)

    def _on_original(self, session: Session, now: Instant) -> None:
        """A relay that knows nothing of our extensions stands beside us; its key is only its word."""
        contact = session.contact
        if contact is not None and contact.expected_key not in (None, session.identity):
            self._mesh.forget(contact.url)
            self._sessions.close(session, Refusal.WRONG_PEER_KEY, now)
        elif not (contact or self._settings.accept_peers):
            self._sessions.close(session, Refusal.PEERS_NOT_ACCEPTED, now)
        elif len(self._mesh.originals) >= ORIGINALS_MAX:
            self._sessions.close(session, Refusal.PEERS_FULL, now)
        else:
            self._mesh.originals[session] = None
            session.link = Traffic(now)
            if self._rate_limits:
                session.give_allowances(now)

    # Greetings

    def _on_greeting(self, session: Session, kind: int, data: bytes, now: Instant) -> None:
        """Take a frame of a node that we dialled and that has not proved itself; what is no greeting means nothing."""
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
        elif hello.key != session.identity:
            self._sessions.close(session, Refusal.BAD_PEER_AUTH, now)
        elif session.state is not State.CLIENT:
            session.hello = hello
        elif hello.role is Role.NODE and (refusal := self._mesh.no_room(hello.key, dialled=False)) is not None:
            self._sessions.close(session, refusal, now)
        else:
            session.hello = hello
            session.wants_notices = bool(hello.features & Feature.DELIVERY_NOTICES)
            ours = greeting.hello_frame(session, self._key, self._settings.public_url, self._rng)
            self._outbox.reply(session, ours)
            self._outbox.reply(session, greeting.auth_frame(session, self._key_pair))
            if hello.role is Role.NODE:
                session.proved_by = after_ms(now, PEER_PROOF_MS)
                self._sessions.alarms.set_by(session.peer, session.proved_by)

    def on_auth(self, session: Session, auth: Auth, now: Instant) -> None:
        """A node proves its key; a client may do so too, and nothing follows."""
        if session.state in (State.PEER, State.DOWNSTREAM):
            self._sessions.strike(session, Refusal.INFO_NOT_ALLOWED, now)
        elif not greeting.is_proof(session, self._key, auth):
            self._sessions.close(session, Refusal.BAD_PEER_AUTH, now)
        elif session.hello is not None and session.hello.role is Role.NODE:
            self._on_peer(session, now)

    def _on_peer(self, session: Session, now: Instant) -> None:
        """A node has proved itself, and unless there is another link to it this one stands."""
        assert session.identity is not None
        contact = session.contact
        refusal = self._mesh.no_room(session.identity, dialled=contact is not None)
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
            self._outbox.reply(session, greeting.auth_frame(session, self._key_pair))
        self._routing.left(session, now)
        session.move(Move.PROOF)
        session.proved_by = None
        session.wants_notices = True
        session.link = Traffic(now)
        if self._rate_limits:
            session.give_allowances(now)
        spare = self._mesh.stands(session, now)
        if spare is not None:
            self._sessions.close(spare, Refusal.DOUBLE_LINK, now)
        if spare is not session:
            self._introduce(session)

    def _introduce(self, session: Session) -> None:
        """Tell a new peer what we take, ask it for its servers, and tell the others where it is."""
        self._sessions.say(session, RequestServers())
        self._sessions.say(session, Limits(self._settings.max_frame_bytes))
        entry = self._mesh.entry_of(session)
        for other in self._mesh.links.values():
            if entry is not None and other is not session:
                self._sessions.say(other, AddServer(entry.address))
