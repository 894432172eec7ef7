"""What the recorder makes of facts about leases and proof of work.

A change of a lease is one event at once. So is work that was accepted, since somebody has paid for it. Work that was
turned down is free to offer: it is gathered for a second, and beyond ``WORK_KEYS_MAX`` workers of a second the worker
is left out, so that a flood of it becomes a few rows.

Work for a relay never names its worker. A delivery names its recipient in the same instant, and the two rows together
would tell who wrote to whom.
"""

from collections.abc import Callable
from typing import Final

from waystation.core import facts
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.journal import events
from waystation.journal.events import Event

__all__ = ["ACCEPTED", "RELAY_WORK", "WORK_GATHER_MS", "WORK_KEYS_MAX", "LeaseRecords"]

ACCEPTED: Final = "accepted"
RELAY_WORK: Final = "relay"
WORK_GATHER_MS: Final = 1_000
WORK_KEYS_MAX: Final = 64
"""Kinds of work turned down in one second that name a worker: about 15 kB a second at worst."""

_GatheredKey = tuple[str, str, bytes | None, str]
"""Protocol, kind, worker, verdict."""


class LeaseRecords:
    """Turns facts about leases and work into events and totals; the recorder's hand for them."""

    def __init__(self, append: Callable[[Event], None] | None, reference: Callable[[bytes], bytes]) -> None:
        """Start with nothing gathered.

        Args:
            append: Takes each event; None keeps totals only.
            reference: Returns the keyed reference (16 bytes) of an identity.
        """
        self._append = append
        self._reference = reference
        self._lease_totals: dict[tuple[str, str], int] = {}
        self._work_totals: dict[tuple[str, str], int] = {}
        self._turned_down: dict[_GatheredKey, int] = {}
        self._due: Instant | None = None

    def lease_totals(self) -> dict[tuple[str, str], int]:
        """Return changes of leases since the start by protocol and change."""
        return dict(self._lease_totals)

    def work_totals(self) -> dict[tuple[str, str], int]:
        """Return work since the start by protocol and verdict."""
        return dict(self._work_totals)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        return self._due

    def wake(self, now: Instant, wall_us: int) -> None:
        """Write what was gathered long enough; ``wall_us`` is ``now`` in microseconds UTC."""
        if self._due is not None and self._due <= now:
            self.flush(wall_us)

    def flush(self, wall_us: int) -> None:
        """Write everything that was gathered."""
        gathered, self._turned_down = self._turned_down, {}
        self._due = None
        for (protocol, kind, worker, verdict), times in gathered.items():
            self._write(events.WorkJudged(wall_us, protocol, self._named(worker), kind, verdict, None, None, times))

    def changed(self, fact: facts.LeaseChanged, wall_us: int) -> None:
        """A lease began, went on or ended; ``wall_us`` is now in microseconds UTC."""
        total = (fact.protocol, fact.change)
        self._lease_totals[total] = self._lease_totals.get(total, 0) + 1
        if self._append is not None:
            tenant = self._reference(fact.tenant)
            self._append(events.LeaseChanged(wall_us, fact.protocol, tenant, fact.change, fact.waiting_count))

    def judged(self, fact: facts.WorkJudged, now: Instant, wall_us: int) -> None:
        """Somebody's work has its verdict."""
        total = (fact.protocol, fact.verdict)
        self._work_totals[total] = self._work_totals.get(total, 0) + 1
        if self._append is None:
            return
        worker = None if fact.kind == RELAY_WORK else fact.worker
        if fact.verdict == ACCEPTED:
            named = self._named(worker)
            self._append(
                events.WorkJudged(wall_us, fact.protocol, named, fact.kind, fact.verdict, fact.bits, fact.waited_us)
            )
        else:
            self._gather((fact.protocol, fact.kind, worker, fact.verdict), now)

    def _gather(self, key: _GatheredKey, now: Instant) -> None:
        if key not in self._turned_down and len(self._turned_down) >= WORK_KEYS_MAX:
            protocol, kind, _, verdict = key
            key = (protocol, kind, None, verdict)
        self._turned_down[key] = self._turned_down.get(key, 0) + 1
        if self._due is None:
            self._due = Instant(now + WORK_GATHER_MS * MICROSECONDS_PER_MS)

    def _named(self, worker: bytes | None) -> bytes | None:
        return self._reference(worker) if worker is not None else None

    def _write(self, event: Event) -> None:
        assert self._append is not None
        self._append(event)
