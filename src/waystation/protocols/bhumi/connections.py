"""The connections of one relay: which stand, which identity is bound to which, and how each ends.

Every part of the relay that takes frames works on this one table, and all of them write to one outbox, so that effects
keep the order in which they were decided. Whoever keeps something of a connection adds a call to ``on_end``.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from waystation.core.alarms import Alarms
from waystation.core.effects import Close, Effect, Peer, Send
from waystation.core.facts import PeerLeft, Refused
from waystation.core.instant import Instant
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.session import Session

__all__ = ["PROTOCOL", "Connections"]

PROTOCOL: Final = "bhumi"
_UNCOUNTED: Final = (Refusal.SHUTDOWN, Refusal.DOUBLE_LINK, Refusal.OWN_KEY)
"""Ends that are nobody's fault."""


class Connections:
    """All sessions of one relay. Cost: every operation O(1), O(what hangs on it) for an end."""

    def __init__(self) -> None:
        """Begin without any."""
        self.outbox: list[Effect] = []
        """What the server is asked to do, in order; parts add to this very list."""
        self.sessions: dict[Peer, Session] = {}
        self.bindings: dict[bytes, Session] = {}
        """By identity: the connection that gets its deliveries."""
        self.runnable: deque[Session] = deque()
        """Connections whose reason to wait may have ended."""
        self.alarms = Alarms()
        self.on_end: list[Callable[[Session, Instant], None]] = []
        """Called with a connection that is over, before anybody is told."""

    def reply(self, session: Session, frame: bytes) -> None:
        """Answer a frame; a peer that reads none of its answers is not read for long."""
        session.unread_replies += 1
        self.outbox.append(Send(session.peer, frame))

    def note_refused(self, session: Session, refusal: Refusal, times: int = 1) -> None:
        """Count what was turned down."""
        self.outbox.append(Refused(PROTOCOL, session.identity, refusal.value, times))

    def arm(self, session: Session) -> None:
        """Make sure that the relay looks at a connection when its next timer runs out."""
        self.alarms.set_by(session.peer, session.deadline())

    def close(self, session: Session, refusal: Refusal, now: Instant) -> None:
        """Close a connection for a reason. Nobody else notices, except those who waited for this recipient."""
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
        if identity is not None and self.bindings.get(identity) is session:
            del self.bindings[identity]
        for told in self.on_end:
            told(session, now)
        self.outbox.append(PeerLeft(PROTOCOL, session.peer, identity, reason))
