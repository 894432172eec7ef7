"""Computes the difficulty of a challenge in bits, from traffic, occupancy and the requester's prefix.

``commands.work`` asks it; ``sources`` counts with its ``MovingCount``. The demand is the operator's base plus three
terms, each a whole number of bits. It is fixed when a challenge is made.
Spec: lprp 8.
"""

from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.lprp.messages import Kind
from waystation.protocols.lprp.settings import BITS_MAX, LprpSettings

__all__ = ["RATE_WINDOW_S", "TARGETS", "Difficulty", "MovingCount"]

RATE_WINDOW_S: Final = 60  # lprp 8: a 60 s moving mean
TARGETS: Final = {Kind.RELAY: 100, Kind.WHITELIST: 10, Kind.LEASE: 1}
"""Accepted per second that cost no more than the base: lprp 8 lists kinds and targets in this order; LPRP-TARGETS."""

_FILL_STEPS: Final = 8  # lprp 8: occupancy counts in eighths, from one half on
_FILL_BITS_PER_STEP: Final = 2
_ISSUED_PER_STEP: Final = 8  # lprp 8: challenges that one prefix gets before the next costs more


class MovingCount:
    """Counts events of the last so many slots of time; the present, unfinished slot is one of them."""

    __slots__ = ("_counts", "_slot", "_slot_us", "_total")

    def __init__(self, slots_count: int, slot_us: int, now: Instant) -> None:
        assert slots_count > 0
        assert slot_us > 0
        self._counts = [0] * slots_count
        self._slot_us = slot_us
        self._slot = now // slot_us
        self._total = 0

    def add(self, now: Instant, count: int = 1) -> None:
        """Count ``count`` events."""
        self._advance(now)
        self._counts[self._slot % len(self._counts)] += count
        self._total += count

    def total(self, now: Instant) -> int:
        """Return how many there were in the slots that still count."""
        self._advance(now)
        return self._total

    def _advance(self, now: Instant) -> None:
        slot = now // self._slot_us
        counts = self._counts
        for passed in range(self._slot + 1, min(slot, self._slot + len(counts)) + 1):
            index = passed % len(counts)
            self._total -= counts[index]
            counts[index] = 0
        self._slot = max(self._slot, slot)


class Difficulty:
    """Counts accepted work, and computes the bits of a challenge."""

    __slots__ = ("_accepted", "_adaptive", "_base")

    def __init__(self, settings: LprpSettings) -> None:
        self._adaptive = settings.pow_adaptive
        self._base = {
            Kind.RELAY: settings.pow_base_bits_relay,
            Kind.LEASE: settings.pow_base_bits_lease,
            Kind.WHITELIST: settings.pow_base_bits_whitelist,
        }
        self._accepted = {kind: MovingCount(RATE_WINDOW_S, MICROSECONDS_PER_SECOND, Instant(0)) for kind in Kind}

    def accepted(self, kind: Kind, now: Instant) -> None:
        """Count one packet, lease or update that was taken in return for work."""
        self._accepted[kind].add(now)

    def bits(self, kind: Kind, *, occupancy: float, issued: int, now: Instant) -> int:
        """Return how many leading zero bits a challenge made now demands, at least the base and at most 26.

        Args:
            kind: Kind of the request.
            occupancy: How full the scarcest table is, 0 to 1: the recipient's share for unlisted senders for RELAY, the
                tenants for LEASE.
            issued: Challenges that went to this source prefix in the last 2**19 ms.
            now: The present.
        """
        base = self._base[kind]
        if not self._adaptive:
            return base
        demand = base + self._rate_bits(kind, now) + _fill_bits(occupancy) + _source_bits(issued)
        # Spec 8: base + rate + fill + source, at most 26.
        return min(demand, BITS_MAX)

    def _rate_bits(self, kind: Kind, now: Instant) -> int:
        """Return ceil(log2(max(1, accepted per second / target)))."""
        at_target = TARGETS[kind] * RATE_WINDOW_S
        # Spec 8: over 60 s; in integers the ceiling of the quotient has the same logarithm's ceiling.
        multiple = -(-self._accepted[kind].total(now) // at_target)
        return (multiple - 1).bit_length() if multiple else 0


def _fill_bits(occupancy: float) -> int:
    """Return 2 * floor(8 * max(0, occupancy - 0.5)); a table that a smaller setting left overfull counts as full."""
    above_half = min(max(0.0, occupancy - 0.5), 0.5)
    return _FILL_BITS_PER_STEP * int(_FILL_STEPS * above_half)


def _source_bits(issued: int) -> int:
    """Return floor(log2(1 + issued / 8))."""
    return (_ISSUED_PER_STEP + issued).bit_length() - _ISSUED_PER_STEP.bit_length()
