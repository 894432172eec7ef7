"""Queries that read the tables of the report; each query has a named limit on its number of rows."""

from waystation.pipeline.jobs.summarise.traffic import REFUSALS_SHOWN_MAX
from waystation.pipeline.jobs.summarise.whole import summarise

__all__ = ["REFUSALS_SHOWN_MAX", "summarise"]
