"""The table of the relay's connections: it opens, identifies, penalises and closes them.

The relay, ``handshake`` and ``key_frames`` use it. Frames that no honest connection sends are counted as strikes;
``MerkLimits.strikes`` of them close the connection.

Spec: specs/merk.md 8, 10.4, 10.8; MERK-STRIKES.
"""

from collections.abc import Callable

from waystation.core.alarms import Alarms
from waystation.core.effects import Peer
from waystation.core.facts import PeerIdentified, PeerLeft, Refused
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.networks import network_of
from waystation.core.settings import InForce
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import Info
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.delivery import PROTOCOL
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.session import ORIGINALS, PEER_PROOF_MS, Session, State

__all__ = ["Sessions"]


class Sessions:
    """Connections by number."""

    def __init__(self, outbox: Outbox, node_key: bytes, limits: InForce[MerkLimits], *, strikes_count: bool) -> None:
        """Start with none.

        Args:
            outbox: Where everything leaves.
            node_key: Sender of what we say.
            limits: How many broken rules close a connection.
            strikes_count: Whether broken rules close a connection.
        """
        self._outbox = outbox
        self._node_key = node_key
        self._limits = limits
        self._strikes_count = strikes_count
        self.by_peer: dict[Peer, Session] = {}
        self.alarms = Alarms()
        self.on_end: list[Callable[[Session, State, Instant], None]] = []
        """Called with every connection that is over, and with the state that it was in."""
        self.on_close: list[Callable[[Session], None]] = []
        """Called with a connection that we are about to close, and can still write to."""

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self.by_peer)

    def enter(self, session: Session, limit_ms: int, now: Instant) -> None:
        """Enter a new connection, which must leave its first state within ``limit_ms``."""
        self.by_peer[session.peer] = session
        self.expect(session, limit_ms, now)

    def expect(self, session: Session, limit_ms: int, now: Instant) -> None:
        """Set a deadline for the present state."""
        session.deadline = after_ms(now, limit_ms)
        self.alarms.set_by(session.peer, session.deadline)

    def demand_proof(self, session: Session, now: Instant) -> None:
        """Let a connection prove itself by AUTH in time; 4401 otherwise."""
        session.proved_by = after_ms(now, PEER_PROOF_MS)
        self.alarms.set_by(session.peer, session.proved_by)

    def identify(self, session: Session) -> None:
        """Record that a connection has proved its key."""
        assert session.identity is not None
        session.identified = True
        self._outbox.add(PeerIdentified(PROTOCOL, session.peer, session.identity))

    def say(self, session: Session, info: Info) -> None:
        """Send what a NODE_INFO frame says."""
        self._outbox.reply(session, wire.encode_info_frame(info, self._node_key))

    def note(self, session: Session, refusal: Refusal, times: int = 1, *, named: bool = True) -> None:
        """Count something that was turned down; ``named`` is whether whoever is connected is answerable for it."""
        identity, network = self._proved(session) if named else None, None
        if named and identity is None and refusal is Refusal.CONNECT_RATE:
            # NODE-NAMED: whoever connects too often has proved no key; the limit is one of addresses.
            network = network_of(session.address).encode() or None
        self._outbox.add(Refused(PROTOCOL, identity, refusal.value, times, network))

    def strike(self, session: Session, refusal: Refusal, now: Instant) -> None:
        """Turn something down that no honest connection does; too much of it ends the connection."""
        self.note(session, refusal)
        session.strikes += 1
        if self._strikes_count and session.strikes >= self._limits.now.strikes and session.state is not State.CLOSED:
            self.close(session, Refusal.STRIKES, now)

    def is_peer(self, session: Session, now: Instant, refusal: Refusal = Refusal.INFO_NOT_ALLOWED) -> bool:
        """Return whether a frame comes from a proven peer; any other connection gets a strike."""
        if session.state is State.PEER:
            return True
        if session.state in ORIGINALS:
            self.note(session, refusal)  # specs/merk.md 5: what it says about servers is not believed
        else:
            self.strike(session, refusal, now)
        return False

    def close(self, session: Session, refusal: Refusal, now: Instant) -> None:
        """End a connection."""
        if session.state is State.CLOSED:
            return
        if refusal not in (Refusal.SHUTDOWN, Refusal.REPLACED, Refusal.DOUBLE_LINK):
            self.note(session, refusal)
        for on_close in self.on_close:
            on_close(session)
        self._outbox.close(session, refusal)
        self.forget(session, refusal.value, now)

    def forget(self, session: Session, reason: str, now: Instant) -> None:
        """A connection is over."""
        session.held = False
        self._outbox.on_drained(session)
        was, session.state = session.state, State.CLOSED  # nothing may be sent behind the end
        for on_end in self.on_end:
            on_end(session, was, now)
        self.alarms.cancel(session.peer)
        del self.by_peer[session.peer]
        self._outbox.add(PeerLeft(PROTOCOL, session.peer, self._proved(session), reason))

    def _proved(self, session: Session) -> PublicKey | None:
        return session.identity if session.identified else None
