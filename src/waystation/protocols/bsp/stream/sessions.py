"""The table of a device's sessions: how they open, replace each other, and close.

The stream machine calls it; effects such as ``Close`` come out. A peer has one connection, the newest. If both sides
dialled each other at once, the one dialled by the smaller key stays, so both sides close the same one. The number of
unauthenticated connections is limited; a new one closes the oldest.

Spec: bsp 5, 11.7; BSP-CROSSED.
"""

from typing import Final, NamedTuple

from waystation.core.alarms import Alarms
from waystation.core.effects import Close, Effect, Peer
from waystation.core.facts import PeerIdentified, PeerLeft, Refused
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.bsp.device.dials import Dials
from waystation.protocols.bsp.device.links import stream_terms
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.limits import BspLimits
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.session import Session, State

__all__ = ["PROTOCOL", "PeerDown", "PeerUp", "Sessions"]

PROTOCOL: Final = "bsp"
_FAULTLESS: Final = frozenset({Refusal.REPLACED, Refusal.HALF_CLOSED, Refusal.DRAINING})


class PeerUp(NamedTuple):
    """A peer is connected, or connected anew."""

    key: PublicKey
    kind: str
    """tls, wss or plain."""


class PeerDown(NamedTuple):
    """The last connection of a peer has ended, or a dial failed."""

    key: PublicKey
    reason: str
    """Value of a ``Refusal``, ``disconnected`` or ``unreachable``."""


class Sessions:
    """All sessions by connection number, and the open one of each peer."""

    def __init__(self, device: BspDevice, our_key: PublicKey, dials: Dials, limits: InForce[BspLimits]) -> None:
        """Start with none.

        Args:
            device: Gets a link for every open connection of a peer.
            our_key: Its identity.
            dials: Dials again when the last connection of a peer ends.
            limits: How many connections may be without a proof (BSP-UNPROVED).
        """
        self._device = device
        self._our_key = our_key
        self._dials = dials
        self._limits = limits
        self.effects: list[Effect] = []
        """Effects for the machine's next ``take``."""
        self.events: list[PeerUp | PeerDown] = []
        self.by_peer: dict[Peer, Session] = {}
        self.handshakes: dict[Session, None] = {}
        """Accepted connections that have proved no key, oldest first."""
        self.open: dict[PublicKey, Session] = {}
        """The newest of each peer."""
        self.ending: dict[Session, None] = {}
        """Sessions of which nothing more is read."""
        self.held: dict[Session, None] = {}
        """Sessions that are not read until the disk has caught up."""
        self.alarms = Alarms()

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self.by_peer)

    def enter(self, session: Session, now: Instant) -> None:
        """Add a new connection."""
        if session.state is State.ACCEPTING:
            for _ in range(surplus(len(self.handshakes) + 1, self._limits.now.handshakes)):
                # Spec 9: a bounded number of connections that have not proved a key; the oldest goes.
                self.close(next(iter(self.handshakes)), Refusal.BUSY, now)
            self.handshakes[session] = None
        self.by_peer[session.peer] = session
        self.watch(session)

    def watch(self, session: Session) -> None:
        """Set the alarm for a connection's next timeout."""
        at = session.next_look()
        if at is not None:
            self.alarms.set_by(session.peer, at)

    def establish(self, session: Session, now: Instant) -> bool:
        """Make a connection its peer's open one; False when it crossed a better one and is closed."""
        key = session.key
        assert key is not None
        session.opened_at = session.received_at = now
        self.handshakes.pop(session, None)
        older = self.open.get(key)
        # Spec 5: where both sides dialled at once, the one that the smaller key dialled stays.
        if older is not None and self._stays(older, session):
            self.close(session, Refusal.REPLACED, now)
            return False
        self.open[key] = session
        if older is not None:
            # Spec 5: a second connection of a peer replaces the first, on plain connections too (11.7).
            self.close(older, older.reason or Refusal.REPLACED, now)
        # Spec 11.7: a message leaves on the newer connection only.
        session.link = self._device.link_up(key, stream_terms(session.kind), now)
        self._dials.connected(key)
        self.effects.append(PeerIdentified(PROTOCOL, session.peer, key))
        self.events.append(PeerUp(key, session.kind))
        return True

    def finish(self, session: Session, reason: Refusal, saved_by: int, now: Instant) -> None:
        """Read nothing more of a connection; its last records are on disk with the commit ``saved_by``."""
        if reason not in _FAULTLESS:
            self._note(session.key, reason)
        session.finish(reason, now, saved_by)
        self.ending[session] = None
        self.watch(session)

    def reject(self, peer: Peer, reason: Refusal, key: PublicKey | None = None) -> None:
        """Close a connection that never became a session; ``key`` is the peer's, when known."""
        if reason not in _FAULTLESS:
            self._note(key, reason)
        self.effects += [Close(peer, reason), PeerLeft(PROTOCOL, peer, None, reason.value)]

    def close(self, session: Session, reason: Refusal, now: Instant) -> None:
        """Close a connection; unsent bytes are dropped, because the peer does not read, or reads another connection."""
        # A key that was claimed and not proved is not named in the journal.
        if reason not in _FAULTLESS and session.state is not State.ENDING:
            self._note(session.key if session.proved else None, reason)
        self.effects.append(Close(session.peer, reason, abort=not session.is_free))
        self.forget(session, reason.value, now)

    def forget(self, session: Session, reason: str, now: Instant) -> None:
        """Remove a connection that has ended."""
        session.state = State.CLOSED
        del self.by_peer[session.peer]
        # A session may be in several tables at once: ending and held, for example.
        for table in (self.handshakes, self.ending, self.held):
            table.pop(session, None)
        self.alarms.cancel(session.peer)
        # Only a connection that was open has a peer to name.
        was_linked = session.link >= 0
        self.effects.append(PeerLeft(PROTOCOL, session.peer, session.key if was_linked else None, reason))
        if was_linked:
            self._device.link_down(session.link, now)
        key = session.key
        if key is None:
            return
        if self.open.get(key) is session:
            del self.open[key]
            self.lost(key, reason, now, lasted_us=now - session.opened_at)
        elif session.dialled:
            self.lost(key, reason, now)

    def lost(self, key: PublicKey, reason: str, now: Instant, *, lasted_us: int | None = None) -> None:
        """Report that a connection of a peer ended after ``lasted_us``, or before it was one: it is dialled again."""
        if key in self.open:
            return
        if lasted_us is not None or self._dials.url_of(key) is not None:
            self.events.append(PeerDown(key, reason))
        self._dials.again(key, now, lasted_ms=(lasted_us or 0) // MICROSECONDS_PER_MS)

    def unreachable(self, key: PublicKey, now: Instant) -> None:
        """Report that a dial came to nothing: it is repeated soon."""
        if key in self.open:
            return
        if self._dials.url_of(key) is not None:
            self.events.append(PeerDown(key, "unreachable"))
        self._dials.unreachable(key, now)

    def _stays(self, older: Session, newer: Session) -> bool:
        """Return whether the older of two connections stays, when both sides dialled at once."""
        # BSP-CROSSED: of two in one direction, or one after the other, the newer stays.
        if older.dialled == newer.dialled or newer.came_at >= older.opened_at:
            return False
        assert newer.key is not None
        # BSP-CROSSED: both sides compare the same two keys and keep the same connection.
        return older.dialled is (self._our_key < newer.key)

    def _note(self, key: PublicKey | None, reason: Refusal) -> None:
        self.effects.append(Refused(PROTOCOL, key, reason.value))
