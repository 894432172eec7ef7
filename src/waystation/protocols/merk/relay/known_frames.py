"""Takes the frames of identified connections and passes each to the part of the relay that it concerns.

The relay's machine calls it with every frame of a client, a node or an original relay. Content goes to ``routing``;
what NODE_INFO frames say goes to ``handshake``, ``mesh``, ``routing`` and ``key_frames``. What no honest connection
sends is a strike.

Spec: specs/merk.md 3 to 7, 9, 10.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from waystation.core.instant import Instant
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import (
    HEADER_BYTES,
    AddServer,
    Auth,
    ClientAbsent,
    ClientFound,
    Deliveries,
    Delivery,
    DeliveryCode,
    Forward,
    ForwardRun,
    Gone,
    Hello,
    InfoType,
    KeyAdvert,
    KeyQuery,
    KeyUnknown,
    Limits,
    MailClose,
    MailFetch,
    MailOpen,
    MailState,
    MailTaken,
    MessageType,
    Presence,
    PresenceKind,
    QueryClient,
    RequestServers,
    Servers,
)
from waystation.protocols.merk.refusals import MalformedError, Refusal
from waystation.protocols.merk.relay.handshake import Handshakes
from waystation.protocols.merk.relay.key_frames import KeyFrames
from waystation.protocols.merk.relay.mailing import Mailing
from waystation.protocols.merk.relay.mesh import Mesh
from waystation.protocols.merk.relay.notices import Notices
from waystation.protocols.merk.relay.presences import WallClock, is_presence_current
from waystation.protocols.merk.relay.routing import CARRIED, Routing
from waystation.protocols.merk.relay.sessions import Sessions
from waystation.protocols.merk.session import NODES, Session, State
from waystation.protocols.merk.settings import MerkSettings

__all__ = ["KnownFrames"]

_SUBTYPE: Final = slice(HEADER_BYTES, HEADER_BYTES + 1)
_FORWARDS: Final = bytes((InfoType.FORWARDS,))


class KnownFrames:
    """Frames of clients, nodes and original relays."""

    def __init__(
        self,
        settings: MerkSettings,
        sessions: Sessions,
        mesh: Mesh,
        routing: Routing,
        handshakes: Handshakes,
        key_frames: KeyFrames,
        clock: WallClock,
        mailing: Mailing,
        notices: Notices,
    ) -> None:
        """Bind the parts of one relay; see ``machine.MerkRelay``."""
        self._settings = settings
        self._sessions = sessions
        self._mesh = mesh
        self._routing = routing
        self._clock = clock
        self._handshakes = handshakes
        self._mailing = mailing
        self.is_retiring = False
        """Whether no new work is taken."""
        self._on_info: Mapping[type, Callable[[Session, Any, Instant], None]] = {
            RequestServers: self._on_request_servers,
            Servers: self._on_servers,
            AddServer: self._on_add_server,
            QueryClient: self._on_query_client,
            ClientFound: self._on_client_found,
            ClientAbsent: self._on_client_absent,
            Hello: handshakes.on_hello,
            Auth: self._on_auth,
            Delivery: notices.on_delivery,
            Deliveries: notices.on_deliveries,
            Forward: self._on_forward,
            ForwardRun: self._on_forwards,
            KeyAdvert: key_frames.on_advert,
            KeyQuery: key_frames.on_query,
            KeyUnknown: key_frames.on_unknown,
            Gone: self._on_gone,
            Limits: self._on_limits,
            Presence: self._on_presence,
            MailOpen: mailing.on_open,
            MailClose: mailing.on_close,
            MailTaken: mailing.on_taken,
            MailFetch: mailing.on_fetch,
            MailState: mailing.on_state,
        }

    def of_client(self, session: Session, kind: int, sender: bytes, data: bytes, now: Instant) -> None:
        """Take a frame of an authenticated client."""
        size = len(data)
        # Spec 10.5: the limit counts the whole message; close code 1009.
        if size > self._settings.max_frame_bytes:
            self._sessions.close(session, Refusal.TOO_BIG, now)
        elif kind == MessageType.HANDSHAKE:
            self._sessions.close(session, Refusal.MISPLACED_HANDSHAKE, now)
        # Spec 9: the sender must be the key that this connection proved.
        elif sender != session.identity:
            self._sessions.strike(session, Refusal.FORGED_SENDER, now)
        elif kind in CARRIED:
            # Spec 3: the first 32 bytes of the payload of types 2, 4 and 5.
            target = wire.target_of(data)
            if target is None:
                self._sessions.strike(session, Refusal.NO_TARGET, now)
            elif not session.affords(size, now):
                self._sessions.note(session, Refusal.RATE)
                # Spec 6: beyond the rate a frame is refused with code 5; the connection stays.
                self._routing.delivery.refuse(session, DeliveryCode.RATE, target, data, now)
            # MERK-PROVED: who has not got the key of its frames sends none; it may send them again once it has.
            elif not self._routing.holds(session):
                self._sessions.note(session, Refusal.UNPROVED)
                self._routing.delivery.refuse(session, DeliveryCode.QUEUE_FULL, target, data, now)
            else:
                self._routing.route(session, target, data, now, may_ask=not self.is_retiring)
        elif not session.affords(size, now):
            self._sessions.note(session, Refusal.RATE)
        else:
            self._on_node_info(session, kind, data, now)

    def of_node(self, session: Session, kind: int, data: bytes, now: Instant) -> None:
        """Take a frame of another node; an original may confirm and challenge as often as it likes."""
        link = session.link
        assert link is not None
        # MERK-RUNS: its frames are counted, not the message.
        if session.gathers_notices and kind == MessageType.NODE_INFO and data[_SUBTYPE] == _FORWARDS:
            self._on_node_info(session, kind, data, now)
        elif not session.affords(len(data), now):
            # Spec 6: the rate is of its clients' frames, so the node itself gets no strike.
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
        # Spec 4: unknown subtypes and an empty payload were decoded as None and are ignored.
        if info is not None:
            self._on_info[type(info)](session, info, now)

    def _on_auth(self, session: Session, auth: Auth, now: Instant) -> None:
        was_proved = session.is_proved
        self._handshakes.on_auth(session, auth, now)
        if session.is_proved and not was_proved and session.state is State.CLIENT:
            self._mailing.proved(session, now)

    def _on_request_servers(self, session: Session, _info: RequestServers, _now: Instant) -> None:
        # Spec 4: answered to every connection that has proved a key.
        self._sessions.say(session, Servers(self._mesh.servers(for_clients=session.state is State.CLIENT)))

    def _on_servers(self, session: Session, servers: Servers, now: Instant) -> None:
        if self._sessions.is_peer(session, now):
            # Spec 5 and 8: believed from proven peers only, and dialled under the guards for learnt addresses.
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
        """Answer a node whether a client is here; clients would learn who is present."""
        if session.state in NODES:
            # Spec 4: QUERY_CLIENT is answered to nodes only; a client would learn who is present.
            self._routing.asked(session, info.key, now, may_ask=not self.is_retiring)
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

    def _on_forward(self, session: Session, forward: Forward, now: Instant) -> None:
        if self._sessions.is_peer(session, now):
            assert session.link is not None
            session.link.frames_in += 1
            session.link.bytes_in += len(forward.frame)
            self._routing.arrived(session, forward, now)

    def _on_forwards(self, session: Session, run: ForwardRun, now: Instant) -> None:
        if not self._sessions.is_peer(session, now):
            return
        # Spec 7: between nodes that have both said the feature.
        if not session.gathers_notices:
            self._sessions.strike(session, Refusal.INFO_NOT_ALLOWED, now)
            return
        for message_id, frame in run.frames:
            # A lie may have closed the connection.
            if session.state is State.PEER:
                self._routing.arrived_in_run(session, Forward(run.hop, message_id, run.origin, frame), now)

    def _on_gone(self, session: Session, gone: Gone, now: Instant) -> None:
        if self._sessions.is_peer(session, now):
            # Spec 7: GONE ends a location that this very node has given.
            self._routing.lookups.moved(gone.key, session)

    def _on_limits(self, session: Session, limits: Limits, now: Instant) -> None:
        """Note what a peer takes: a larger frame would cost us the link."""
        if self._sessions.is_peer(session, now):
            # Spec 7: LIMITS; a larger frame is refused here with code 4 and never sent.
            session.frame_bytes_max = limits.frame_bytes_max

    def _on_presence(self, session: Session, presence: Presence, now: Instant) -> None:
        """Keep what a client signs about its being here; take what a node shows about a client that we look for."""
        if session.state is State.CLIENT:
            if not session.is_proved:
                self._sessions.strike(session, Refusal.INFO_NOT_ALLOWED, now)
                return
            # Spec 7: the session's key, this node, now; a mailbox is opened by MAIL.
            is_here = presence.client == session.identity and presence.node == self._routing.node_key
            is_connected = presence.kind is PresenceKind.CONNECTED
            if not (is_here and is_connected and is_presence_current(presence, self._clock.ms(now))):
                self._sessions.strike(session, Refusal.BAD_PRESENCE, now)
            elif session.presence is not None and presence.issued_ms <= session.presence.issued_ms:
                return  # it says nothing new, and costs no signature check
            elif not wire.is_presence_valid(presence):
                self._sessions.strike(session, Refusal.BAD_PRESENCE, now)
            else:
                session.presence = presence
        elif self._sessions.is_peer(session, now):
            self._routing.present(session, presence, now)
