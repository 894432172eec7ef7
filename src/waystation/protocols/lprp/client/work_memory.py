"""Remembers how many bits of work a host accepted last, for each kind of request.

``requests`` asks it with which number of bits to begin. Only the host knows how many bits it demands. A search starts
with the remembered number and adds bits after each refusal. Too low a start costs round trips, too high a start costs
work. Spec: LPRP-D7B.
"""

from collections.abc import Mapping
from typing import Final

from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import Kind

__all__ = ["LOWER_AFTER_COUNT", "WorkMemory"]

LOWER_AFTER_COUNT: Final = 8
"""After so many accepted first offers in a row the next one is lower: demands fall with load, and no packet reports it
(LPRP-LOWER)."""


class WorkMemory:
    """Remembers bits per kind; the owner keeps ``bits`` on disk."""

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
        # Spec 3: begin at 12 or at what was enough last time.
        return self._bits.get(kind, min(self._settings.work_first_bits, self._settings.bits_max))

    def next_offer(self, bits: int) -> int | None:
        """Return the offer after ``bits`` were too few, or None when that would be more than we do."""
        if bits >= self._settings.bits_max:
            return None
        # Spec 3: search on for 2 more after each 401.
        return min(bits + self._settings.work_step_bits, self._settings.bits_max)

    def note_taken(self, kind: Kind, bits: int, *, at_first: bool) -> None:
        """Remember that the host accepted ``bits``, ``at_first`` or after refusals."""
        self._taken_count[kind] = self._taken_count[kind] + 1 if at_first else 0
        if self._taken_count[kind] >= LOWER_AFTER_COUNT:
            self._taken_count[kind] = 0
            bits = max(0, bits - self._settings.work_step_bits)
        self._bits[kind] = bits
