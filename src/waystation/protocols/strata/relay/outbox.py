"""The outbox of a relay: its effects in order, with a limit on the unconfirmed bytes of each connection.

The relay and ``delivery`` send through it. Sent bytes are unconfirmed until the server reports that they have left its
buffers. History waits for that after each page. Live packets may exceed it by ``ahead_bytes``; beyond that the reader
counts as slow. Replies are never dropped: the relay stops reading from a client that does not read them.

Spec: specs/strata.md 13.3, 14; decision STRATA-CREDIT.
"""

from collections.abc import Sequence
from typing import Final

from waystation.core.effects import Close, Effect, Hold, make_send
from waystation.core.instant import Instant
from waystation.core.settings import InForce
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.refusals import End
from waystation.protocols.strata.session import Move, Session

__all__ = ["Outbox"]

RECEIPT_BYTES: Final = 262_144  # ask for a receipt when this much is unconfirmed


class Outbox:
    """Gathers effects in their order."""

    def __init__(self, limits: InForce[StrataLimits]) -> None:
        """Start empty."""
        self._limits = limits
        self._effects: list[Effect] = []
        self.congested: dict[Session, None] = {}
        """Connections whose bytes wait, the one that has taken nothing for longest first."""

    def add(self, effect: Effect) -> None:
        """Append an effect."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """Return and forget everything gathered."""
        effects, self._effects = self._effects, []
        return effects

    def send(self, session: Session, data: bytes) -> None:
        """Send one message, with a receipt when enough is unconfirmed."""
        session.unconfirmed_bytes += len(data)
        # One receipt at a time: it covers everything that was sent before it.
        receipt = session.unconfirmed_bytes >= RECEIPT_BYTES and not session.awaits_receipt
        if receipt:
            session.awaits_receipt = True
        self._effects.append(make_send((session.peer, data, receipt)))

    def send_page(self, session: Session, messages: Sequence[bytes]) -> None:
        """Send the messages of a page, 1 or more, with a receipt on the last."""
        assert not session.awaits_receipt
        session.awaits_receipt = True
        session.unconfirmed_bytes += sum(map(len, messages))
        peer = session.peer
        self._effects += [make_send((peer, message, False)) for message in messages[:-1]]
        self._effects.append(make_send((peer, messages[-1], True)))

    def reply(self, session: Session, data: bytes) -> None:
        """Send an answer; a client that does not read answers is not read."""
        if session.congested:
            session.unread_replies += 1
            self.hold(session)
        self.send(session, data)

    def takes_live(self, session: Session) -> bool:
        """Return whether a live packet may be sent now instead of being read from the store later."""
        # Spec 13.3: nothing queues up: beyond this the reader falls back to reading the store.
        return not session.congested and session.unconfirmed_bytes < self._limits.now.ahead_bytes

    def takes_page(self, session: Session) -> bool:
        """Return whether a page of history may be sent now."""
        return not session.congested and not session.awaits_receipt

    def on_congested(self, session: Session, now: Instant) -> None:
        """Note that bytes wait, or that fewer wait than before."""
        session.congested = True
        session.progress_at = now
        # Moved to the end: the first one has taken nothing for longest, and its deadline is the relay's (spec 13.3).
        self.congested.pop(session, None)
        self.congested[session] = None

    def on_drained(self, session: Session) -> None:
        """Note that nothing waits any more."""
        session.congested = False
        session.awaits_receipt = False
        session.unconfirmed_bytes = 0
        session.unread_replies = 0
        self.congested.pop(session, None)
        self.resume(session)

    def hold(self, session: Session) -> None:
        """Stop reading a connection that has too much under way."""
        # Spec 14: at most 512 packets or 8 MiB of a connection are checked at a time; then its socket is not read.
        if not session.held and session.must_hold():
            session.held = True
            self._effects.append(Hold(session.peer, held=True))

    def resume(self, session: Session) -> None:
        """Read a held connection again once it has little under way."""
        if session.held and session.may_resume():
            session.held = False
            self._effects.append(Hold(session.peer, held=False))

    def close(self, session: Session, end: End) -> None:
        """End a connection; the relay must forget the session."""
        session.move(Move.CLOSE)
        self.congested.pop(session, None)
        self._effects.append(Close(session.peer, end, status=end.status))
