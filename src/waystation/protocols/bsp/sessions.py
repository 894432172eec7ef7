"""All connections of a device's machine: how they are entered, told apart, and ended.

A peer has one connection, the newest. Where both sides dialled each other at once, the one that the smaller key dialled
stays, so that both sides close the same one. Of connections that have not proved who they are there is a bounded
number, and the oldest makes room for the next.

Spec: bsp 5, 11.7; BSP-CROSSED.
"""

from typing import Final, NamedTuple

from waystation.core.alarms import Alarms
from waystation.core.effects import Close, Effect, Peer
from waystation.core.facts import PeerIdentified, PeerLeft, Refused
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.dials import Dials
from waystation.protocols.bsp.links import stream_terms
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.session import Session, State

__all__ = ["HANDSHAKES_MAX", "PROTOCOL", "PeerDown", "PeerUp", "Sessions"]

PROTOCOL: Final = "bsp"
HANDSHAKES_MAX: Final = 256
"""Connections that came to us and have not proved who they are (BSP-UNPROVED)."""
_FAULTLESS: Final = frozenset({Refusal.REPLACED, Refusal.HALF_CLOSED, Refusal.DRAINING})


class PeerUp(NamedTuple):
    """A peer is connected, or connected anew."""

    key: PublicKey
    kind: str
    """tls, wss or plain."""


class PeerDown(NamedTuple):
    """The connection of a peer is over and there is no other, or dialling it came to nothing."""

    key: PublicKey
    reason: str
    """Value of a ``Refusal``, ``disconnected`` or ``unreachable``."""


class Sessions:
    """Connections by number, and the one of each peer."""

    def __init__(self, device: BspDevice, our_key: PublicKey, dials: Dials) -> None:
        """Start with none.

        Args:
            device: Told of every connection that begins or ends for one of its peers.
            our_key: Its identity.
            dials: Told who is here and who is gone.
        """
        self._device = device
        self._our_key = our_key
        self._dials = dials
        self.effects: list[Effect] = []
        """Where everything leaves."""
        self.events: list[PeerUp | PeerDown] = []
        self.by_peer: dict[Peer, Session] = {}
        self.handshakes: dict[Session, None] = {}
        """Those that came to us and have proved nothing, oldest first."""
        self.open: dict[PublicKey, Session] = {}
        """The newest of each peer."""
        self.ending: dict[Session, None] = {}
        """Those of which nothing more is read."""
        self.held: dict[Session, None] = {}
        """Those that we have stopped reading for a while."""
        self.alarms = Alarms()

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self.by_peer)

    def enter(self, session: Session, now: Instant) -> None:
        """Enter a new connection."""
        if session.state is State.ACCEPTING:
            if len(self.handshakes) >= HANDSHAKES_MAX:
                self.close(next(iter(self.handshakes)), Refusal.BUSY, now)
            self.handshakes[session] = None
        self.by_peer[session.peer] = session
        self.watch(session)

    def watch(self, session: Session) -> None:
        """Make sure that a connection is looked at in time."""
        at = session.next_look()
        if at is not None:
            self.alarms.set_by(session.peer, at)

    def stand(self, session: Session, now: Instant) -> bool:
        """Make a connection the peer's, which is who it says; False when it crossed a better one and is closed."""
        key = session.key
        assert key is not None
        session.opened_at = session.heard_at = now
        self.handshakes.pop(session, None)
        older = self.open.get(key)
        if older is not None and self._stays(older, session):
            self.close(session, Refusal.REPLACED, now)
            return False
        self.open[key] = session
        if older is not None:
            self.close(older, older.reason or Refusal.REPLACED, now)
        session.link = self._device.link_up(key, stream_terms(session.kind), now)
        self._dials.connected(key)
        self.effects.append(PeerIdentified(PROTOCOL, session.peer, key))
        self.events.append(PeerUp(key, session.kind))
        return True

    def finish(self, session: Session, reason: Refusal, saved_by: int, now: Instant) -> None:
        """Read nothing more of a connection; its last words are on disk with the commit ``saved_by``."""
        if reason not in _FAULTLESS:
            self._note(session.key, reason)
        session.finish(reason, now, saved_by)
        self.ending[session] = None
        self.watch(session)

    def turn_away(self, peer: Peer, reason: Refusal, key: PublicKey | None = None) -> None:
        """Close a connection that never became a session; ``key`` is who it would have been."""
        if reason not in _FAULTLESS:
            self._note(key, reason)
        self.effects += [Close(peer, reason), PeerLeft(PROTOCOL, peer, None, reason.value)]

    def close(self, session: Session, reason: Refusal, now: Instant) -> None:
        """End a connection; what waits for it is dropped, because it does not read, or reads another one."""
        if reason not in _FAULTLESS and session.state is not State.ENDING:
            self._note(session.key if session.proved else None, reason)
        self.effects.append(Close(session.peer, reason, abort=not session.is_free))
        self.forget(session, reason.value, now)

    def forget(self, session: Session, reason: str, now: Instant) -> None:
        """A connection is over."""
        session.state = State.CLOSED
        del self.by_peer[session.peer]
        for table in (self.handshakes, self.ending, self.held):
            table.pop(session, None)
        self.alarms.cancel(session.peer)
        was_told_of = session.link >= 0
        self.effects.append(PeerLeft(PROTOCOL, session.peer, session.key if was_told_of else None, reason))
        if was_told_of:
            self._device.link_down(session.link, now)
        key = session.key
        if key is None:
            return
        if self.open.get(key) is session:
            del self.open[key]
            self.lost(key, reason, now, stood_us=now - session.opened_at)
        elif session.dialled:
            self.lost(key, reason, now)

    def lost(self, key: PublicKey, reason: str, now: Instant, *, stood_us: int | None = None) -> None:
        """A connection of a peer is over after ``stood_us``, or a dial came to nothing: it may be dialled again."""
        if key in self.open:
            return
        if stood_us is not None or self._dials.url_of(key) is not None:
            self.events.append(PeerDown(key, reason))
        self._dials.again(key, now, stood_ms=(stood_us or 0) // MICROSECONDS_PER_MS)

    def _stays(self, older: Session, newer: Session) -> bool:
        """Return whether the older of two connections stays: both sides dialled at once, and must choose alike."""
        if older.dialled == newer.dialled or newer.came_at >= older.opened_at:
            return False
        assert newer.key is not None
        return older.dialled is (self._our_key < newer.key)

    def _note(self, key: PublicKey | None, reason: Refusal) -> None:
        self.effects.append(Refused(PROTOCOL, key, reason.value))
