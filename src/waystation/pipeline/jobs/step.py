"""What every step tells about itself."""

import datetime
from collections.abc import Collection
from dataclasses import dataclass, field

__all__ = ["Counts", "DateRange", "Problem", "Rejection"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A segment that was not in order."""

    segment: str
    problem: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """A line that was not taken: why, and its SHA-256 in hexadecimal; never the line."""

    segment: str
    reason: str
    hash: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows that went into a step, came out, and were turned down."""

    rows_in: int
    rows_out: int
    rows_rejected: int = 0
    problems: tuple[Problem, ...] = ()
    rejections: tuple[Rejection, ...] = field(default=())
    """The first of the rejected lines; ``rows_rejected`` counts all."""


@dataclass(frozen=True, slots=True)
class DateRange:
    """UTC dates to work on, both ends included; None leaves an end open."""

    first: datetime.date | None = None
    last: datetime.date | None = None

    def select(self, dates: Collection[datetime.date]) -> list[datetime.date]:
        """Return those of ``dates`` inside the range, oldest first."""
        return sorted(date for date in dates if self._holds(date))

    def _holds(self, date: datetime.date) -> bool:
        return (self.first is None or date >= self.first) and (self.last is None or date <= self.last)
