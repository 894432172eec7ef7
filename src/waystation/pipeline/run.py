"""All steps in order, in one Spark application: ingest, archive, conform, outcomes, verdicts, verify, report."""

import dataclasses
import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

from waystation.core.errors import HostError, LocalError
from waystation.pipeline.jobs.step import Counts, DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.report import RunFacts, Summary, render
from waystation.pipeline.session import Opened, open_session
from waystation.pipeline.tables import OPS_RUNS
from waystation.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "Request", "Result", "StepReport", "rebuild_report", "run_pipeline"]

_ARCHIVE_FOLDER: Final = "archive"  # as the server's home names it


class Progress(Protocol):
    """Told what happens while it happens."""

    def begin(self, step: str) -> None:
        """A step begins."""

    def end(self, step: str, sentence: str) -> None:
        """A step has ended, with one sentence for people."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run on."""

    journal: Path
    lake: Path
    report: Path
    dates: DateRange = dataclasses.field(default_factory=DateRange)
    """Dates to conform, count and show; ingest and verify take whatever is new."""
    archive: Path | None = None
    """Folder of archived packets; None takes ``archive`` beside the journal."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did."""

    name: str
    counts: Counts
    seconds: float


@dataclass(frozen=True, slots=True)
class Result:
    """What a run did and where it put it."""

    run_id: str
    started_at: str
    finished_at: str
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
            "steps": [_step_document(step) for step in self.steps],
            "segments": [dataclasses.asdict(problem) for step in self.steps for problem in step.counts.problems],
            "rejections": [dataclasses.asdict(line) for step in self.steps for line in step.counts.rejections],
            "row_counts": self.row_counts,
            "report": str(self.report),
            "run_report": str(self.run_report),
            "version": __version__,
        }


def run_pipeline(request: Request, progress: Progress) -> Result:
    """Run all steps; the same journal gives the same tables however often it runs.

    Raises:
        LocalError: The journal is no folder.
        HostError: No Java, or the lake or the report cannot be written.
    """
    if not request.journal.is_dir():
        raise LocalError(f"there is no journal at {request.journal}: start the node first, or name it with --journal")
    lake = Lake(request.lake)
    started = datetime.datetime.now(datetime.UTC)
    run_id = f"{started:%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"
    with lake.locked(), _opened(progress) as opened:
        steps = _run_steps(opened.spark, lake, request, run_id, progress)
        summary = _summarise(opened.spark, lake, request.dates, progress)
        engine = _engine(opened)
    finished = datetime.datetime.now(datetime.UTC)
    folder = lake.folder(OPS_RUNS) / f"event_date={started.date().isoformat()}"
    result = Result(
        run_id,
        started.isoformat(timespec="seconds"),
        finished.isoformat(timespec="seconds"),
        engine,
        tuple(steps),
        dict(summary.row_counts),
        request.report,
        folder / f"{run_id}.json",
    )
    _write_report(request.report, summary, _facts(result, request))
    lake.write_run(OPS_RUNS, run_id, started.date(), result.document())
    return result


def rebuild_report(request: Request, progress: Progress) -> Path:
    """Draw the report again from what the lake holds, without reading the journal; return its path.

    Raises:
        LocalError: There is no lake.
        HostError: No Java, or the report cannot be written.
    """
    if not request.lake.is_dir():
        raise LocalError(f"there is no lake at {request.lake}: run the pipeline first, or name it with --lake")
    with _opened(progress) as opened:
        summary = _summarise(opened.spark, Lake(request.lake), request.dates, progress)
        facts = RunFacts([("lake", str(request.lake)), ("engine", _engine(opened))])
    _write_report(request.report, summary, facts)
    return request.report


def _run_steps(
    spark: "SparkSession", lake: Lake, request: Request, run_id: str, progress: Progress
) -> list[StepReport]:
    from waystation.pipeline.jobs.conform import conform  # noqa: PLC0415 - these import Spark
    from waystation.pipeline.jobs.ingest import ARCHIVE, ingest  # noqa: PLC0415
    from waystation.pipeline.jobs.outcomes import count_outcomes  # noqa: PLC0415
    from waystation.pipeline.jobs.verdicts import count_verdicts  # noqa: PLC0415
    from waystation.pipeline.jobs.verify import verify_packets  # noqa: PLC0415

    archive = request.archive or request.journal.parent / _ARCHIVE_FOLDER

    steps: list[tuple[str, Callable[[], Counts]]] = [
        ("ingest", lambda: ingest(spark, lake, request.journal)),
        ("archive", lambda: ingest(spark, lake, archive, ARCHIVE)),
        ("conform", lambda: conform(spark, lake, run_id, request.dates)),
        ("outcomes", lambda: count_outcomes(spark, lake, run_id, request.dates)),
        ("verdicts", lambda: count_verdicts(spark, lake, run_id, request.dates)),
        ("verify", lambda: verify_packets(spark, lake, run_id)),
    ]
    return [_timed(name, action, progress) for name, action in steps]


def _timed(name: str, action: Callable[[], Counts], progress: Progress) -> StepReport:
    progress.begin(name)
    begun = time.monotonic()
    counts = action()
    step = StepReport(name, counts, round(time.monotonic() - begun, 2))
    sentence = f"{counts.rows_in:,} rows in, {counts.rows_out:,} out, {counts.rows_rejected:,} rejected"
    progress.end(name, f"{sentence}; {len(counts.problems)} notes on segments" if counts.problems else sentence)
    return step


class _opened:  # noqa: N801 - used like a function
    """A Spark session, with its opening told as a step."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._session = open_session()

    def __enter__(self) -> Opened:
        self._progress.begin("spark")
        opened = self._session.__enter__()
        self._progress.end("spark", f"Spark {opened.spark.version}, {opened.why}")
        return opened

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)  # type: ignore[arg-type]


def _summarise(spark: "SparkSession", lake: Lake, dates: DateRange, progress: Progress) -> Summary:
    from waystation.pipeline.jobs.summarise import summarise  # noqa: PLC0415 - imports Spark

    progress.begin("report")
    summary = summarise(spark, lake, dates)
    progress.end("report", f"{sum(row.n for row in summary.outcomes):,} delivery attempts summed up")
    return summary


def _engine(opened: Opened) -> str:
    return f"Spark {opened.spark.version} ({opened.why})"


def _facts(result: Result, request: Request) -> RunFacts:
    lines = [
        ("run", result.run_id),
        ("started (UTC)", result.started_at),
        ("finished (UTC)", result.finished_at),
        ("journal", str(request.journal)),
        ("lake", str(request.lake)),
        ("dates", f"{request.dates.first or 'first'} to {request.dates.last or 'last'}"),
        ("engine", result.engine),
        ("waystation", __version__),
    ]
    steps = [
        (s.name, f"{s.counts.rows_in:,}", f"{s.counts.rows_out:,}", f"{s.counts.rows_rejected:,}", f"{s.seconds:.1f}")
        for s in result.steps
    ]
    return RunFacts(lines, steps, [problem for step in result.steps for problem in step.counts.problems])


def _step_document(step: StepReport) -> dict[str, Any]:
    counts = step.counts
    return {
        "name": step.name,
        "rows_in": counts.rows_in,
        "rows_out": counts.rows_out,
        "rows_rejected": counts.rows_rejected,
        "seconds": step.seconds,
    }


def _write_report(path: Path, summary: Summary, facts: RunFacts) -> None:
    page = render(summary, facts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise HostError(f"cannot write the report {path}: {error.strerror}", exit_code=4) from error
