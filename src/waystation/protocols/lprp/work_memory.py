"""How much work a host wanted the last time, for each kind.

Only the host knows how many bits it demands. The search begins with the number remembered and goes on with more after
each refusal, so too low a first offer costs round trips, too high a one costs work. Spec: LPRP-D7B.
"""

from collections.abc import Mapping
from typing import Final

from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.protocols.lprp.messages import Kind

__all__ = ["LOWER_AFTER_COUNT", "WorkMemory"]

LOWER_AFTER_COUNT: Final = 8
"""So many first offers taken in a row, and the next one is lower: demands fall when load does, and nobody tells us
(LPRP-LOWER)."""


class WorkMemory:
    """Remembers bits per kind; ``bits`` is what to keep on disk."""

    __slots__ = ("_bits", "_settings", "_taken_count")

    def __init__(self, settings: ClientSettings, bits: Mapping[Kind, int] | None = None) -> None:
        self._settings = settings
        self._bits = {kind: min(max(0, count), settings.bits_max) for kind, count in (bits or {}).items()}
        self._taken_count = dict.fromkeys(Kind, 0)

    @property
    def bits(self) -> dict[Kind, int]:
        """Bits remembered, 0 to 26; kinds never demanded are missing."""
        return dict(self._bits)

    def first_offer(self, kind: Kind) -> int:
        """Return how many bits to search for first."""
        return self._bits.get(kind, min(self._settings.work_first_bits, self._settings.bits_max))

    def next_offer(self, bits: int) -> int | None:
        """Return what to offer after ``bits`` were too few, or None when that would be more than we do."""
        if bits >= self._settings.bits_max:
            return None
        return min(bits + self._settings.work_step_bits, self._settings.bits_max)

    def note_taken(self, kind: Kind, bits: int, *, at_first: bool) -> None:
        """Remember that the host took ``bits``, ``at_first`` or after refusals."""
        self._taken_count[kind] = self._taken_count[kind] + 1 if at_first else 0
        if self._taken_count[kind] >= LOWER_AFTER_COUNT:
            self._taken_count[kind] = 0
            bits = max(0, bits - self._settings.work_step_bits)
        self._bits[kind] = bits
