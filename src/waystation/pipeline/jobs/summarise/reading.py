"""Reader of the datasets on the report's dates, and column functions that return times as whole seconds.

The other modules of ``summarise`` use it. Whole seconds avoid a conversion by Python's local time zone.
"""

import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import Dataset

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["DIGITS", "Reading", "digits", "hour_of", "number", "seconds"]

DIGITS: Final = 8
"""Hexadecimal digits of a reference that are shown."""


class Reading:
    """The chosen dates of a lake."""

    def __init__(self, spark: "SparkSession", lake: Lake, dates: DateRange) -> None:
        self._spark = spark
        self._lake = lake
        self._dates = dates

    def rows(self, dataset: Dataset, last_days: int | None = None) -> "DataFrame | None":
        """Return the rows of ``dates``; None when there are none, without a job."""
        chosen = self.dates(dataset, last_days)
        return self._lake.read(self._spark, dataset, chosen) if chosen else None

    def dates(self, dataset: Dataset, last_days: int | None = None) -> list[datetime.date]:
        """Return those of the chosen dates that have rows, oldest first.

        Args:
            dataset: What would be read.
            last_days: Only so many days up to the last one that was computed, though it may have become empty.
        """
        manifest = self._lake.manifest(dataset)
        chosen = self._dates.select({batch.event_date for batch in manifest.batches if batch.rows})
        if last_days is not None and chosen:
            last = self._dates.select({*chosen, *manifest.computed})[-1]
            chosen = [date for date in chosen if date > last - datetime.timedelta(days=last_days)]
        return chosen


def seconds(name: str) -> "Column":
    """Return a timestamp as whole seconds since 1970, under its name."""
    return F.unix_seconds(F.col(name)).alias(name)


def hour_of(name: str) -> "Column":
    """Return the beginning of a timestamp's hour as seconds since 1970, as ``hour``."""
    return F.unix_seconds(F.date_trunc("hour", F.col(name))).alias("hour")


def digits(name: str) -> "Column":
    """Return the first eight hexadecimal digits of a binary column, under its name."""
    return F.lower(F.hex(F.substring(name, 1, DIGITS // 2))).alias(name)


def number(key: str) -> "Column":
    """Return a number of an event's ``attrs``, null for none."""
    return F.try_element_at("attrs", F.lit(key)).try_cast("bigint").alias(key)
