"""The clock of a client's packets: wall-clock time, made strictly increasing.

The client stamps every packet with it: the owner's wall clock goes in, Unix milliseconds come out. A host accepts a new
address, or a change of a tenant's state, only from a packet newer than all earlier ones. Spec: LPRP-D13, LPRP-D14.
"""

from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS

__all__ = ["PacketClock"]


class PacketClock:
    """Gives strictly increasing times; keep ``last_ms``, or a mark above it, on disk for the next start."""

    __slots__ = ("last_ms",)

    def __init__(self, last_ms: int = 0) -> None:
        """Begin above ``last_ms``, milliseconds since the Unix epoch."""
        self.last_ms = last_ms

    def next(self, wall_ms: int) -> int:
        """Return the time of the next packet: ``wall_ms``, or one more than the last where that is later.

        A last time further ahead of the clock than any host forgives was a mistake of the clock, and no host can have
        taken a packet with it; then the clock counts again (LPRP-BACKWARDS).
        """
        # LPRP-BACKWARDS: no host has taken a packet from so far ahead, so nothing is lost by going back.
        if self.last_ms - wall_ms >= CLOCK_WINDOW_MS:
            self.last_ms = wall_ms
        else:
            # Spec 10: times of packets increase strictly, also over restarts.
            self.last_ms = max(wall_ms, self.last_ms + 1)
        return self.last_ms
