"""A simulated BSP connection between two devices, which can delay, lose, duplicate or reorder single records.

``BspNetwork`` makes one between two hosts. Each record travels as one datagram, and every sent record is counted. A cut
drops records without notice. An end notifies both devices and discards records in transit.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.bsp.device.links import LinkTerms
from waystation.sim.bsp.records import MESSAGE, OFFER, SeenRecord
from waystation.sim.chance import fork
from waystation.sim.net.datagram import DatagramSettings, FaultyLink
from waystation.sim.schedule import Schedule

__all__ = ["CONNECTION_TERMS", "LATENCY_US", "PLAIN", "Connection", "Tally"]

LATENCY_US: Final = 100 * MICROSECONDS_PER_MS
"""Of every connection of bsp 10."""
PLAIN: Final = DatagramSettings(latency_us=LATENCY_US, jitter_us=0)
"""A connection without faults."""
CONNECTION_TERMS: Final = LinkTerms("connection", base_ms=1_000)
"""What devices know of it: the base interval of bsp 10, and no measured round trip."""

_START: Final = Instant(0)

Take = Callable[[str, bytes], None]
"""Takes the name of the sender and the bytes of a record."""


@dataclass
class Tally:
    """What was written in one direction, whether or not it arrived."""

    record_bytes: int = 0
    """Headers included."""
    by_kind: Counter[int] = field(default_factory=Counter)
    """Records by type."""
    bytes_by_kind: Counter[int] = field(default_factory=Counter)
    """Their bytes by type."""
    copies: dict[bytes, list[tuple[Instant, int]]] = field(default_factory=dict)
    """When each message was offered or sent, and which of both."""
    last_at: Instant = _START
    """When the last record was written."""

    def count(self, record: SeenRecord, now: Instant) -> None:
        """Count one record."""
        self.record_bytes += len(record.data)
        self.by_kind[record.kind] += 1
        self.bytes_by_kind[record.kind] += len(record.data)
        self.last_at = now
        if record.kind in {MESSAGE, OFFER}:
            for message_id in record.ids:
                self.copies.setdefault(message_id, []).append((now, record.kind))


class Connection:
    """One way between two devices, by their names."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        settings: DatagramSettings,
        ends: dict[str, Take],
        terms: LinkTerms = CONNECTION_TERMS,
    ) -> None:
        """Join the two of ``ends``, whose values take what arrives there; it is not up yet."""
        self._schedule = schedule
        self._rng = rng
        self._takes = ends
        self.names = tuple(ends)
        self.terms = terms
        self.settings = settings
        self.is_up = False
        """Whether the devices know of it and not of its end."""
        self.is_cut = False
        self.numbers: dict[str, int] = {}
        """What each of the devices calls it."""
        self.tallies = {name: Tally() for name in ends}
        """By sender."""
        self._life = 0
        self._lanes: dict[str, FaultyLink] = {}
        self.set_out()

    def other(self, name: str) -> str:
        """Return who is at the other end."""
        return self.names[1] if name == self.names[0] else self.names[0]

    def set_out(self, settings: DatagramSettings | None = None) -> None:
        """Begin anew, with other settings if any are given: what is under way never arrives."""
        self._life += 1
        self.change_to(settings or self.settings)

    def change_to(self, settings: DatagramSettings) -> None:
        """Behave as ``settings`` say from now on; what is under way still arrives."""
        self.settings = settings
        for name in self.names:
            self._lanes[name] = FaultyLink(
                self._schedule, fork(self._rng), settings, self._arrive(self._life, name, self.other(name))
            )

    def cut(self) -> None:
        """Let nothing through without notifying either device; what is under way still arrives."""
        self.is_cut = True

    def heal(self) -> None:
        """Let records through again."""
        self.is_cut = False

    def carry(self, name: str, record: SeenRecord) -> None:
        """Take a record from the end called ``name``."""
        self.tallies[name].count(record, self._schedule.now)
        self.throw(name, record.data)

    def throw(self, name: str, data: bytes) -> None:
        """Take any bytes from the end called ``name``, uncounted."""
        if not self.is_cut:
            self._lanes[name](data)

    def _arrive(self, life: int, sender: str, recipient: str) -> Callable[[bytes], None]:
        def arrive(data: bytes) -> None:
            if life == self._life:
                self._takes[recipient](sender, data)

        return arrive
