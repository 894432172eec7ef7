"""Which request of a connection its allowances pay for.

The relay asks before it acts on a message; ``delivery`` asks for readers that search. ``limits`` has the buckets, a
session says who pays: its identity, and the address that it comes from.

Spec: RFC-0004 6.1; specs/strata.md 14; decisions STRATA-ROOM, STRATA-FRAMES, STRATA-SEARCH.
"""

from typing import Final

from waystation.core.instant import Instant
from waystation.protocols.strata.messages import Publish
from waystation.protocols.strata.packet import type_of
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.relay.authors import KEY_EVENT_TYPES
from waystation.protocols.strata.relay.limits import Kind, Limits
from waystation.protocols.strata.session import PUBLISH, Session

__all__ = ["FRAME_BYTES_LEAST", "READ_UNPAID_BYTES_MAX", "Allowances"]

READ_UNPAID_BYTES_MAX: Final = 4_096
"""A longer frame is not even parsed once the allowance of bytes is spent."""
FRAME_BYTES_LEAST: Final = 4_096
"""Bytes that an UNSUBSCRIBE, or a frame that is no message, costs at least; it takes 16 µs to read."""
SLOW_CHARGE: Final = 32  # how much more a byte costs us in a packet with fractions: a second per MiB


class Allowances:
    """The allowances of all connections of one relay."""

    def __init__(self, limits: Limits) -> None:
        """Take from these buckets."""
        self._limits = limits

    def why_no_bytes(self, session: Session, count: int, now: Instant) -> Refusal | None:
        """Spend the bytes of a frame that came, or return the refusal."""
        return self._limits.take_of_all(session.payers, Kind.BYTES, now, count)

    def why_no_frame(self, session: Session, count: int, now: Instant) -> Refusal | None:
        """Spend what a frame without an allowance of its own costs beyond its bytes (STRATA-FRAMES), or return why not.

        Args:
            session: Who sent it.
            count: Its bytes, which are spent already.
            now: Monotonic time.
        """
        return self.why_no_bytes(session, max(0, FRAME_BYTES_LEAST - count), now)

    def why_not(self, session: Session, capability: str, kind: Kind, now: Instant) -> Refusal | None:
        """Spend one request of a kind that needs a capability, or return the refusal."""
        if capability not in session.capabilities:
            return Refusal(Code.UNAUTHENTICATED, "missing_capability")
        return self._limits.take(session.scope, kind, now) if session.limited else None

    def why_no_publish(self, session: Session, message: Publish, now: Instant) -> Refusal | None:
        """Spend one packet, and one key event where it is one, or return the refusal."""
        refusal = self.why_not(session, PUBLISH, Kind.PUBLISH, now)
        if refusal is None and type_of(message.packet) in KEY_EVENT_TYPES:
            # STRATA-ROOM: they are never dropped, and identities cost nothing: the address pays as well.
            refusal = self._limits.take_of_all(session.payers, Kind.KEY_EVENTS, now)
        return refusal

    def charge_slow(self, session: Session, count: int, now: Instant) -> None:
        """Spend more for a packet of so many bytes whose canonical form was slow to write."""
        self._limits.charge_bytes(session.payers, now, SLOW_CHARGE * count)

    def search_wait_s(self, session: Session, now: Instant) -> int:
        """Spend one search and return 0, or return in how many seconds to ask again (STRATA-SEARCH)."""
        return self._limits.wait_s(session.payers, Kind.SEARCHES, now)
