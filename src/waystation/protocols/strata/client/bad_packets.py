"""Remembers the bad packets of one relay, so that each is blamed once and none stops its reader for ever (STRATA-BAD).

The client machine asks for each packet that fails its checks. A relay whose disk is damaged serves the same bad bytes
to everybody who reads that stretch. Its reader leaves once, reads on behind the packet, and drops the next ones where
they come.
"""

from typing import Final

from waystation.crypto.hashing import blake2b_256
from waystation.protocols.strata.client.seen_packets import SeenPackets

__all__ = ["BAD_PACKETS_MAX", "BadPackets"]

BAD_PACKETS_MAX: Final = 20
"""Ours: new ones on one connection that the relay may send after it was left for the first; as many as bad frames."""

_ALL: Final = 0  # whatever subscription they came for


class BadPackets:
    """The bad packets that one relay has sent, the last ``SEEN_MAX`` of them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._seen = SeenPackets()
        self._count = 0
        self._has_left = False

    def begin(self) -> None:
        """Take note of a new connection."""
        self._count = 0

    def is_new(self, packet: object) -> bool:
        """Return whether these bytes come for the first time; ``packet`` is what stands in the EVENT, as parsed."""
        is_new = self._seen.is_new(_ALL, blake2b_256(repr(packet).encode()))
        self._count += is_new
        return is_new

    def ends_connection(self) -> bool:
        """Return whether the packet that was just found to be new is one to leave the relay for."""
        # Spec 18: the first closes the connection; a reader that came back has moved on, and stays.
        leaves = not self._has_left or self._count >= BAD_PACKETS_MAX
        self._has_left = True
        return leaves
