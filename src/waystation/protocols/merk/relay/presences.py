"""Judges the signed presences by which clients say where they are, and ties the relay's time to the wall clock.

``known_frames`` passes in what a client says of itself, ``routing`` what another node shows as the proof of "found".
A presence names one client, one node and its times, so a node can neither make one up nor use another node's. The
signature is checked last.

Spec: specs/merk.md 5, 7; MERK-PRESENCE.
"""

from typing import Final

from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import Presence, PresenceKind

__all__ = ["WallClock", "is_presence_current", "is_proof_of_presence"]

AHEAD_MS_MAX: Final = 60_000  # spec 7: how far the issuer's clock may be ahead of ours
CONNECTED_MS_MAX: Final = 600_000  # spec 7: ten minutes
MAILBOX_MS_MAX: Final = 2_592_000_000  # spec 7: thirty days
_LONGEST_MS: Final = {PresenceKind.CONNECTED: CONNECTED_MS_MAX, PresenceKind.MAILBOX: MAILBOX_MS_MAX}


class WallClock:
    """The wall clock, as an offset of the monotonic one that all parts of a relay share."""

    __slots__ = ("offset_us",)

    def __init__(self) -> None:
        """Start at the epoch, until the relay is given the time."""
        self.offset_us = 0

    def ms(self, now: Instant) -> int:
        """Return Unix milliseconds."""
        return (now + self.offset_us) // MICROSECONDS_PER_MS


def is_presence_current(presence: Presence, wall_ms: int) -> bool:
    """Return whether its times allow a presence now: issued already, not over, and not for longer than its kind may."""
    issued_ms, until_ms = presence.issued_ms, presence.until_ms
    return issued_ms <= wall_ms + AHEAD_MS_MAX and wall_ms < until_ms <= issued_ms + _LONGEST_MS[presence.kind]


def is_proof_of_presence(presence: Presence, client: bytes, node: bytes, wall_ms: int) -> bool:
    """Return whether ``presence`` proves, now, that ``client`` is connected to ``node`` or has its mail there."""
    named = presence.client == client and presence.node == node
    # The dearest check comes last.
    return named and is_presence_current(presence, wall_ms) and wire.is_presence_valid(presence)
