"""Manifest of a dataset: the list of its visible batches and of the segments already loaded.

``lake`` reads one before each read and replaces it with each write. It is one small JSON file that is replaced as a
whole, so readers see all of a write or nothing. Segment names are kept as long as rows of their dates. Segments that
began before ``closed_before_us`` are never loaded again, which limits the list to the retention period.
"""

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from waystation.core.errors import HostError
from waystation.journal.segment import parse_name
from waystation.pipeline.tables import Dataset

__all__ = ["Batch", "Manifest", "Place", "Retired"]


class Batch(NamedTuple):
    """One folder of files that counts."""

    event_date: datetime.date
    batch: str
    rows: int

    @property
    def folder(self) -> str:
        """Where it lies below its dataset's folder."""
        return f"event_date={self.event_date.isoformat()}/batch={self.batch}"


class Retired(NamedTuple):
    """One folder that counts no more and that readers may still have open."""

    event_date: datetime.date
    batch: str
    until_s: int
    """When it may be deleted, Unix seconds."""

    @property
    def folder(self) -> str:
        """Where it lies below its dataset's folder."""
        return Batch(self.event_date, self.batch, 0).folder


class Place(NamedTuple):
    """How far a growing segment was taken."""

    next_seq: int
    """No line of this number or a higher one was taken."""
    bytes: int
    """Everything before this place in the file was taken."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What of a dataset counts."""

    batches: tuple[Batch, ...] = ()
    segments: frozenset[str] = field(default=frozenset())
    """Names of the segments that were taken in whole; only used by ``bronze.events`` and ``bronze.archive``."""
    computed: frozenset[datetime.date] = field(default=frozenset())
    """Dates that were computed at least once, those without rows included."""
    started: Mapping[str, Place] = field(default_factory=dict)
    """Segments of which some lines were taken while they grew."""
    retired: tuple[Retired, ...] = ()
    """What compaction replaced, until no reader can have it open any more."""
    closed_before_us: int = 0
    """Segments that began before this are not taken any more, microseconds UTC."""

    def dates(self) -> list[datetime.date]:
        """Return the dates that have rows, oldest first."""
        return sorted({batch.event_date for batch in self.batches})

    def is_closed(self, segment: str) -> bool:
        """Return whether a segment, whole or in part, is too old to be taken."""
        return _began_us(segment) < self.closed_before_us

    def prune(self, before_us: int) -> "Manifest":
        """Return the manifest without the segments that began before a moment, and closed to them."""
        segments = frozenset(name for name in self.segments if _began_us(name) >= before_us)
        started = {name: place for name, place in self.started.items() if _began_us(name) >= before_us}
        closed = max(before_us, self.closed_before_us)
        return Manifest(self.batches, segments, self.computed, started, self.retired, closed)

    def encode(self, dataset: Dataset) -> str:
        """Return the file."""
        document = {
            "dataset": dataset.full_name,
            "version": dataset.version,
            "batches": [
                {"event_date": entry.event_date.isoformat(), "batch": entry.batch, "rows": entry.rows}
                for entry in self.batches
            ],
            "segments": sorted(self.segments),
            "computed": sorted(date.isoformat() for date in self.computed),
            "started": {name: list(place) for name, place in sorted(self.started.items())},
            "retired": [[entry.event_date.isoformat(), entry.batch, entry.until_s] for entry in self.retired],
            "closed_before_us": self.closed_before_us,
        }
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def decode(cls, text: str, shown: str) -> "Manifest":
        """Read the file; what older versions did not write is empty.

        Raises:
            HostError: It is no manifest.
        """
        try:
            return cls._from(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HostError(f"the manifest {shown} cannot be read: {error}", exit_code=5) from error

    @classmethod
    def _from(cls, document: dict[str, Any]) -> "Manifest":
        day = datetime.date.fromisoformat
        return cls(
            tuple(Batch(day(entry["event_date"]), entry["batch"], entry["rows"]) for entry in document["batches"]),
            frozenset(document["segments"]),
            frozenset(map(day, document.get("computed", []))),
            {name: Place(*place) for name, place in document.get("started", {}).items()},
            tuple(Retired(day(date), batch, until_s) for date, batch, until_s in document.get("retired", [])),
            document.get("closed_before_us", 0),
        )


def _began_us(segment: str) -> int:
    name = parse_name(f"{segment}.jsonl")
    return name.start_us if name is not None else 0
