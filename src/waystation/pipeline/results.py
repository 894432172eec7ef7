"""Results of a pipeline run: as text, as JSON, and as rows of ``ops.runs``.

``pipeline.run`` returns a ``Result`` and stores it; ``waystation pipeline run`` prints it.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waystation.pipeline.jobs.step import Counts
from waystation.version import __version__

__all__ = ["Result", "StepReport"]


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did."""

    name: str
    counts: Counts
    seconds: float

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "name": self.name,
            "rows_in": self.counts.rows_in,
            "rows_out": self.counts.rows_out,
            "rows_rejected": self.counts.rows_rejected,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """What a run did and where it put it."""

    run_id: str
    started_at: str
    finished_at: str
    as_of: str
    engine: str
    steps: tuple[StepReport, ...]
    row_counts: dict[str, int]
    """Rows in the lake by dataset, of the chosen dates."""
    report: Path
    run_report: Path

    def document(self) -> dict[str, Any]:
        """Return the run report as JSON values; its first keys are the columns of ``ops.runs``."""
        return {
            "run_id": self.run_id,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "engine": self.engine,
            "steps": [step.document() for step in self.steps],
            "segments": [dataclasses.asdict(problem) for step in self.steps for problem in step.counts.problems],
            "rejections": [dataclasses.asdict(line) for step in self.steps for line in step.counts.rejections],
            "as_of": self.as_of,
            "row_counts": self.row_counts,
            "report": str(self.report),
            "run_report": str(self.run_report),
            "version": __version__,
        }
