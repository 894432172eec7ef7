"""Input and result types of pipeline steps: ``Context`` goes into each step, ``Counts`` come out.

``Context`` decides which dates are due, reads datasets and rewrites dates of them.
"""

import datetime
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from waystation.pipeline.lake import Lake
from waystation.pipeline.settings import PipelineSettings
from waystation.pipeline.tables import Dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Context", "Counts", "DateRange", "Problem", "Rejection"]


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
    """Rows that went into a step, came out, and were left out: refused, found wrong or held back."""

    rows_in: int
    rows_out: int
    rows_rejected: int = 0
    problems: tuple[Problem, ...] = ()
    rejections: tuple[Rejection, ...] = field(default=())
    """The first of the rejected lines; ``rows_rejected`` counts all."""

    def sentence(self) -> str:
        """Return it as text."""
        sentence = f"{self.rows_in:,} rows in, {self.rows_out:,} out, {self.rows_rejected:,} left out"
        notes = "1 note" if len(self.problems) == 1 else f"{len(self.problems)} notes"
        return f"{sentence}; {notes} on segments" if self.problems else sentence


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


_US = datetime.timedelta(microseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Context:
    """What a step works with."""

    spark: "SparkSession"
    lake: Lake
    run_id: str
    """Names the batches that the run writes."""
    dates: DateRange
    """The requested dates; open without a request."""
    as_of: datetime.datetime
    """End of what is looked at, a full hour in UTC: windows end here, and published files are dated by it."""
    settings: PipelineSettings = field(default_factory=PipelineSettings)
    journal: Path | None = None
    """Folder of the journal, for the steps that take events in."""
    archive: Path | None = None
    """Folder of archived packets; there may be none."""

    def due(self, output: Dataset, *inputs: Dataset) -> list[datetime.date]:
        """Return the dates of ``output`` to compute, oldest first.

        The requested ones; else the last ``recompute_days`` and every one that was never computed. Only dates
        are taken that the inputs or the output itself have rows of, and none whose inputs are past their retention:
        what was computed of rows that are gone stays as it is (PIPE-GONE).
        """
        manifest = self.lake.manifest(output)
        shortest = min(each.retention_days for each in (output, *inputs))
        oldest = self.as_of.date() - datetime.timedelta(days=shortest)
        dates = {*manifest.dates(), *(date for each in inputs for date in self.lake.manifest(each).dates())}
        known = {date for date in dates if date >= oldest}
        if self.dates != DateRange():
            return self.dates.select(known)
        first = self.as_of.date() - datetime.timedelta(days=self.settings.recompute_days)
        return sorted(date for date in known if date >= first or date not in manifest.computed)

    def read(self, dataset: Dataset, dates: Collection[datetime.date] | None = None) -> "DataFrame":
        """Return the rows of a dataset that count, of all dates or of some."""
        return self.lake.read(self.spark, dataset, dates)

    @property
    def as_of_us(self) -> int:
        """``as_of`` in microseconds since 1970."""
        return (self.as_of - _EPOCH) // _US

    def rewrite_hour(self, frame: "DataFrame", output: Dataset) -> int:
        """Replace the rows of a dataset as of this run's hour; other hours of its date stay. Return the date's rows.

        ``frame`` holds rows of ``as_of`` only; the dataset has such a column.
        """
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; Spark is an extra

        date = self.as_of.date()
        others = self.read(output, [date]).where(F.unix_micros("as_of") != self.as_of_us)
        names = [*output.names(), "event_date"]
        return self.rewrite(frame.select(*names).unionByName(others.select(*names)), output, [date])

    def rewrite(self, frame: "DataFrame", output: Dataset, dates: Collection[datetime.date]) -> int:
        """Replace these dates of a dataset by what ``frame`` holds; return the rows written."""
        return self.lake.overwrite(frame, output, self.run_id, dates)

    def rows(self, dataset: Dataset, dates: Collection[datetime.date]) -> int:
        """Return how many rows of these dates count, by the manifest."""
        return sum(batch.rows for batch in self.lake.manifest(dataset).batches if batch.event_date in dates)
