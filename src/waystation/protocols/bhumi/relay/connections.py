"""The table of one relay's connections and bound identities, and the one outbox of the relay.

All parts of the relay share this table. They write effects to the same outbox, so effects keep the order in which they
were decided. A part that stores state per connection registers a callback in ``on_end`` to release it.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from waystation.core.alarms import Alarms
from waystation.core.effects import Close, Effect, Peer, Send
from waystation.core.facts import PeerLeft, Refused
from waystation.core.instant import Instant
from waystation.core.networks import network_of
from waystation.core.settings import InForce
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.session import Session

__all__ = ["PROTOCOL", "Connections"]

PROTOCOL: Final = "bhumi"
_UNCOUNTED: Final = (Refusal.SHUTDOWN, Refusal.DOUBLE_LINK, Refusal.OWN_KEY)
"""Ends that are nobody's fault."""
_OF_NETWORKS: Final = (Refusal.WHERE_FLOOD, Refusal.ACK_STRIKES, Refusal.RECORD_STRIKES, Refusal.BINDING_MISSING)
"""Limits at which an anonymous connection is named by its network; none of them is met by sending (NODE-NAMED)."""


class Connections:
    """All sessions of one relay. Cost: every operation O(1), O(what hangs on it) for an end."""

    def __init__(self, limits: InForce[BhumiLimits]) -> None:
        """Begin without any; ``limits`` hold for all parts of the relay."""
        self.limits = limits
        self.outbox: list[Effect] = []
        """What the server is asked to do, in order; parts add to this very list."""
        self.sessions: dict[Peer, Session] = {}
        self.bindings: dict[bytes, Session] = {}
        """By identity: the connection that gets its deliveries."""
        self.runnable: deque[Session] = deque()
        """Connections whose reason to wait may have ended."""
        self.alarms = Alarms()
        self.on_end: list[Callable[[Session, Instant], None]] = []
        """Called with a connection that is over, before its end is reported."""

    def reply(self, session: Session, frame: bytes) -> None:
        """Answer a frame; a peer that reads none of its answers is not read for long."""
        session.unread_replies += 1
        self.outbox.append(Send(session.peer, frame))

    def note_refused(self, session: Session, refusal: Refusal, times: int = 1) -> None:
        """Count what was turned down."""
        network = None
        if session.identity is None and refusal in _OF_NETWORKS:
            network = network_of(session.host).encode() or None
        self.outbox.append(Refused(PROTOCOL, session.identity, refusal.value, times, network))

    def arm(self, session: Session) -> None:
        """Make sure that the relay looks at a connection when its next timer runs out."""
        self.alarms.set_by(session.peer, session.deadline())

    def close(self, session: Session, refusal: Refusal, now: Instant) -> None:
        """Close a connection for a reason. Nobody else notices, except those who waited for this recipient."""
        # Ends by our own doing are no fault of the peer, and count nothing.
        if refusal not in _UNCOUNTED:
            self.note_refused(session, refusal)
        self.forget(session, refusal.value, now)
        self.outbox.append(Close(session.peer, refusal, abort=refusal is Refusal.WRITE_TIMEOUT))

    def forget(self, session: Session, reason: str, now: Instant) -> None:
        """Drop all that hangs on a connection."""
        session.close()
        del self.sessions[session.peer]
        self.alarms.cancel(session.peer)
        identity = session.identity
        # BHUMI-A7: the end of a replaced connection must not remove the binding of the new one.
        if identity is not None and self.bindings.get(identity) is session:
            del self.bindings[identity]
        for on_end in self.on_end:
            on_end(session, now)
        self.outbox.append(PeerLeft(PROTOCOL, session.peer, identity, reason))
