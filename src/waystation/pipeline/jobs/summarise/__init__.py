"""Read from the lake what the report shows: one question per table, each with a named limit on its answer."""

from waystation.pipeline.jobs.summarise.traffic import REFUSALS_SHOWN_MAX
from waystation.pipeline.jobs.summarise.whole import summarise

__all__ = ["REFUSALS_SHOWN_MAX", "summarise"]
