"""Bloom filter of packet ids in memory, which recognises most unknown ids without a database query.

The SQLite packet table keeps one where its opener asks for it, filled at the start. A relay checks every offered packet
for duplicates, and nearly all ids are new. For those, three bit tests replace an index search. The filter may report an
unknown id as possibly known, but never a known id as unknown.
"""

from struct import Struct
from typing import Final

__all__ = ["FILTER_BYTES", "IdFilter"]

FILTER_BYTES: Final = 1 << 23
"""Size of the bit field. Of the ids that are unknown, one in 12,000 is doubtful beside a million known ones, one in 21
beside ten million."""

_PROBES: Final = Struct("<III")  # ids are BLAKE3 digests (RFC-0004 3), so their first bytes are as good as any hash


class IdFilter:
    """A set of packet ids of fixed size that errs on one side only: it may doubt an id it was never given.

    One thread may add while another asks.
    """

    def __init__(self) -> None:
        self._bits = bytearray(FILTER_BYTES)

    def add(self, packet_id: bytes) -> None:
        """Take an id of 32 bytes; it cannot be taken out again."""
        bits = self._bits
        for probe in _PROBES.unpack_from(packet_id):
            bits[probe >> 9] |= 1 << (probe & 7)

    def may_hold(self, packet_id: bytes) -> bool:
        """Return False when the id was surely never added."""
        bits = self._bits
        first, second, third = _PROBES.unpack_from(packet_id)
        return bool(
            bits[first >> 9] >> (first & 7) & 1
            and bits[second >> 9] >> (second & 7) & 1
            and bits[third >> 9] >> (third & 7) & 1
        )
